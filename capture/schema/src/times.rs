//! What is wrong with the times of a run, if anything is.

use crate::{Run, TIME_LIMIT_NS};

/// Describes a time beyond the bound; `None` if it lies within.
pub fn time_fault(what: &str, time_ns: i64) -> Option<String> {
    (time_ns.unsigned_abs() > TIME_LIMIT_NS.unsigned_abs())
        .then(|| format!("{what}: {time_ns} ns is no time: the bound is 2^61 ns"))
}

/// Describes what is wrong with the times in a run's metadata; `None` if nothing is.
pub fn metadata_fault(run: &Run) -> Option<String> {
    let clock = &run.clock;
    if clock.end_ns != 0 && clock.end_ns < clock.start_ns {
        return Some(format!("clock: the end {} ns is before the start {} ns", clock.end_ns, clock.start_ns));
    }
    let of_clock = [
        ("clock.start_ns", Some(clock.start_ns)),
        ("clock.end_ns", Some(clock.end_ns)),
        ("clock.wall_offset_ns", Some(clock.wall_offset_ns)),
        ("clock.wall_error_ns", Some(clock.wall_error_ns)),
        ("clock.wall_step_ns", Some(clock.wall_step_ns)),
        ("clock.utc_error_ns", clock.utc_error_ns),
        ("clock.resolution_ns", clock.resolution_ns),
    ];
    let lost = run.lost.iter().flat_map(|lost| [("lost.from_ns", lost.from_ns), ("lost.to_ns", lost.to_ns)]);
    let stored = run
        .stored
        .iter()
        .flat_map(|stored| [("stored.from_ns", stored.from_ns), ("stored.to_ns", stored.to_ns)]);
    let aligned = run.alignments.iter().flat_map(|aligned| {
        [("alignments.origin_ns", aligned.origin_ns), ("alignments.offset_ns", aligned.offset_ns)]
    });
    let scheduled = run.schedules.iter().flat_map(|schedule| {
        [
            ("schedules.from_ns", schedule.from_ns.unwrap_or_default()),
            ("schedules.to_ns", schedule.to_ns.unwrap_or_default()),
            ("schedules.offset_ns", schedule.offset_ns),
            ("schedules.offset_error_ns", schedule.offset_error_ns),
        ]
    });
    let times = of_clock.into_iter().map(|(what, time)| (what, time.unwrap_or_default()));
    let mut times = times.chain(lost).chain(stored).chain(aligned).chain(scheduled);
    times.find_map(|(what, time)| time_fault(what, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_checked() {
        let mut run = Run::default();
        assert_eq!(metadata_fault(&run), None);
        run.clock.start_ns = 5;
        assert_eq!(metadata_fault(&run), None, "a recording that was interrupted has no end");
        run.clock.end_ns = 4;
        assert_eq!(metadata_fault(&run).as_deref(), Some("clock: the end 4 ns is before the start 5 ns"));
        run.clock.end_ns = i64::MAX;
        assert!(metadata_fault(&run).expect("a fault").starts_with("clock.end_ns: "));
    }
}
