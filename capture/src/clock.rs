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

/// A clock that starts now. The offset is the tightest of several readings of the wall between two
/// readings of the monotonic clock; half their distance bounds its error.
pub(crate) fn start() -> Clock {
    let tightest = (0..16)
        .map(|_| {
            let before = monotonic_ns();
            let wall = read(libc::CLOCK_REALTIME);
            let after = monotonic_ns();
            (after - before, wall - before - (after - before) / 2)
        })
        .min();
    let (width, offset) = tightest.unwrap_or_default();
    Clock { start_ns: monotonic_ns(), end_ns: 0, wall_offset_ns: offset, wall_error_ns: width / 2 + 1 }
}
