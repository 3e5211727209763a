//! When a GPU had work, as an imported profile has it.

use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
};
use futures::TryStreamExt;

/// The work of all processes in the order of time, which is that of the file: nothing is sorted in memory.
const WORK: &str = "SELECT run, CAST(pid AS BIGINT) AS pid, ts, ts + dur AS until FROM events \
     WHERE kind = 'device' AND op IN ('kernel', 'memcpy', 'memset') AND dur IS NOT NULL ORDER BY run, ts";

/// The times in which GPUs had work of one process.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// Disjoint spans in order, by start and end in nanoseconds, and for each the time busy before it.
    spans: Vec<(i64, i64, i64)>,
}

impl Busy {
    /// Adds work over `[ts, end)`, in nanoseconds, which begins no earlier than what was added before.
    fn push(&mut self, ts: i64, end: i64) {
        match self.spans.last_mut() {
            Some((_, last, _)) if *last >= ts => *last = end.max(*last),
            Some((start, last, before)) => {
                let before = *before + (*last - *start);
                self.spans.push((ts, end.max(ts), before));
            }
            None => self.spans.push((ts, end.max(ts), 0)),
        }
    }

    /// Returns the time busy before `ts`.
    fn before(&self, ts: i64) -> i64 {
        let index = self.spans.partition_point(|(start, ..)| *start < ts);
        let Some((start, end, before)) = index.checked_sub(1).map(|index| self.spans[index]) else {
            return 0;
        };
        before + (end.min(ts) - start)
    }

    /// Returns how much of `[from, to)` GPUs had work, and how much they had none, in nanoseconds. Nothing is known of
    /// the time before the first work on record and after the last.
    pub(super) fn split(&self, from: i64, to: i64) -> (i64, i64) {
        let (Some((first, ..)), Some((_, last, _))) = (self.spans.first(), self.spans.last()) else {
            return (0, 0);
        };
        let (from, to) = (from.max(*first), to.min(*last));
        if from >= to {
            return (0, 0);
        }
        let busy = self.before(to) - self.before(from);
        (busy, to - from - busy)
    }
}

/// Reads when GPUs had work, by the name of the run and the process; process 0 stands for all of a run whose source
/// does not say whose work it is.
///
/// # Errors
/// Returns an error if the events cannot be read.
pub(super) async fn read(events: &dyn Events) -> Result<HashMap<(String, u32), Busy>, AnalyzeError> {
    let mut found: HashMap<(String, u32), Busy> = HashMap::default();
    let mut batches = events.select(WORK);
    while let Some(batch) = batches.try_next().await? {
        let (runs, pids) = (strings(&batch, "run")?, integers(&batch, "pid")?);
        let (starts, ends) = (integers(&batch, "ts")?, integers(&batch, "until")?);
        let mut row = 0;
        while row < batch.num_rows() {
            let (run, pid) = (runs.value(row), pids.value(row));
            let busy = found.entry((run.to_owned(), pid as u32)).or_default();
            while row < batch.num_rows() && runs.value(row) == run && pids.value(row) == pid {
                busy.push(starts.value(row), ends.value(row));
                row += 1;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_idle_time_is_exact_and_ends_with_the_record() {
        let mut busy = Busy::default();
        for (ts, end) in [(10, 20), (15, 18), (20, 25), (40, 50), (45, 47), (60, 60), (70, 80)] {
            busy.push(ts, end);
        }
        for from in 0..90 {
            for to in from..90 {
                let is_busy =
                    |at: &i64| (10..25).contains(at) || (40..50).contains(at) || (70..80).contains(at);
                let known = from.max(10)..to.min(80);
                let expected = known.clone().filter(is_busy).count() as i64;
                let length = (known.end - known.start).max(0);
                assert_eq!(busy.split(from, to), (expected, length - expected), "{from} {to}");
            }
        }
        assert_eq!(Busy::default().split(0, 10), (0, 0));
    }
}
