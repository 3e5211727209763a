//! Coverage of a recording: the loss intervals of each run, and the processes whose scheduling was recorded.
//! Where coverage is missing, the absence of a measurement proves nothing.

use std::collections::{HashMap, HashSet};

use trace_schema::Run;

use super::schedule::{Schedule, ThreadKey};

/// The loss intervals and the recorded processes of some runs.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Loss intervals of each run, `[from, to)` in nanoseconds, sorted and disjoint.
    lost: HashMap<u32, Vec<(i64, i64)>>,
    /// Run and process of every process whose scheduler events are in the recording.
    watched: HashSet<(u32, u32)>,
}

/// Sorts intervals and merges those that overlap or touch.
fn apart(mut intervals: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    intervals.sort_unstable();
    let mut found: Vec<(i64, i64)> = Vec::new();
    for (from, to) in intervals {
        match found.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => found.push((from, to)),
        }
    }
    found
}

impl Coverage {
    /// Collects the coverage of `runs`, which are given by name, from their metadata and from `schedule`.
    pub fn new(runs: &[(String, Run)], schedule: &Schedule) -> Self {
        let of_run = |run: &Run| {
            let lost = run.lost.iter().filter(|lost| lost.count > 0);
            apart(lost.map(|lost| (lost.from_ns, lost.to_ns)).collect())
        };
        let known = runs.iter().filter_map(|(name, run)| Some((schedule.names.known(name)?, of_run(run))));
        let watched = schedule.threads().map(|(run, pid, _)| (run, pid)).collect();
        Self { lost: known.collect(), watched }
    }

    /// Returns whether `[ts, end)` of a thread, in nanoseconds, overlaps a loss interval of its run, or the
    /// scheduler events of the thread's process were not recorded.
    pub fn is_at(&self, (run, pid, _): ThreadKey, ts: i64, end: i64) -> bool {
        let lost = self.lost.get(&run).map_or(&[][..], Vec::as_slice);
        let next = lost.partition_point(|(_, to)| *to <= ts);
        !self.watched.contains(&(run, pid)) || lost.get(next).is_some_and(|(from, _)| *from < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_found_wherever_they_lie() {
        let lost = apart(vec![(50, 60), (10, 30), (20, 25), (30, 40), (90, 100)]);
        assert_eq!(lost, [(10, 40), (50, 60), (90, 100)]);
        let coverage = Coverage { lost: HashMap::from([(0, lost)]), watched: HashSet::from([(0, 1)]) };
        let holes = [
            (0, 10, false),
            (0, 11, true),
            (39, 40, true),
            (40, 50, false),
            (45, 95, true),
            (100, 200, false),
        ];
        for (ts, end, expected) in holes {
            assert_eq!(coverage.is_at((0, 1, 1), ts, end), expected, "{ts}..{end}");
        }
        assert!(coverage.is_at((0, 2, 2), 0, 10), "nothing of the scheduler is on record");
    }
}
