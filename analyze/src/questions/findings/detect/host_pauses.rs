//! Stretches of host code between two calls that took far longer than usual: what a garbage collector, saving or logging does.
//!
//! The account tells them from the code of each step by their length (`run_time`, stage `host-pause`). What the code was is not
//! on record.

use trace_schema::{Counted, Nanos};

use super::host_bound::cost;
use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
    },
    where_time_went::Slice,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[("host-pauses", "Host code kept the thread from launching for far longer than usual, again and again.")],
    detect,
};

/// Least number of pauses: fewer are those of a program that warms up, saves or ends.
const LEAST_PAUSES: i64 = 10;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().filter_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Option<Finding> {
    let pid = ledger.process.pid;
    let is_pause = |slice: &Slice| slice.part == "host" && slice.stage.as_deref() == Some("host-pause");
    let look = ledger.look(is_pause);
    let (pauses, time_ns) = (look.intervals_count(), look.time_ns());
    if pauses < LEAST_PAUSES {
        return None;
    }
    let longest_ns = look.slices().map(|(slice, _)| slice.longest_ns).max().unwrap_or(0);
    let finding = Finding::new(
        "host-pauses",
        Rank::Cost,
        Some(pid),
        format!(
            "Host code, such as a garbage collection, saving or logging, kept a thread that launches from it in {} of {} on average.",
            Counted(pauses, "pause"),
            Nanos(time_ns / pauses)
        ),
    )
    .shown_by(
        format!("{} in these pauses, the longest of {}", Nanos(time_ns), Nanos(longest_ns)),
        ledger.sql("part = 'host' AND stage = 'host-pause'"),
        "run-time",
    )
    .to_do(
        "See what runs in them (py-spy record --gil). If it is Python's garbage collector, as gc.callbacks tells, call gc.freeze() \
         once the model is built, or gc.disable() and gc.collect() where it does not matter.",
    );
    cost(finding, ledger, is_pause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::ProcessTime;

    fn process(pauses: i64) -> ProcessTime {
        let slice = |stage: &str, time_ns, intervals_count| Slice {
            part: "host".to_owned(),
            stage: Some(stage.to_owned()),
            time_ns,
            intervals_count,
            longest_ns: time_ns / 2,
            ..Slice::default()
        };
        let slices = vec![slice("running", 500, 1000), slice("host-pause", 300, pauses)];
        ProcessTime { pid: 7, tid: 7, wall_ns: 1000, start_up_ns: Some(0), slices, ..ProcessTime::default() }
    }

    #[test]
    fn pauses_that_recur_are_counted_and_the_code_of_each_step_is_left() {
        let of = process(10);
        let mut ledger = Ledger::new(&of);
        let found = of_process(&mut ledger).expect("a finding");
        assert_eq!((found.cost_range_ns, ledger.left_ns()), (Some((0, 300)), 500));
        assert!(found.title.contains("in 10 pauses of 30 ns on average"), "{}", found.title);
        assert!(of_process(&mut Ledger::new(&process(9))).is_none());
    }
}
