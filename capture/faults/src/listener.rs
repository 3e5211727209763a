//! A filter that makes system calls wait for an answer, and the answers (seccomp's user notification).
//!
//! The filter holds for the thread that installs it and for all processes that this thread starts, whatever they execute and
//! however they make their calls: through libc, or with an instruction of their own as `rustix` does.
#![expect(unsafe_code, reason = "prctl, seccomp and its requests have no safe interface")]

use std::{
    io,
    mem::{self, offset_of},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// The architecture whose calls have the numbers of `libc` here (include/uapi/linux/audit.h).
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// The side of a filter that answers.
pub(crate) struct Listener(OwnedFd);

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    id: u64,
    /// The thread that makes the call.
    pub(crate) tid: u32,
    /// The call's number.
    pub(crate) number: libc::c_long,
    /// Its arguments, as they stand in registers.
    pub(crate) args: [u64; 6],
}

/// What becomes of a system call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The kernel does it.
    Continue,
    /// It returns this value, and nothing is done.
    Return(i64),
    /// It fails, and nothing is done.
    Fail(Errno),
}

/// What happened within some time.
pub(crate) enum Event {
    /// A system call waits.
    Call(Waiting),
    /// Nothing did.
    Nothing,
    /// No process is left under the filter.
    Ended,
}

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Compares what was loaded last with `k`, and skips as many instructions as its result says.
const fn equal(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k }
}

/// The filter's instructions: the numbered calls wait, and all others are done.
fn program(numbers: impl Iterator<Item = libc::c_long>) -> Vec<libc::sock_filter> {
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let end = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut program = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        equal(AUDIT_ARCH_X86_64, 1, 0),
        end(libc::SECCOMP_RET_ALLOW),
        load(offset_of!(libc::seccomp_data, nr)),
    ];
    for number in numbers {
        program.extend([equal(number as u32, 0, 1), end(libc::SECCOMP_RET_USER_NOTIF)]);
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs a filter for the calling thread, and returns the descriptor of its listener.
fn install(filter: &libc::sock_fprog) -> io::Result<RawFd> {
    // A call that waits is interrupted by a deadly signal only: what was done for it must not be done again.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the kernel copies the instructions that `filter` points at, which outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(filter))
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

impl Listener {
    /// Makes the numbered calls of this thread, and of all processes that it starts from now on, wait for answers.
    ///
    /// # Errors
    /// If the kernel cannot: it has to be Linux 5.19 or later on x86-64.
    pub(crate) fn install(numbers: impl Iterator<Item = libc::c_long>) -> io::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::other("the filter is written for x86-64"));
        }
        let mut program = program(numbers);
        let filter = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
        let installed = install(&filter).or_else(|error| {
            // Who has no privileges may filter only what gains none.
            if error.raw_os_error() != Some(libc::EACCES) {
                return Err(error);
            }
            let (yes, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
            // SAFETY: this operation takes numbers only.
            match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, unused, unused, unused) } {
                0 => install(&filter),
                _ => Err(io::Error::last_os_error()),
            }
        });
        // SAFETY: the kernel made this descriptor for the caller.
        installed.map(|fd| Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Waits for the next call, at most for some time.
    ///
    /// # Errors
    /// If the kernel refuses to say it.
    pub(crate) fn next(&self, timeout: Duration) -> io::Result<Event> {
        let mut polls = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut polls, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found = polls[0].revents();
        if !found.contains(PollFlags::IN) {
            return Ok(if found.is_empty() { Event::Nothing } else { Event::Ended });
        }
        // SAFETY: the struct has numbers only, for which zeros are valid.
        let mut call: libc::seccomp_notif = unsafe { mem::zeroed() };
        // SAFETY: a valid place for what the request writes.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
        if result == 0 {
            let (number, args) = (libc::c_long::from(call.data.nr), call.data.args);
            return Ok(Event::Call(Waiting { id: call.id, tid: call.pid, number, args }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Its process was killed meanwhile.
            Some(libc::ENOENT | libc::EINTR) => Ok(Event::Nothing),
            _ => Err(error),
        }
    }

    /// Answers a call. One whose process was killed meanwhile needs none.
    ///
    /// # Errors
    /// If the kernel refuses the answer.
    pub(crate) fn answer(&self, waiting: &Waiting, answer: Answer) -> io::Result<()> {
        let (val, error, flags) = match answer {
            Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Return(value) => (value, 0, 0),
            Answer::Fail(errno) => (0, -errno.raw_os_error(), 0),
        };
        let mut response = libc::seccomp_notif_resp { id: waiting.id, val, error, flags };
        // SAFETY: the kernel reads the response, which outlives the call.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
        let error = io::Error::last_os_error();
        if result == 0 || error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) }
    }
}
