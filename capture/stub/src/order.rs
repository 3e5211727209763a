//! Orders to stub calls: a known amount of computing, and at most one fault whose cause is known.
//!
//! ```text
//! workload   set up the fault, Order { work, fault } ──stub_next(&order)──► libcuda.so
//! call       ├─ burn(work) ─┤├─ fault ─┤      took_ns: how long the fault lasted, by the stub's own clock
//! ```
//! The library and the workload live in one process, so an order points at what belongs to the workload: locks,
//! files, mappings. Computing is counted in rounds, not in time: a call that loses the CPU gets longer by that.

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::now_ns;

/// Page size of x86-64.
pub const PAGE_BYTES: usize = 4096;
/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`.
const NOTIF_RECV: u64 = 0xc050_2100;
const NOTIF_SEND: u64 = 0xc018_2101;

/// A fault that a call executes besides its computing.
#[repr(C, u32)]
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The call has no fault.
    None,
    /// The call sleeps (`clock_nanosleep`).
    Sleep {
        /// Duration of the sleep, in nanoseconds.
        ns: u64,
    },
    /// The call acquires and releases a lock that another thread may hold (`futex`).
    Lock {
        /// State of the lock: 0 free, 1 held, 2 held and waited for.
        word: *const AtomicU32,
    },
    /// The call sleeps in an `ioctl` until another thread ends it, as calls of a GPU driver do: it receives
    /// the next notification of a seccomp filter that lets only that other thread's `getppid` wait for an answer.
    Ioctl {
        /// File descriptor of the filter's listener.
        fd: i32,
    },
    /// The call reads a file past the page cache.
    Read {
        /// File descriptor, opened with `O_DIRECT`.
        fd: i32,
        /// Buffer, aligned to pages.
        buffer: *mut c_void,
        /// Size of the buffer and of one read, in bytes.
        step_bytes: usize,
        /// Offset of the first read in the file, in bytes.
        offset_bytes: i64,
        /// Duration of the fault, in nanoseconds.
        ns: u64,
    },
    /// The call touches pages of a file that are not in the page cache.
    Touch {
        /// Address of the first page.
        base: *const u8,
        /// Distance from one page to the next, in bytes.
        step_bytes: usize,
        /// Number of pages.
        limit_count: usize,
        /// Duration of the fault, in nanoseconds.
        ns: u64,
    },
}

/// An order for one call.
#[repr(C)]
#[derive(Debug)]
pub struct Order {
    /// Rounds of [`burn`] that the call computes.
    pub work_count: u64,
    /// Fault after the computing.
    pub fault: Fault,
    /// Duration of the fault in nanoseconds, filled in by the call.
    pub took_ns: u64,
}

/// Computes for a number of rounds.
#[inline(never)]
pub fn burn(rounds_count: u64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..rounds_count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    std::hint::black_box(state);
}

/// Rounds of [`burn`] in a millisecond of an undisturbed CPU: the median of many short attempts.
pub fn rounds_per_ms() -> u64 {
    const ROUNDS: u64 = 20_000;
    let mut spans_ns = [0; 101];
    for span_ns in &mut spans_ns {
        let start_ns = now_ns();
        burn(ROUNDS);
        *span_ns = now_ns() - start_ns;
    }
    spans_ns.sort_unstable();
    ROUNDS * 1_000_000 / spans_ns[spans_ns.len() / 2].max(1)
}

/// Sleeps until the word changes from `seen`, or is woken for no reason.
pub fn futex_wait(word: &AtomicU32, seen: u32) {
    // SAFETY: the word outlives the call; no time limit.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, 0_usize) };
}

/// Wakes the threads that wait for the word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Acquires a lock of three states: 0 free, 1 held, 2 held and waited for.
pub fn lock(word: &AtomicU32) {
    if word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return;
    }
    while word.swap(2, Ordering::Acquire) != 0 {
        futex_wait(word, 2);
    }
}

/// Releases a lock that [`lock`] acquired.
pub fn unlock(word: &AtomicU32) {
    if word.swap(0, Ordering::Release) == 2 {
        futex_wake(word);
    }
}

impl Order {
    /// An order to compute for `rounds_count` rounds without a fault.
    pub fn work(rounds_count: u64) -> Self {
        Self { work_count: rounds_count, fault: Fault::None, took_ns: 0 }
    }

    /// Executes the order, on the thread that makes the call.
    pub fn execute(&mut self) {
        burn(self.work_count);
        if matches!(self.fault, Fault::None) {
            return;
        }
        let start_ns = now_ns();
        // SAFETY: what the order points at belongs to the workload, which waits for this call.
        unsafe { self.fail(start_ns) };
        self.took_ns = now_ns() - start_ns;
    }

    unsafe fn fail(&self, start_ns: u64) {
        match self.fault {
            Fault::None => {}
            Fault::Sleep { ns } => crate::sleep_ns(ns),
            Fault::Lock { word } => {
                // SAFETY: the caller's promise.
                let word = unsafe { &*word };
                lock(word);
                unlock(word);
            }
            Fault::Ioctl { fd } => {
                // SAFETY: plain data, for which zeros are valid.
                let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
                // SAFETY: valid places of the sizes that the request codes tell.
                unsafe {
                    if libc::ioctl(fd, NOTIF_RECV as _, &raw mut notice) == 0 {
                        let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
                        answer.id = notice.id;
                        libc::ioctl(fd, NOTIF_SEND as _, &raw mut answer);
                    }
                }
            }
            Fault::Read { fd, buffer, step_bytes, mut offset_bytes, ns } => {
                // SAFETY: the caller's promise.
                while unsafe { libc::pread(fd, buffer, step_bytes, offset_bytes) } > 0
                    && now_ns() - start_ns < ns
                {
                    offset_bytes += step_bytes as i64;
                }
            }
            Fault::Touch { base, step_bytes, limit_count, ns } => {
                for page in 0..limit_count {
                    // SAFETY: within the mapping, by the caller's promise.
                    std::hint::black_box(unsafe { base.add(page * step_bytes).read_volatile() });
                    if now_ns() - start_ns >= ns {
                        break;
                    }
                }
            }
        }
    }
}

/// Where a driver library keeps the order for a thread's next call.
#[derive(Debug)]
pub struct Slot(std::cell::Cell<*mut Order>);

impl Slot {
    /// A place without an order.
    pub const fn empty() -> Self {
        Self(std::cell::Cell::new(null_mut()))
    }

    /// Stores an order, which must live until it has been executed.
    pub fn put(&self, order: *mut Order) {
        self.0.set(order);
    }

    /// Whether an order is stored.
    pub fn is_full(&self) -> bool {
        !self.0.get().is_null()
    }

    /// Executes the stored order, once.
    pub fn execute(&self) {
        // SAFETY: `put` promises that it lives.
        if let Some(order) = unsafe { self.0.replace(null_mut()).as_mut() } {
            order.execute();
        }
    }
}
