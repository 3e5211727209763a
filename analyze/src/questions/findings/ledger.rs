//! The wall time of a process as a ledger: each nanosecond can be claimed by one finding, so that costs do not overlap.

use std::collections::{BTreeMap, BTreeSet};

use crate::questions::where_time_went::{ProcessTime, Slice};

/// The wall time of one process, and what of it no finding has claimed.
#[derive(Debug)]
pub struct Ledger<'a> {
    /// The account of the process.
    pub process: &'a ProcessTime,
    /// Time in nanoseconds that is left of each slice.
    left_ns: Vec<i64>,
}

/// What a finding claimed: slices, with the time in nanoseconds that was left of each.
#[derive(Debug, Default)]
pub struct Claim<'a>(Vec<(&'a Slice, i64)>);

impl<'a> Claim<'a> {
    /// Returns the time that was claimed, in nanoseconds.
    pub fn time_ns(&self) -> i64 {
        self.0.iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }

    /// Returns the number of intervals.
    pub fn intervals_count(&self) -> i64 {
        self.0.iter().fold(0, |sum, (slice, _)| sum.saturating_add(slice.intervals_count))
    }

    /// Returns the number of sleeps of the driving thread.
    pub fn waits_count(&self) -> i64 {
        self.0.iter().fold(0, |sum, (slice, _)| sum.saturating_add(slice.waits_count))
    }

    /// Returns the slices with the time in nanoseconds that was claimed of each.
    pub fn slices(&self) -> impl Iterator<Item = (&'a Slice, i64)> {
        self.0.iter().copied()
    }

    /// Names the threads whose time it is, largest first, with the share of each name: `loader × 4 (90.0 %), python (10.0 %)`.
    pub fn threads(&self, most: usize) -> String {
        let mut names: BTreeMap<&str, (BTreeSet<i64>, i64)> = BTreeMap::new();
        for (slice, ns) in self.slices() {
            let (threads, sum) = names.entry(slice.thread_comm.as_deref().unwrap_or("unnamed")).or_default();
            threads.insert(slice.thread_tid);
            *sum = sum.saturating_add(ns);
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(_, (_, ns))| std::cmp::Reverse(*ns));
        let whole_ns = self.time_ns().max(1) as f64;
        let name = |(name, (threads, ns)): (&str, (BTreeSet<i64>, i64))| {
            let times = if threads.len() > 1 { format!(" × {}", threads.len()) } else { String::new() };
            format!("{name}{times} ({:.1} %)", 100.0 * ns as f64 / whole_ns)
        };
        names.into_iter().take(most).map(name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the time in nanoseconds by a name of each slice, largest first; slices without a name are left out.
    pub fn by(&self, name: impl Fn(&'a Slice) -> Option<&'a str>) -> Vec<(&'a str, i64)> {
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for (slice, ns) in &self.0 {
            if let Some(name) = name(slice) {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        sums
    }
}

impl<'a> Ledger<'a> {
    /// Opens the ledger of a process, of which nothing is claimed.
    pub fn new(process: &'a ProcessTime) -> Self {
        Self { process, left_ns: process.slices.iter().map(|slice| slice.time_ns).collect() }
    }

    /// Returns the query of the rows of the account that meet a condition, as evidence.
    pub fn sql(&self, condition: &str) -> String {
        format!(
            "SELECT * FROM run_time WHERE pid = {} AND {condition} ORDER BY time_ns DESC",
            self.process.pid
        )
    }

    /// Returns what is left of some slices without claiming it.
    pub fn look(&self, is_wanted: impl Fn(&Slice) -> bool) -> Claim<'a> {
        let slices = self.process.slices.iter().zip(&self.left_ns);
        let wanted = slices.filter(|(slice, left_ns)| **left_ns > 0 && is_wanted(slice));
        Claim(wanted.map(|(slice, left_ns)| (slice, *left_ns)).collect())
    }

    /// Claims what is left of some slices.
    pub fn claim(&mut self, is_wanted: impl Fn(&Slice) -> bool) -> Claim<'a> {
        self.claim_at_most(i64::MAX, is_wanted)
    }

    /// Claims what is left of some slices, largest first, up to a time in nanoseconds.
    pub fn claim_at_most(&mut self, most_ns: i64, is_wanted: impl Fn(&Slice) -> bool) -> Claim<'a> {
        let (mut open_ns, mut claimed) = (most_ns, Vec::new());
        for (slice, left_ns) in self.process.slices.iter().zip(&mut self.left_ns) {
            let taken_ns = (*left_ns).min(open_ns);
            if taken_ns > 0 && is_wanted(slice) {
                *left_ns -= taken_ns;
                open_ns -= taken_ns;
                claimed.push((slice, taken_ns));
            }
        }
        Claim(claimed)
    }

    /// Returns the time that nothing has claimed, in nanoseconds.
    pub fn left_ns(&self) -> i64 {
        self.left_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> ProcessTime {
        let slice = |part: &str, task: &str, time_ns| Slice {
            part: part.to_owned(),
            task_comm: Some(task.to_owned()),
            time_ns,
            intervals_count: 2,
            ..Slice::default()
        };
        ProcessTime {
            pid: 1,
            tid: 1,
            wall_ns: 100,
            slices: vec![
                slice("waiting_for_cpu", "b", 40),
                slice("waiting_for_cpu", "a", 30),
                slice("host", "a", 30),
            ],
            ..ProcessTime::default()
        }
    }

    #[test]
    fn no_nanosecond_is_claimed_twice() {
        let process = process();
        let mut ledger = Ledger::new(&process);
        let waiting = |slice: &Slice| slice.part == "waiting_for_cpu";
        assert_eq!(ledger.look(waiting).time_ns(), 70);
        let first = ledger.claim_at_most(50, waiting);
        assert_eq!(first.by(|slice| slice.task_comm.as_deref()), [("b", 40), ("a", 10)]);
        assert_eq!((first.time_ns(), first.intervals_count()), (50, 4));
        let second = ledger.claim(waiting);
        assert_eq!(second.by(|slice| slice.task_comm.as_deref()), [("a", 20)]);
        assert_eq!(ledger.claim(waiting).time_ns(), 0);
        assert_eq!(ledger.left_ns(), 30);
        assert_eq!(ledger.claim(|_| true).time_ns(), 30);
        assert_eq!(ledger.left_ns(), 0);
    }
}
