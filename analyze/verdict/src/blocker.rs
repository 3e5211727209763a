//! What a sleeping thread waited for, determined from its system call (x86-64) and the kind of its sleep.
//!
//! | sleep | system call | class |
//! |---|---|---|
//! | any | ioctl | `ioctl`: in the CUDA libraries, the driver in the kernel |
//! | any | futex, futex_wait, futex_waitv | `futex`: a lock or condition that another thread holds |
//! | uninterruptible | none | `page-fault`: the kernel makes a page present |
//! | any | nanosleep, clock_nanosleep | `sleep`: the thread asked to sleep |
//! | any | poll, select, epoll and their variants | `poll`: an event |
//! | uninterruptible | reads, writes, syncs, opens of files | `disk` |
//! | else | | `other` |

use serde::Serialize;

/// A class of blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocker {
    /// The thread waited in `ioctl`; in the CUDA libraries, for the driver in the kernel.
    Ioctl,
    /// The thread waited for a lock that another thread holds, or for a condition variable.
    Futex,
    /// The thread waited for a page to become present.
    PageFault,
    /// The thread waited for a read, write, open or sync of a file.
    Disk,
    /// The thread asked to sleep for a time.
    Sleep,
    /// The thread waited for an event on file descriptors.
    Poll,
    /// The thread slept in another system call, or in none that is in the recording.
    Other,
}

/// Number of classes.
pub const COUNT: usize = Blocker::ALL.len();

impl Blocker {
    /// Every class, in the order of columns.
    pub const ALL: [Self; 7] =
        [Self::Ioctl, Self::Futex, Self::PageFault, Self::Disk, Self::Sleep, Self::Poll, Self::Other];

    /// Returns the name that users read after `blocked:`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Futex => "futex",
            Self::PageFault => "page-fault",
            Self::Disk => "disk",
            Self::Sleep => "sleep",
            Self::Poll => "poll",
            Self::Other => "other",
        }
    }

    /// Classifies one interval of sleep by whether it was uninterruptible, and by its system call number.
    pub fn of(uninterruptible: bool, syscall: Option<i64>) -> Self {
        match (syscall.and_then(syscall_name), uninterruptible) {
            (Some("ioctl"), _) => Self::Ioctl,
            (Some("futex" | "futex_wait" | "futex_waitv"), _) => Self::Futex,
            (Some("nanosleep" | "clock_nanosleep"), _) => Self::Sleep,
            (
                Some(
                    "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2",
                ),
                _,
            ) => Self::Poll,
            (Some(name), true) if FILES.contains(&name) => Self::Disk,
            (None, true) if syscall.is_none() => Self::PageFault,
            _ => Self::Other,
        }
    }
}

/// System calls in which an uninterruptible sleep is a wait for a disk.
const FILES: [&str; 20] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "open",
    "openat",
    "openat2",
    "sendfile",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "fallocate",
    "io_uring_enter",
    "io_getevents",
];

/// Returns the name of a system call number on x86-64. Only calls in which threads are seen to wait are
/// known.
pub fn syscall_name(number: i64) -> Option<&'static str> {
    Some(match number {
        0 => "read",
        1 => "write",
        2 => "open",
        3 => "close",
        7 => "poll",
        9 => "mmap",
        10 => "mprotect",
        11 => "munmap",
        12 => "brk",
        16 => "ioctl",
        17 => "pread64",
        18 => "pwrite64",
        19 => "readv",
        20 => "writev",
        23 => "select",
        24 => "sched_yield",
        25 => "mremap",
        26 => "msync",
        28 => "madvise",
        34 => "pause",
        35 => "nanosleep",
        40 => "sendfile",
        42 => "connect",
        43 => "accept",
        44 => "sendto",
        45 => "recvfrom",
        46 => "sendmsg",
        47 => "recvmsg",
        56 => "clone",
        61 => "wait4",
        74 => "fsync",
        75 => "fdatasync",
        128 => "rt_sigtimedwait",
        130 => "rt_sigsuspend",
        202 => "futex",
        208 => "io_getevents",
        230 => "clock_nanosleep",
        232 => "epoll_wait",
        247 => "waitid",
        257 => "openat",
        270 => "pselect6",
        271 => "ppoll",
        277 => "sync_file_range",
        281 => "epoll_pwait",
        285 => "fallocate",
        288 => "accept4",
        295 => "preadv",
        296 => "pwritev",
        299 => "recvmmsg",
        327 => "preadv2",
        328 => "pwritev2",
        426 => "io_uring_enter",
        435 => "clone3",
        437 => "openat2",
        441 => "epoll_pwait2",
        449 => "futex_waitv",
        455 => "futex_wait",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_call_tells() {
        assert_eq!(Blocker::of(false, Some(16)), Blocker::Ioctl);
        assert_eq!(Blocker::of(true, Some(16)), Blocker::Ioctl);
        assert_eq!(Blocker::of(false, Some(202)), Blocker::Futex);
        assert_eq!(Blocker::of(false, Some(230)), Blocker::Sleep);
        assert_eq!(Blocker::of(true, None), Blocker::PageFault);
        assert_eq!(Blocker::of(true, Some(17)), Blocker::Disk);
        assert_eq!(Blocker::of(false, Some(0)), Blocker::Other, "a pipe");
        assert_eq!(Blocker::of(false, None), Blocker::Other);
        assert_eq!(Blocker::of(true, Some(9999)), Blocker::Other);
    }

    #[test]
    fn files_have_names() {
        for name in FILES {
            assert!((0..512).any(|number| syscall_name(number) == Some(name)), "{name}");
        }
    }
}
