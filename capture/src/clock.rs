//! CLOCK_MONOTONIC, the clock of every event, and its offset to the wall clock.

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

/// The current time on CLOCK_MONOTONIC, the clock of every event, in nanoseconds.
pub(crate) fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Offset to add to a monotonic time to get Unix time, measured now, in nanoseconds.
pub(crate) fn wall_offset_ns() -> i64 {
    tightest().1
}

/// Width and offset, in nanoseconds, of the tightest of several readings of the wall clock between two of the
/// monotonic clock.
fn tightest() -> (i64, i64) {
    let reading = |_| {
        let before = monotonic_ns();
        let wall = read(libc::CLOCK_REALTIME);
        let after = monotonic_ns();
        (after - before, wall - before - (after - before) / 2)
    };
    (0..16).map(reading).min().unwrap_or_default()
}

/// Whether NTP or PTP keeps the wall clock on UTC, and the upper bound of its error in nanoseconds. `None`: the
/// kernel does not say.
fn kept() -> Option<(bool, i64)> {
    #[expect(unsafe_code, reason = "the standard library does not have it")]
    // SAFETY: all fields are numbers; with `modes` zero nothing is set, which needs no privilege.
    let (state, time) = unsafe {
        let mut time: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut time), time)
    };
    let is_kept = state != libc::TIME_ERROR && time.status & libc::STA_UNSYNC == 0;
    (state >= 0).then(|| (is_kept, time.maxerror.saturating_mul(1_000)))
}

/// Notes how well the wall clock is kept on UTC now; `clock` keeps the worst of all notes.
pub(crate) fn note_kept(clock: &mut Clock) {
    let now = kept();
    let was_kept = clock.is_synchronised.unwrap_or(true);
    clock.is_synchronised = now.map(|(is_kept, _)| is_kept && was_kept);
    clock.utc_error_ns = now
        .filter(|_| clock.is_synchronised == Some(true))
        .map(|(_, error_ns)| error_ns.max(clock.utc_error_ns.unwrap_or_default()));
}

/// The clock of a recording that starts now; half the width of the tightest reading bounds its error.
pub(crate) fn start() -> Clock {
    let (width, offset) = tightest();
    let mut clock = Clock {
        start_ns: monotonic_ns(),
        end_ns: 0,
        wall_offset_ns: offset,
        wall_error_ns: width / 2 + 1,
        ..Clock::default()
    };
    note_kept(&mut clock);
    clock
}
