//! What injected faults need before the call: a lock that is held, a file that is not in memory, a thread that
//! will end an `ioctl`. None of it happens within a traced call.

use std::{
    ffi::c_void,
    fs::{File, OpenOptions},
    io::Write,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    ptr::null_mut,
    sync::{
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use cuda_stub::{
    order::{self, Fault, PAGE_BYTES},
    scenario::{Injection, label},
    sleep_ns,
    truth::Call,
};

use crate::{
    Run,
    books::{Books, Schedstat},
    calls::Random,
    pin,
};

const FILE_BYTES: usize = 64 << 20;
/// Bytes of one read past the page cache.
const READ_BYTES: usize = 1 << 20;
/// Distance between two pages that are touched, in bytes.
const STRIDE_BYTES: usize = 512 << 10;
const TOUCHED_PAGES: usize = 16;
/// Files are read, and pages touched, for so long.
const FILE_WAIT_NS: u64 = 600_000;
const IOCTL_NS: u64 = 1_000_000;
const GPU_NS: u64 = 2_000_000;
/// Computing of a lock's holder, in milliseconds of an undisturbed CPU: more than a time slice, so that it loses the
/// CPU meanwhile.
const HOLD_MS: u64 = 10;

/// Makes faults of one kind.
pub(crate) enum Setup {
    None,
    Convoy(&'static Convoy),
    Disk { file: File, buffer: *mut c_void },
    PageFault { file: File, base: *mut c_void },
    Ioctl { listener: i32, request: &'static AtomicU32 },
    Gpu,
}

/// A lock and the thread that holds it on request.
#[derive(Default)]
pub(crate) struct Convoy {
    word: AtomicU32,
    requested: AtomicU32,
    held: AtomicU32,
    run_delay_ns: AtomicU64,
    hog_ran_ns: AtomicU64,
}

impl Setup {
    /// On the thread that will make the calls, before it is pinned: helpers run where they like.
    pub(crate) fn new(injection: Injection, run: &Run, rounds_per_ms: u64) -> Self {
        match injection {
            Injection::None | Injection::Module => Self::None,
            Injection::Gpu => Self::Gpu,
            Injection::Convoy => {
                let convoy: &'static Convoy = Box::leak(Box::default());
                let (cpu, hog) = (run.other_cpu, run.hog);
                spawn("holder", move || hold(convoy, cpu, hog, rounds_per_ms * HOLD_MS));
                Self::Convoy(convoy)
            }
            Injection::Disk => {
                fill(&run.disk);
                let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&run.disk);
                Self::Disk {
                    file: file.expect("a file system with O_DIRECT"),
                    buffer: map(READ_BYTES, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
                }
            }
            Injection::PageFault => {
                fill(&run.disk);
                let file = File::open(&run.disk).expect("the file just written");
                let base = map(FILE_BYTES, libc::MAP_SHARED, file.as_raw_fd());
                Self::PageFault { file, base }
            }
            Injection::Ioctl => {
                let request: &'static AtomicU32 = Box::leak(Box::default());
                let (send, receive) = mpsc::channel();
                spawn("gpu", move || answer(request, &send));
                Self::Ioctl { listener: receive.recv().expect("a seccomp listener"), request }
            }
        }
    }

    /// Prepares the next one.
    pub(crate) fn fault(&self, random: &mut Random) -> (Fault, &'static str) {
        match self {
            Self::None => (Fault::None, label::UNEXPLAINED),
            Self::Gpu => (Fault::Sleep { ns: GPU_NS }, label::GPU),
            Self::Convoy(convoy) => {
                let turn = convoy.requested.fetch_add(1, Ordering::Release) + 1;
                order::futex_wake(&convoy.requested);
                while convoy.held.load(Ordering::Acquire) != turn {
                    sleep_ns(20_000);
                }
                (Fault::Lock { word: &raw const convoy.word }, label::FUTEX)
            }
            Self::Disk { file, buffer } => {
                let places = (FILE_BYTES / READ_BYTES / 2) as u64;
                let offset_bytes = (random.below(places) as usize * READ_BYTES) as i64;
                let fault = Fault::Read {
                    fd: file.as_raw_fd(),
                    buffer: *buffer,
                    step_bytes: READ_BYTES,
                    offset_bytes,
                    ns: FILE_WAIT_NS,
                };
                (fault, label::DISK)
            }
            Self::PageFault { file, base } => {
                // SAFETY: the mapping of this file; what is dropped can be read again.
                unsafe {
                    assert_eq!(libc::madvise(*base, FILE_BYTES, libc::MADV_DONTNEED), 0);
                    assert_eq!(libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED), 0);
                }
                let pages = ((FILE_BYTES - TOUCHED_PAGES * STRIDE_BYTES) / PAGE_BYTES) as u64;
                let fault = Fault::Touch {
                    base: base.cast::<u8>().wrapping_add(random.below(pages) as usize * PAGE_BYTES),
                    step_bytes: STRIDE_BYTES,
                    limit_count: TOUCHED_PAGES,
                    ns: FILE_WAIT_NS,
                };
                (fault, label::PAGE_FAULT)
            }
            Self::Ioctl { listener, request } => {
                request.fetch_add(1, Ordering::Release);
                order::futex_wake(request);
                (Fault::Ioctl { fd: *listener }, label::IOCTL)
            }
        }
    }

    /// What happened to the holder of the lock the last time.
    pub(crate) fn holder_s_books(&self, call: &mut Call) {
        if let Self::Convoy(convoy) = self {
            call.holder_run_delay_ns = convoy.run_delay_ns.load(Ordering::Acquire);
            call.hog_ran_ns = convoy.hog_ran_ns.load(Ordering::Acquire);
        }
    }
}

/// Threads that sleep nearly all the time.
pub(crate) fn sleepers(count: usize) {
    for _ in 0..count {
        spawn("sleeper", || {
            loop {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    }
}

/// The number by which a hog in another process is called.
pub(crate) fn bell(path: &Path) -> &'static AtomicU32 {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the bell's file");
    let base = map(PAGE_BYTES, libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a page that is never unmapped.
    unsafe { AtomicU32::from_ptr(base.cast()) }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread");
}

fn map(bytes: usize, flags: i32, fd: i32) -> *mut c_void {
    let access = libc::PROT_READ | if fd < 0 || bytes == PAGE_BYTES { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new mapping.
    let base = unsafe { libc::mmap(null_mut(), bytes, access, flags, fd, 0) };
    assert_ne!(base, libc::MAP_FAILED, "cannot map {bytes} bytes");
    base
}

/// Writes a file that no file system or host can keep as nothing.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("create the file to read");
    let mut random = Random::new(7);
    let block: Vec<u8> = (0..READ_BYTES).map(|_| random.below(256) as u8).collect();
    for _ in 0..FILE_BYTES / READ_BYTES {
        file.write_all(&block).expect("fill the file to read");
    }
    file.sync_all().expect("fill the file to read");
}

/// Holds the lock whenever asked to.
fn hold(convoy: &Convoy, cpu: usize, hog: Option<u32>, rounds_count: u64) {
    pin(cpu);
    let books = Books::open(None);
    let hog = hog.map(Schedstat::of);
    let hog_ran_ns = || hog.as_ref().map_or(0, Schedstat::ran_ns);
    for turn in 0.. {
        while convoy.requested.load(Ordering::Acquire) == turn {
            order::futex_wait(&convoy.requested, turn);
        }
        order::lock(&convoy.word);
        let (before_ns, hog_before_ns) = (books.run_delay_ns(), hog_ran_ns());
        convoy.held.store(turn + 1, Ordering::Release);
        order::burn(rounds_count);
        convoy.run_delay_ns.store(books.run_delay_ns() - before_ns, Ordering::Release);
        convoy.hog_ran_ns.store(hog_ran_ns() - hog_before_ns, Ordering::Release);
        order::unlock(&convoy.word);
    }
}

/// Ends an `ioctl` of another thread, a while after it was asked to: its `getppid` is a notification.
fn answer(request: &AtomicU32, listener: &mpsc::Sender<i32>) {
    listener.send(listen()).expect("the thread that makes the calls");
    for turn in 0.. {
        while request.load(Ordering::Acquire) == turn {
            order::futex_wait(request, turn);
        }
        sleep_ns(IOCTL_NS);
        // SAFETY: no preconditions.
        unsafe { libc::getppid() };
    }
}

/// Puts a filter on the calling thread that holds its `getppid` until it is answered.
fn listen() -> i32 {
    // struct seccomp_data begins with the number of the system call.
    let code = |class: u32, mode: u32, rest: u32| (class | mode | rest) as u16;
    let mut program = [
        libc::sock_filter { code: code(libc::BPF_LD, libc::BPF_W, libc::BPF_ABS), jt: 0, jf: 0, k: 0 },
        libc::sock_filter {
            code: code(libc::BPF_JMP, libc::BPF_JEQ, libc::BPF_K),
            jt: 0,
            jf: 1,
            k: libc::SYS_getppid as u32,
        },
        libc::sock_filter {
            code: code(libc::BPF_RET, libc::BPF_K, 0),
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_USER_NOTIF,
        },
        libc::sock_filter {
            code: code(libc::BPF_RET, libc::BPF_K, 0),
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        },
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a valid program; the thread is the only one that it concerns.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let fd = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        );
        assert!(fd >= 0, "seccomp: {}", std::io::Error::last_os_error());
        fd as i32
    }
}
