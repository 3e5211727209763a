//! Where the record has holes, so that what is not measured there proves nothing.

use std::collections::{HashMap, HashSet};

use trace_schema::Run;

use super::schedule::{Schedule, ThreadKey};

/// Holes of some runs.
#[derive(Debug, Default)]
pub struct Doubt {
    /// By run: times in which events were lost, in order and apart.
    lost: HashMap<u32, Vec<(i64, i64)>>,
    /// Run and process: of these, the scheduler's doings are on record.
    watched: HashSet<(u32, u32)>,
}

/// Sorted, and what overlaps or touches made one.
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

impl Doubt {
    /// Of these runs, by name.
    pub fn new(runs: &[(String, Run)], schedule: &Schedule) -> Self {
        let of_run = |run: &Run| {
            let lost = run.lost.iter().filter(|lost| lost.count > 0);
            apart(lost.map(|lost| (lost.from_ns, lost.to_ns)).collect())
        };
        let known = runs.iter().filter_map(|(name, run)| Some((schedule.names.known(name)?, of_run(run))));
        let watched = schedule.threads().map(|(run, pid, _)| (run, pid)).collect();
        Self { lost: known.collect(), watched }
    }

    /// Whether there is one at `[ts, end)` of a thread.
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
        let doubt = Doubt { lost: HashMap::from([(0, lost)]), watched: HashSet::from([(0, 1)]) };
        let holes = [
            (0, 10, false),
            (0, 11, true),
            (39, 40, true),
            (40, 50, false),
            (45, 95, true),
            (100, 200, false),
        ];
        for (ts, end, expected) in holes {
            assert_eq!(doubt.is_at((0, 1, 1), ts, end), expected, "{ts}..{end}");
        }
        assert!(doubt.is_at((0, 2, 2), 0, 10), "nothing of the scheduler is on record");
    }
}
