//! Determines whether memory use exceeded a threshold for longer than allowed.
//!
//! Spans over the threshold are found as [`super::threshold`] describes. A reading of NVML holds until the
//! next one, unless that is more than three of the usual (median) intervals away: in such a gap the memory
//! use is not known. A span ends at the last reading before a gap, or at the last reading of all. If a span
//! lasts long enough only together with the gaps around it, the verdict is `inconclusive`. The reserved bytes
//! of PyTorch's allocators are known at every instant from their first event to the end of the process or of
//! the recording, so they have no gaps.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use trace_schema::Run;

use super::threshold::{Span, Threshold, Tracker};
use crate::trace::Trace;
use analyze_memory::{
    allocator::Allocator,
    event::Event,
    input::{Input, Key, Listener},
};
use analyze_run::{
    columns::{Cell, integers},
    error::AnalyzeError,
};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Subject {
    /// The used memory of a GPU, by all processes; `device` is NVML's index.
    Device {
        /// Index of the device.
        device: i64,
    },
    /// The reserved memory of a process's PyTorch allocator; `device` is CUDA's index.
    Allocator {
        /// Process ID.
        pid: u32,
        /// Index of the device.
        device: i32,
    },
    /// The memory that the driver counts for a process on all GPUs.
    Process {
        /// Process ID.
        pid: u32,
    },
    /// The memory that the driver counts for the processes of a container.
    Container {
        /// Container ID in hexadecimal.
        id: String,
    },
    /// The memory that the driver counts for the processes of a Kubernetes pod.
    Pod {
        /// Name of the pod, or its UID if the name is not on record.
        name: String,
    },
}

/// The verdict on one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A span lasts long enough.
    Alert,
    /// No span lasts long enough, even together with the gaps around it.
    None,
    /// The data do not allow a verdict.
    Inconclusive,
}

/// The result for one subject.
#[derive(Clone, Debug, Serialize)]
pub struct Alert {
    /// What was measured.
    pub subject: Subject,
    /// Whether a span lasts long enough.
    pub verdict: Verdict,
    /// The reason for an inconclusive verdict.
    pub reason: Option<String>,
    /// The threshold in bytes; `None` if it is a share of a size that is not known.
    pub threshold_bytes: Option<i64>,
    /// The total memory of the GPU in bytes, if it is known.
    pub total_bytes: Option<i64>,
    /// The largest value in bytes.
    pub peak_bytes: i64,
    /// The number of readings, or of events of the allocator.
    pub readings_count: u64,
    /// The median time between readings in ns; `None` if every change is known.
    pub interval_ns: Option<i64>,
    /// The number of gaps between readings.
    pub gaps_count: u64,
    /// The total time of the gaps in ns.
    pub gaps_ns: i64,
    /// The first instant at which the value is known (ns, trace clock).
    pub first_ns: i64,
    /// The last instant at which the value is known (ns, trace clock).
    pub last_ns: i64,
    /// The total time over the threshold in ns.
    pub over_ns: i64,
    /// The spans that last long enough, in order of time.
    pub spans: Vec<Span>,
}

/// Returns the result after the last reading. Nothing is known after `end` (ns), or after the last reading if
/// that is later.
fn alert(mut tracker: Tracker, end: i64, for_ns: i64, subject: Subject) -> Alert {
    tracker.finish(end);
    let is_long = |span: &&Span| span.dur_ns >= for_ns;
    let verdict = if tracker.spans.iter().any(|span| is_long(&span)) {
        Verdict::Alert
    } else if tracker.spans.iter().any(|span| span.possible_ns() >= for_ns) {
        Verdict::Inconclusive
    } else {
        Verdict::None
    };
    let reason = (verdict == Verdict::Inconclusive)
        .then(|| "the time over the threshold is long enough only with gaps between readings".to_owned());
    Alert {
        subject,
        verdict,
        reason,
        threshold_bytes: Some(tracker.threshold_bytes),
        total_bytes: None,
        peak_bytes: tracker.peak_bytes,
        readings_count: tracker.readings_count,
        interval_ns: None,
        gaps_count: tracker.gaps_count,
        gaps_ns: tracker.gaps_ns,
        first_ns: tracker.first_ns.unwrap_or(tracker.last_ns),
        last_ns: tracker.last_ns,
        over_ns: tracker.spans.iter().map(|span| span.dur_ns).sum(),
        spans: tracker.spans.iter().filter(is_long).copied().collect(),
    }
}

impl Alert {
    /// Makes the verdict inconclusive, because there is no threshold in bytes.
    fn without_threshold(self, reason: &str) -> Self {
        let reason = Some(format!("{reason}: give the threshold in bytes"));
        Self { verdict: Verdict::Inconclusive, reason, threshold_bytes: None, ..self }
    }
}

/// The time between two readings that makes a gap, as a multiple of the usual interval.
const GAP_INTERVALS: i64 = 3;

/// The readings of one GPU, or of a part of its memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    /// The size of the GPU's memory in bytes; `None` if it is not known.
    pub(super) total_bytes: Option<i64>,
    /// The time (ns, trace clock) and the used bytes of each reading.
    pub(super) used: Vec<(i64, i64)>,
}

impl Readings {
    /// Returns the result for these readings.
    pub(super) fn alert(&self, subject: Subject, threshold: Threshold, for_ns: i64) -> Alert {
        let bytes = threshold.bytes(self.total_bytes);
        let mut intervals: Vec<i64> =
            self.used.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)).collect();
        intervals.sort_unstable();
        let interval_ns = intervals.get(intervals.len().saturating_sub(1) / 2).copied();
        let limit_ns = interval_ns.map(|interval| interval.saturating_mul(GAP_INTERVALS));
        let mut tracker = Tracker::new(bytes.unwrap_or(i64::MAX), limit_ns);
        self.used.iter().for_each(|(ts, used)| tracker.add(*ts, *used));
        let alert = alert(tracker, i64::MIN, for_ns, subject);
        let alert = Alert { interval_ns, total_bytes: self.total_bytes, ..alert };
        match bytes {
            Some(_) => alert,
            None => alert.without_threshold("the size of the GPU's memory was not read"),
        }
    }
}

/// A listener that tracks the reserved bytes of every allocator.
struct Reserved {
    threshold_bytes: i64,
    trackers: BTreeMap<(u32, i32), Tracker>,
}

impl Listener for Reserved {
    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let reserved_bytes = allocator.totals().reserved_bytes;
        let new = || Tracker::new(self.threshold_bytes, None);
        let tracker = self.trackers.entry((key.pid, key.device)).or_insert_with(new);
        tracker.add(event.ts, reserved_bytes);
    }
}

async fn readings(trace: &Trace) -> Result<BTreeMap<i64, Readings>, AnalyzeError> {
    let query = "SELECT device, ts, used_bytes, total_bytes FROM memory_use ORDER BY device, ts";
    let mut found: BTreeMap<i64, Readings> = BTreeMap::new();
    for batch in trace.batches(query).await? {
        let (devices, times) = (integers(&batch, "device")?, integers(&batch, "ts")?);
        let (used, total) = (integers(&batch, "used_bytes")?, integers(&batch, "total_bytes")?);
        for row in 0..batch.num_rows() {
            let of = found.entry(devices.at(row).unwrap_or_default()).or_default();
            of.total_bytes = total.at(row).filter(|bytes| *bytes > 0);
            of.used.extend(used.at(row).map(|used| (times.value(row), used)));
        }
    }
    Ok(found)
}

/// Returns the times (ns, trace clock) at which processes exited, for those that did.
async fn ends(trace: &Trace) -> Result<BTreeMap<u32, i64>, AnalyzeError> {
    let query = "SELECT pid, max(ts) AS ts FROM process_events WHERE op = 'exit' AND pid = tid GROUP BY pid";
    let mut found = BTreeMap::new();
    for batch in trace.batches(query).await? {
        let (pids, times) = (integers(&batch, "pid")?, integers(&batch, "ts")?);
        for row in 0..batch.num_rows() {
            found.insert(pids.value(row) as u32, times.value(row));
        }
    }
    Ok(found)
}

/// Analyzes one run: GPUs first, then allocators. `for_ns` is the shortest time over the threshold, in ns,
/// that raises an alert.
pub async fn run(trace: &Trace, threshold: Threshold, for_ns: i64) -> Result<Vec<Alert>, AnalyzeError> {
    let readings = readings(trace).await?;
    let mut alerts: Vec<Alert> = readings
        .iter()
        .map(|(device, of)| of.alert(Subject::Device { device: *device }, threshold, for_ns))
        .collect();
    // CUDA numbers GPUs in its own way, so a share of a GPU's memory is known only if all GPUs have the same
    // size.
    let mut totals: Vec<Option<i64>> = readings.values().map(|of| of.total_bytes).collect();
    totals.dedup();
    let total_bytes = if let [total] = totals.as_slice() { *total } else { None };
    let threshold_bytes = threshold.bytes(total_bytes);
    let runs: Vec<(String, Run)> =
        trace.files().iter().map(|file| (file.name.clone(), file.run.clone())).collect();
    let reserved =
        Reserved { threshold_bytes: threshold_bytes.unwrap_or(i64::MAX), trackers: BTreeMap::new() };
    let input = Input::new(trace.events(), trace.files());
    let (replay, reserved) = input.replay(Vec::new(), reserved).await?;
    let with_faults = |(key, allocator): (Key, &Allocator)| {
        (!allocator.faults().is_empty()).then_some((key.pid, key.device))
    };
    let damaged: BTreeSet<(u32, i32)> = replay.allocators().filter_map(with_faults).collect();
    let ends = ends(trace).await?;
    let recording_end = runs.first().map_or(i64::MIN, |(_, run)| run.clock.end_ns);
    for ((pid, device), tracker) in reserved.trackers {
        let subject = Subject::Allocator { pid, device };
        let end = ends.get(&pid).copied().unwrap_or(recording_end);
        let mut alert = alert(tracker, end, for_ns, subject);
        alert.total_bytes = total_bytes;
        if threshold_bytes.is_none() {
            alert = alert.without_threshold("the size of its GPU's memory is not known");
        } else if damaged.contains(&(pid, device)) {
            alert.verdict = Verdict::Inconclusive;
            alert.reason = Some("events of the allocator are missing: see `analyze memory`".to_owned());
        } else if runs.iter().any(|(_, run)| run.joined_running) && alert.verdict == Verdict::None {
            alert.verdict = Verdict::Inconclusive;
            alert.reason =
                Some("recording began while the process ran: it may have reserved more".to_owned());
        }
        alerts.push(alert);
    }
    Ok(alerts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::threshold::End;

    fn alert(readings: &[(i64, i64)], threshold: &str, for_ns: i64) -> Alert {
        let readings = Readings { total_bytes: Some(100), used: readings.to_vec() };
        readings.alert(Subject::Device { device: 0 }, threshold.parse().expect("a threshold"), for_ns)
    }

    #[test]
    fn a_span_reaches_to_the_first_reading_that_is_not_over() {
        let found = alert(&[(0, 90), (10, 91), (20, 95), (30, 90), (40, 99)], "90%", 20);
        assert_eq!((found.verdict, found.spans.len(), found.over_ns), (Verdict::Alert, 1, 20));
        let span = found.spans[0];
        assert_eq!((span.ts_ns, span.dur_ns, span.peak_bytes), (10, 20, 95));
        assert_eq!((span.readings_count, span.end), (2, End::Below));
        // A span that begins at the last reading has no length yet.
        assert_eq!(
            alert(&[(0, 90), (10, 91), (20, 95), (30, 90), (40, 99)], "90%", 21).verdict,
            Verdict::None
        );
    }

    #[test]
    fn a_gap_ends_a_span_and_leaves_doubt() {
        let readings = [(0, 95), (10, 95), (20, 95), (120, 95), (130, 95), (140, 95)];
        let short = alert(&readings, "90%", 20);
        let kinds: Vec<_> = short.spans.iter().map(|span| (span.ts_ns, span.dur_ns, span.end)).collect();
        assert_eq!(kinds, [(0, 20, End::Gap), (120, 20, End::Last)]);
        assert_eq!((short.verdict, short.gaps_count, short.gaps_ns), (Verdict::Alert, 1, 100));
        assert_eq!(alert(&readings, "90%", 140).verdict, Verdict::Inconclusive);
        assert_eq!(alert(&readings, "90%", 141).verdict, Verdict::None);
        // The value fell at some time in the gap.
        let falls = [(0, 95), (10, 95), (20, 95), (120, 5), (130, 5)];
        assert_eq!(alert(&falls, "90%", 120).verdict, Verdict::Inconclusive);
        assert_eq!(alert(&falls, "90%", 121).verdict, Verdict::None);
    }

    #[test]
    fn without_a_total_a_part_is_not_known() {
        let readings = Readings { total_bytes: None, used: vec![(0, 95)] };
        let verdict =
            |threshold, for_ns| readings.alert(Subject::Device { device: 0 }, threshold, for_ns).verdict;
        assert_eq!(verdict(Threshold::Ratio(0.5), 1), Verdict::Inconclusive);
        assert_eq!(verdict(Threshold::Bytes(94), 0), Verdict::Alert);
    }
}
