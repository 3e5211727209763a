//! Determines whether the GPU memory of a process, a container or a pod exceeded a threshold for longer than allowed, by what the
//! driver counts for each process; and the same of GPUs and allocators ([`super::alerts`]).
//!
//! The driver is read in rounds: the used memory of a GPU, and then that of each process on it. A process that a round does not
//! name has none. On several GPUs, a process has the sum of the readings of one round.

use std::collections::{BTreeMap, BTreeSet};

use trace_schema::ProcessInfo;

use super::{
    alerts::{self, Alert, Readings, Subject},
    threshold::Threshold,
};
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// What the threshold holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Per {
    /// Used memory of each GPU
    Gpu,
    /// Reserved memory of each PyTorch allocator
    Allocator,
    /// Memory of each process on all GPUs
    Process,
    /// Memory of the processes of each container
    Container,
    /// Memory of the processes of each Kubernetes pod
    Pod,
}

impl Per {
    /// Returns what a process belongs to; `None` if that is not on record.
    fn subject(self, pid: u32, processes: &[ProcessInfo]) -> Option<Subject> {
        let process = || processes.iter().find(|process| process.pid == pid);
        let known = |name: &String| (!name.is_empty()).then(|| name.clone());
        match self {
            Self::Gpu | Self::Allocator => None,
            Self::Process => Some(Subject::Process { pid }),
            Self::Container => {
                process().and_then(|of| known(&of.container_id)).map(|id| Subject::Container { id })
            }
            Self::Pod => {
                let name = |of: &ProcessInfo| known(&of.pod_name).or_else(|| known(&of.pod_uid));
                process().and_then(name).map(|name| Subject::Pod { name })
            }
        }
    }

    /// Returns what is not on record if no process has such a group.
    fn missing(self) -> &'static str {
        match self {
            Self::Container => "the container of no process is on record",
            Self::Pod => "the pod of no process is on record",
            _ => "the driver's counters name no process",
        }
    }
}

/// One round of readings of one GPU: its time (ns, trace clock), and the bytes of each process.
type Round = (i64, BTreeMap<u32, i64>);

/// The rounds of all GPUs, and their sizes.
#[derive(Debug, Default)]
struct Rounds {
    of_device: BTreeMap<i64, Vec<Round>>,
    totals: BTreeMap<i64, i64>,
}

impl Rounds {
    fn add(&mut self, device: i64, counter: &str, pid: Option<u32>, ts: i64, value: i64) {
        let rounds = self.of_device.entry(device).or_default();
        match (counter, pid) {
            ("memory_used_bytes", _) => rounds.push((ts, BTreeMap::new())),
            ("memory_total_bytes", _) => {
                self.totals.insert(device, value);
            }
            (_, Some(pid)) => {
                if let Some((_, of_process)) = rounds.last_mut() {
                    of_process.insert(pid, value);
                }
            }
            _ => (),
        }
    }

    fn pids(&self) -> BTreeSet<u32> {
        let rounds = self.of_device.values().flatten();
        rounds.flat_map(|(_, of_process)| of_process.keys().copied()).collect()
    }

    /// Returns the size of every GPU if all have the same.
    fn total_bytes(&self) -> Option<i64> {
        let sizes: BTreeSet<i64> = self.totals.values().copied().collect();
        let is_known = self.of_device.keys().all(|device| self.totals.contains_key(device));
        if is_known && sizes.len() == 1 { sizes.first().copied() } else { None }
    }

    /// Returns the sum of some processes over their GPUs, where a round is complete: at the reading of the last of them.
    fn sums(&self, pids: &BTreeSet<u32>) -> Vec<(i64, i64)> {
        let uses = |rounds: &[Round]| {
            rounds.iter().any(|(_, of_process)| of_process.keys().any(|pid| pids.contains(pid)))
        };
        let used: Vec<&[Round]> =
            self.of_device.values().map(Vec::as_slice).filter(|rounds| uses(rounds)).collect();
        let Some((last, others)) = used.split_last() else { return Vec::new() };
        let bytes = |(_, of_process): &Round| -> i64 {
            of_process.iter().filter(|(pid, _)| pids.contains(pid)).map(|(_, bytes)| bytes).sum()
        };
        let at = |rounds: &[Round], ts: i64| {
            let before = rounds.partition_point(|(at, _)| *at <= ts).checked_sub(1);
            before.and_then(|place| rounds.get(place)).map_or(0, bytes)
        };
        let sum = |round: &Round| {
            let elsewhere: i64 = others.iter().map(|rounds| at(rounds, round.0)).sum();
            (round.0, bytes(round) + elsewhere)
        };
        last.iter().map(sum).collect()
    }
}

async fn rounds(trace: &Trace) -> Result<Rounds, AnalyzeError> {
    let query = "SELECT device, counter, pid, ts, value FROM samples \
         WHERE counter IN ('memory_used_bytes', 'memory_total_bytes', 'process_memory_bytes') ORDER BY ts";
    let mut found = Rounds::default();
    for batch in trace.batches(query).await? {
        let (devices, pids) = (integers(&batch, "device")?, integers(&batch, "pid")?);
        let (times, values) = (integers(&batch, "ts")?, integers(&batch, "value")?);
        let counters = strings(&batch, "counter")?;
        for row in 0..batch.num_rows() {
            let pid = pids.at(row).map(|pid| pid as u32);
            let device = devices.at(row).unwrap_or_default();
            found.add(device, counters.value(row), pid, times.value(row), values.value(row));
        }
    }
    Ok(found)
}

/// Analyzes one run: what the threshold holds for, in the order of [`Per`]. `for_ns` is the shortest time over the threshold, in
/// ns, that raises an alert.
///
/// # Errors
/// Returns an error if the run cannot be read, or if no process has a group that is asked for on record.
pub async fn run(
    trace: &Trace,
    threshold: Threshold,
    for_ns: i64,
    per: &[Per],
) -> Result<Vec<Alert>, AnalyzeError> {
    let mut found = Vec::new();
    if per.contains(&Per::Gpu) || per.contains(&Per::Allocator) {
        found = alerts::run(trace, threshold, for_ns).await?;
        found.retain(|alert| match alert.subject {
            Subject::Device { .. } => per.contains(&Per::Gpu),
            _ => per.contains(&Per::Allocator),
        });
    }
    let groups = [Per::Process, Per::Container, Per::Pod].into_iter().filter(|of| per.contains(of));
    let groups: Vec<Per> = groups.collect();
    if groups.is_empty() {
        return Ok(found);
    }
    let rounds = rounds(trace).await?;
    let processes: Vec<ProcessInfo> =
        trace.files().iter().flat_map(|file| file.run.processes.iter().cloned()).collect();
    for group in groups {
        found.extend(of_groups(&rounds, &processes, group, threshold, for_ns)?);
    }
    Ok(found)
}

fn of_groups(
    rounds: &Rounds,
    processes: &[ProcessInfo],
    per: Per,
    threshold: Threshold,
    for_ns: i64,
) -> Result<Vec<Alert>, AnalyzeError> {
    let mut groups: BTreeMap<Subject, BTreeSet<u32>> = BTreeMap::new();
    for pid in rounds.pids() {
        if let Some(subject) = per.subject(pid, processes) {
            groups.entry(subject).or_default().insert(pid);
        }
    }
    if groups.is_empty() {
        return Err(AnalyzeError::Inconclusive(format!("{}: see `analyze info`", per.missing())));
    }
    let alert = |(subject, pids): (Subject, BTreeSet<u32>)| {
        let readings = Readings { total_bytes: rounds.total_bytes(), used: rounds.sums(&pids) };
        readings.alert(subject, threshold, for_ns)
    };
    Ok(groups.into_iter().map(alert).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::alerts::Verdict;

    /// Two GPUs of 100 bytes in four rounds: process 1 on both, process 2 on the second one from the third round on.
    fn two_gpus() -> Rounds {
        let mut rounds = Rounds::default();
        for (round, [first, second, other]) in
            [[10, 5, 0], [20, 5, 0], [20, 5, 60], [0, 0, 60]].into_iter().enumerate()
        {
            let ts = 100 * round as i64;
            rounds.add(0, "memory_used_bytes", None, ts, 99);
            rounds.add(0, "memory_total_bytes", None, ts + 1, 100);
            rounds.add(1, "memory_used_bytes", None, ts + 5, 99);
            rounds.add(1, "memory_total_bytes", None, ts + 6, 100);
            for (device, pid, bytes) in [(0, 1, first), (1, 1, second), (1, 2, other)] {
                if bytes > 0 {
                    rounds.add(device, "process_memory_bytes", Some(pid), ts + 7, bytes);
                }
            }
        }
        rounds
    }

    fn process(pid: u32, container_id: &str) -> ProcessInfo {
        ProcessInfo { pid, container_id: container_id.to_owned(), ..ProcessInfo::default() }
    }

    #[test]
    fn a_process_has_the_sum_over_its_gpus_in_each_round() {
        let rounds = two_gpus();
        assert_eq!(rounds.sums(&BTreeSet::from([1])), [(5, 15), (105, 25), (205, 25), (305, 0)]);
        assert_eq!(rounds.sums(&BTreeSet::from([1, 2])), [(5, 15), (105, 25), (205, 85), (305, 60)]);
        assert!(rounds.sums(&BTreeSet::from([3])).is_empty());
        assert_eq!(rounds.total_bytes(), Some(100));
    }

    #[test]
    fn processes_of_a_container_count_together() {
        let rounds = two_gpus();
        let verdicts = |per, processes: &[ProcessInfo], bytes| -> Vec<(Subject, Verdict, i64)> {
            let threshold = Threshold::Bytes(bytes);
            let found = of_groups(&rounds, processes, per, threshold, 100).expect("groups");
            found.into_iter().map(|alert| (alert.subject, alert.verdict, alert.peak_bytes)).collect()
        };
        let processes = [process(1, "abc"), process(2, "abc")];
        let container = Subject::Container { id: "abc".to_owned() };
        assert_eq!(verdicts(Per::Container, &processes, 84), [(container.clone(), Verdict::Alert, 85)]);
        assert_eq!(verdicts(Per::Container, &processes, 85), [(container, Verdict::None, 85)]);
        let of_processes = [
            (Subject::Process { pid: 1 }, Verdict::None, 25),
            (Subject::Process { pid: 2 }, Verdict::Alert, 60),
        ];
        assert_eq!(verdicts(Per::Process, &processes, 50), of_processes);
    }

    #[test]
    fn a_group_that_is_not_on_record_is_refused_by_name() {
        let threshold = Threshold::Bytes(50);
        let refused = |rounds: &Rounds, per| {
            of_groups(rounds, &[process(1, "")], per, threshold, 1).expect_err("no group").to_string()
        };
        assert!(refused(&two_gpus(), Per::Container).contains("container of no process"));
        assert!(refused(&two_gpus(), Per::Pod).contains("pod of no process"));
        assert!(refused(&Rounds::default(), Per::Process).contains("name no process"));
    }
}
