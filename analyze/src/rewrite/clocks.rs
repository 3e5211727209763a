//! What is known of the relation of two runs' clocks.

use analyze_run::run_file::RunFile;
use trace_schema::{Clock, Nanos};

/// Allowed difference between wall-clock offsets within one boot, in ns, beyond their known error: the wall
/// clock is corrected in steps.
const WALL_SLACK_NS: i64 = 1_000_000_000;

/// Returns how far apart two clocks are in Unix time, in ns, if they are too far apart to be of one boot.
pub(super) fn boots_apart_ns(first: &Clock, second: &Clock) -> Option<i64> {
    let known = first.wall_error_ns.saturating_add(second.wall_error_ns);
    let moved = first.wall_step_ns.saturating_abs().saturating_add(second.wall_step_ns.saturating_abs());
    let apart = first.wall_offset_ns.saturating_sub(second.wall_offset_ns).saturating_abs();
    (apart > known.saturating_add(moved).saturating_add(WALL_SLACK_NS)).then_some(apart)
}

/// Returns why it is not known that the times of two runs are on one clock of one boot of one host; `None` if it is known.
pub(super) fn why_not_one(first: &RunFile, second: &RunFile) -> Option<String> {
    for file in [first, second] {
        if file.run.clock_base().is_none() {
            return Some(format!("{} does not say which clock its times are on", file.name));
        }
        if file.run.host.name.is_empty() {
            return Some(format!("{} does not say of which host it is", file.name));
        }
        if file.run.clock.wall_offset().is_none() {
            return Some(format!(
                "{} does not relate its clock to Unix time: it may be of another boot",
                file.name
            ));
        }
    }
    let (base, other) = (first.run.clock_base()?, second.run.clock_base()?);
    if base != other {
        return Some(format!("{} is on {base}, {} on {other}", first.name, second.name));
    }
    let apart = boots_apart_ns(&first.run.clock, &second.run.clock)?;
    Some(format!("they are of different boots: their clocks are {} apart", Nanos(apart)))
}
