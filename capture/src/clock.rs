//! CLOCK_MONOTONIC, which the kernel stamps events with, against the wall.

use trace_schema::Clock;

fn read(id: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "the standard library shows neither clock as a number")]
    // SAFETY: `time` is a valid place for the result; both clocks exist on every Linux.
    unsafe {
        libc::clock_gettime(id, &raw mut time);
    }
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Now, on the clock of every event.
pub(crate) fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What to add to a monotonic time to get Unix time, now.
pub(crate) fn wall_offset_ns() -> i64 {
    tightest().1
}

/// Width and middle of the tightest of several readings of the wall between two of the monotonic clock.
fn tightest() -> (i64, i64) {
    let reading = |_| {
        let before = monotonic_ns();
        let wall = read(libc::CLOCK_REALTIME);
        let after = monotonic_ns();
        (after - before, wall - before - (after - before) / 2)
    };
    (0..16).map(reading).min().unwrap_or_default()
}

/// A clock that starts now; half the width of the tightest reading bounds its error.
pub(crate) fn start() -> Clock {
    let (width, offset) = tightest();
    Clock {
        start_ns: monotonic_ns(),
        end_ns: 0,
        wall_offset_ns: offset,
        wall_error_ns: width / 2 + 1,
        wall_step_ns: 0,
    }
}
