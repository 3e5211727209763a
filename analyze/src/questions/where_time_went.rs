//! Where the wall time of each process went, from the view `run_time`, largest part first.

use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, booleans, integers, strings},
    error::AnalyzeError,
};

/// The parts of the view `run_time` with their meaning, as it completes "time in which the process …".
pub const PARTS: [(&str, &str); 20] = [
    ("host", "ran host code outside of CUDA calls, such as Python"),
    ("launch", "launched work"),
    ("sync", "waited for the GPU in synchronizing calls"),
    ("alloc", "allocated, freed or mapped memory in CUDA calls"),
    ("copy", "copied or filled memory in CUDA calls"),
    ("nccl", "was in NCCL calls"),
    ("module", "loaded code, created contexts or built graphs"),
    ("other_call", "was in other CUDA calls"),
    ("other_thread", "waited for another thread, which ran"),
    ("waiting_for_cpu", "waited for a CPU that another task had"),
    ("throttled", "was out of the CPU quota of its control group"),
    ("stopped", "was stopped by a signal"),
    ("futex", "waited for a lock or another thread, and the record does not lead on"),
    ("ioctl", "slept in a device driver outside of probed calls"),
    ("page_fault", "waited for a page"),
    ("disk", "waited for a file"),
    ("sleep", "slept by its own wish"),
    ("poll", "waited for an event, such as data from a socket or pipe"),
    ("blocked", "slept in another system call"),
    ("unknown", "did what is not on record"),
];

/// Largest number of names that a part has.
const NAMED: usize = 3;

/// Who or what a part's time is about: the function, the threads or the tasks of one name.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// Name of a function, a thread or a task, by the part.
    pub name: String,
    /// Number of threads of this name that the time is of.
    pub threads_count: i64,
    /// Time in nanoseconds.
    pub time_ns: i64,
}

/// One part of a process's wall time.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Name of the part, as in the view `run_time`.
    pub part: String,
    /// Time in nanoseconds.
    pub time_ns: i64,
    /// Share of the wall time, from 0 to 1.
    pub share_ratio: f64,
    /// Part of it before the first launch, in nanoseconds; `None` if that need not be on record.
    pub start_up_ns: Option<i64>,
    /// Part of it in which GPUs had no work of the process, in nanoseconds; `None` if no profile of the GPU is on record.
    pub gpu_idle_ns: Option<i64>,
    /// The functions that the process was in, the threads that it waited for, or the tasks that had the CPU; largest first.
    pub subjects: Vec<Subject>,
}

impl Part {
    /// Returns what the process did in this time.
    pub fn meaning(&self) -> &'static str {
        PARTS.iter().find(|(part, _)| *part == self.part).map_or("", |(_, meaning)| meaning)
    }
}

/// The account of one process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessTime {
    /// Name of the run.
    pub run: String,
    /// Process ID.
    pub pid: i64,
    /// The thread that the account follows.
    pub tid: i64,
    /// Wall time in nanoseconds. The times of the parts sum to it.
    pub wall_ns: i64,
    /// Time before the first launch, in nanoseconds; `None` if the first launch need not be on record.
    pub start_up_ns: Option<i64>,
    /// Time in which GPUs had work of the process, in nanoseconds; `None` if no profile of the GPU is on record.
    pub gpu_busy_ns: Option<i64>,
    /// The parts, largest first.
    pub parts: Vec<Part>,
}

/// One row for each process, part and name. Rows of the driving thread itself in no call have no name.
const QUERY: &str = "SELECT run, CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, wall_ns, part, subject, \
     stage IS NOT NULL AS has_stage, count(DISTINCT thread_tid) AS threads_count, sum(time_ns) AS time_ns, \
     sum(CASE WHEN stage = 'start-up' THEN time_ns ELSE 0 END) AS start_up_ns, \
     sum(gpu_busy_ns) AS gpu_busy_ns, sum(gpu_idle_ns) AS gpu_idle_ns \
     FROM (SELECT *, CASE \
         WHEN part = 'waiting_for_cpu' THEN task_comm \
         WHEN part IN ('launch', 'sync', 'alloc', 'copy', 'nccl', 'module', 'other_call') THEN op \
         WHEN thread_pid <> pid OR thread_tid <> tid THEN thread_comm END AS subject FROM run_time) \
     GROUP BY run, pid, tid, wall_ns, part, subject, stage IS NOT NULL \
     ORDER BY run, pid, part, time_ns DESC, subject";

fn add(sum: &mut Option<i64>, more: Option<i64>) {
    *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
}

/// Returns the account of every process with calls, longest wall time first.
///
/// # Errors
/// Returns an error if the runs cannot be read.
pub async fn run(trace: &Trace) -> Result<Vec<ProcessTime>, AnalyzeError> {
    let mut processes: Vec<ProcessTime> = Vec::new();
    for batch in &trace.batches(QUERY).await? {
        let (runs, parts) = (strings(batch, "run")?, strings(batch, "part")?);
        let (subjects, has_stage) = (strings(batch, "subject")?, booleans(batch, "has_stage")?);
        let whole = |name| integers(batch, name);
        let (pids, tids, walls) = (whole("pid")?, whole("tid")?, whole("wall_ns")?);
        let (threads, times, starts) = (whole("threads_count")?, whole("time_ns")?, whole("start_up_ns")?);
        let (busy, idle) = (whole("gpu_busy_ns")?, whole("gpu_idle_ns")?);
        for row in 0..batch.num_rows() {
            let (name, pid, wall_ns) = (runs.value(row), pids.value(row), walls.value(row));
            let start_up_ns = has_stage.value(row).then(|| starts.value(row));
            if processes.last().is_none_or(|last| last.run != name || last.pid != pid) {
                processes.push(ProcessTime {
                    run: name.to_owned(),
                    pid,
                    tid: tids.value(row),
                    wall_ns,
                    start_up_ns: Some(0),
                    gpu_busy_ns: Some(0),
                    parts: Vec::new(),
                });
            }
            let Some(process) = processes.last_mut() else { continue };
            add(&mut process.start_up_ns, start_up_ns);
            add(&mut process.gpu_busy_ns, busy.at(row));
            if process.parts.last().is_none_or(|last| last.part != parts.value(row)) {
                process.parts.push(Part {
                    part: parts.value(row).to_owned(),
                    time_ns: 0,
                    share_ratio: 0.0,
                    start_up_ns: Some(0),
                    gpu_idle_ns: Some(0),
                    subjects: Vec::new(),
                });
            }
            let Some(part) = process.parts.last_mut() else { continue };
            part.time_ns = part.time_ns.saturating_add(times.value(row));
            part.share_ratio = part.time_ns as f64 / wall_ns.max(1) as f64;
            add(&mut part.start_up_ns, start_up_ns);
            add(&mut part.gpu_idle_ns, idle.at(row));
            if let Some(subject) = subjects.at(row)
                && part.subjects.len() < NAMED
            {
                let (threads_count, time_ns) = (threads.value(row), times.value(row));
                part.subjects.push(Subject { name: subject.to_owned(), threads_count, time_ns });
            }
        }
    }
    for process in &mut processes {
        process.parts.sort_by_key(|part| std::cmp::Reverse(part.time_ns));
    }
    processes.sort_by_key(|process| (std::cmp::Reverse(process.wall_ns), process.pid));
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn each_part_has_one_meaning() {
        let names: BTreeSet<&str> = super::PARTS.iter().map(|(part, _)| *part).collect();
        assert_eq!(names.len(), super::PARTS.len());
    }
}
