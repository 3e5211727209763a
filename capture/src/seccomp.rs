//! The system calls that a recorder has no use for and that would be of use to whoever took it over.
//!
//! The filter is a list of refused calls: they fail with EPERM, and all others work. A list of allowed ones would have to
//! know what NVIDIA's library calls in each of its versions. It is a program for the kernel's classic BPF machine, which runs
//! it on [`libc::seccomp_data`] at each system call.
#![expect(unsafe_code, reason = "prctl and seccomp have no safe interface")]

use std::{io, mem::offset_of};

/// The architecture whose calls the numbers below are (include/uapi/linux/audit.h).
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Calls of the x32 interface have this bit, and would pass by another number.
const X32_BIT: u32 = 0x4000_0000;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// The refused calls. Sockets are refused, too, unless they are local or of netlink.
const REFUSED: &[libc::c_long] = &[
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes' memory and descriptors. Maps and files of theirs are read in /proc.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Other views of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknodat,
    libc::SYS_fanotify_init,
    // The kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    // The kernel's keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // What makes attacks on the kernel easier, or goes around a filter.
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
];

/// Flag of [`install`]: the filter holds for every thread of this process, not for the calling thread alone.
pub(crate) const ALL_THREADS: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_TSYNC;

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Compares what was loaded last with `k`, and skips as many instructions as its result says.
const fn compare(how: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | how | libc::BPF_K) as u16, jt, jf, k }
}

/// The filter's instructions.
fn program() -> Vec<libc::sock_filter> {
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let end = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut program = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        compare(libc::BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0),
        end(REFUSE),
        load(offset_of!(libc::seccomp_data, nr)),
        compare(libc::BPF_JGE, X32_BIT, 0, 1),
        end(REFUSE),
    ];
    for number in REFUSED {
        program.extend([compare(libc::BPF_JEQ, *number as u32, 0, 1), end(REFUSE)]);
    }
    program.extend([
        compare(libc::BPF_JEQ, libc::SYS_socket as u32, 1, 0),
        end(libc::SECCOMP_RET_ALLOW),
        // The address family is the lower half of the first argument.
        load(offset_of!(libc::seccomp_data, args)),
        compare(libc::BPF_JEQ, libc::AF_UNIX as u32, 1, 0),
        compare(libc::BPF_JEQ, libc::AF_NETLINK as u32, 0, 1),
        end(libc::SECCOMP_RET_ALLOW),
        end(REFUSE),
    ]);
    program
}

/// Gives up, for this thread and those that it starts, that a program can gain privileges when it is executed.
///
/// # Errors
/// If the kernel refuses that.
pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    let (yes, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: this operation takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the kernel can refuse system calls as the filter asks for, on this architecture.
///
/// # Errors
/// If it cannot.
pub(crate) fn available() -> io::Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err(io::Error::other("the filter is written for x86-64"));
    }
    let (action, no_flags): (u32, libc::c_ulong) = (libc::SECCOMP_RET_ERRNO, 0);
    // SAFETY: the kernel reads one word at the address of `action`, which outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, no_flags, &raw const action)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Installs the filter for good, with [`ALL_THREADS`] or no flag. The calling thread needs [`forbid_new_privileges`] before;
/// with the flag, that holds for all threads from then on.
///
/// # Errors
/// If the kernel or the architecture cannot filter, or another filter of one of the threads is in the way.
pub(crate) fn install(flags: libc::c_ulong) -> io::Result<()> {
    available()?;
    let mut program = program();
    let filter = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the instructions that `filter` points at; both outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has a filter of its own"))),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::unix::net::UnixDatagram, ptr::null, thread};

    use super::*;

    /// The error of executing no program at all.
    fn execute_nothing() -> Option<i32> {
        // SAFETY: the kernel refuses a null path before it replaces anything.
        let result = unsafe { libc::syscall(libc::SYS_execve, null::<u8>(), null::<u8>(), null::<u8>()) };
        assert_eq!(result, -1);
        io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn refused_calls_fail_and_others_work() {
        assert_eq!(execute_nothing(), Some(libc::EFAULT));
        let confined = thread::spawn(|| {
            forbid_new_privileges().expect("no_new_privs");
            install(0).expect("a filter");
            assert_eq!(execute_nothing(), Some(libc::EPERM));
            let refused = UdpSocket::bind("127.0.0.1:0").expect_err("a socket of the network");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(UnixDatagram::unbound().is_ok());
            assert!(std::fs::read("/proc/self/status").is_ok_and(|status| !status.is_empty()));
            assert!(thread::spawn(|| ()).join().is_ok());
        });
        confined.join().expect("a confined thread");
        assert_eq!(execute_nothing(), Some(libc::EFAULT), "the filter is of that thread");
    }
}
