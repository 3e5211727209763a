//! Where the wall time of each process went, from the view `run_time`, largest part first.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::Array;
use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, booleans, integers, strings},
    error::AnalyzeError,
};

/// The parts of the view `run_time` with their meaning, as it completes "time in which the process …".
pub const PARTS: [(&str, &str); 21] = [
    ("host", "ran host code outside of CUDA calls, such as Python"),
    ("launch", "launched work"),
    ("sync", "waited for the GPU in synchronizing calls"),
    ("alloc", "allocated, freed or mapped memory in CUDA calls"),
    ("copy", "copied or filled memory in CUDA calls"),
    ("nccl", "was in NCCL calls"),
    ("module", "loaded code, created contexts or built graphs"),
    ("other_call", "was in other CUDA calls"),
    ("other_thread", "waited for another thread, which ran"),
    ("gil", "waited for Python's global interpreter lock, which another thread had"),
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

/// Time of one thread that one thing took: a row of the view `run_time`.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Name of the part.
    pub part: String,
    /// State of the thread.
    pub state: String,
    /// Stage of the process, such as `compiling`; `None` if the first launch need not be on record.
    pub stage: Option<String>,
    /// Whether the time is before the first launch; `None` if the first launch need not be on record.
    pub is_start_up: Option<bool>,
    /// Top-level call that the thread was in, or that the driving thread waited in.
    pub op: Option<String>,
    /// Process ID of the thread whose time it is.
    pub thread_pid: i64,
    /// Thread ID of the thread whose time it is.
    pub thread_tid: i64,
    /// Name of that thread.
    pub thread_comm: Option<String>,
    /// Process ID of the task that had the CPU or ended the sleep.
    pub task_pid: Option<i64>,
    /// Name of that task.
    pub task_comm: Option<String>,
    /// Time in nanoseconds.
    pub time_ns: i64,
    /// Number of intervals.
    pub intervals_count: i64,
    /// Part of the time in which GPUs had work of the process, in nanoseconds; `None` if no profile is on record.
    pub gpu_busy_ns: Option<i64>,
    /// Part of the time in which they had none.
    pub gpu_idle_ns: Option<i64>,
    /// Number of wakeups between the driving thread and this one, at most 2.
    pub depth: i64,
    /// What the driving thread slept in while it waited for this one; `None` if the time is its own.
    pub waited_in: Option<String>,
    /// System call that the thread slept in.
    pub syscall: Option<String>,
    /// Number of sleeps of the driving thread that the time is of.
    pub waits_count: i64,
    /// Largest part of the time that is of one such sleep, or of one interval, in nanoseconds.
    pub longest_ns: i64,
}

impl Slice {
    /// Returns whether `capture` kept the thread from running: it stops a command while it loads libraries, and needs a CPU itself.
    pub fn is_by_recorder(&self) -> bool {
        matches!(self.part.as_str(), "stopped" | "waiting_for_cpu")
            && self.task_comm.as_deref() == Some("capture")
    }
}

/// The account of one process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessTime {
    /// Name of the run.
    pub run: String,
    /// Process ID.
    pub pid: i64,
    /// The thread that the account follows.
    pub tid: i64,
    /// Start of the wall time in nanoseconds (CLOCK_MONOTONIC).
    pub wall_ts_ns: i64,
    /// Wall time in nanoseconds. The times of the parts sum to it.
    pub wall_ns: i64,
    /// Time before the first launch, in nanoseconds; `None` if the first launch need not be on record.
    pub start_up_ns: Option<i64>,
    /// Time in which GPUs had work of the process, in nanoseconds; `None` if no profile of the GPU is on record.
    pub gpu_busy_ns: Option<i64>,
    /// The parts, largest first.
    pub parts: Vec<Part>,
    /// What the parts are made of: their times sum to the wall time, too.
    #[serde(skip)]
    pub slices: Vec<Slice>,
}

impl ProcessTime {
    /// Returns the time of a part in nanoseconds.
    pub fn part_ns(&self, name: &str) -> i64 {
        self.parts.iter().find(|part| part.part == name).map_or(0, |part| part.time_ns)
    }

    /// Returns who or what a slice is about: the function of a call, the task that had the CPU, or another thread than the
    /// one that the account follows.
    fn subject<'a>(&self, slice: &'a Slice) -> Option<&'a str> {
        let subject = match slice.part.as_str() {
            "waiting_for_cpu" => &slice.task_comm,
            "launch" | "sync" | "alloc" | "copy" | "nccl" | "module" | "other_call" => &slice.op,
            _ if (slice.thread_pid, slice.thread_tid) != (self.pid, self.tid) => &slice.thread_comm,
            _ => return None,
        };
        subject.as_deref()
    }

    /// Sums the slices up.
    fn sum(&mut self) {
        type Threads = (BTreeSet<i64>, i64);
        let mut parts: BTreeMap<&str, (Part, BTreeMap<&str, Threads>)> = BTreeMap::new();
        let (mut start_up_ns, mut gpu_busy_ns) = (Some(0), Some(0));
        for slice in &self.slices {
            let before_launch_ns = slice.is_start_up.map(|is_so| if is_so { slice.time_ns } else { 0 });
            let empty = || {
                let part = Part {
                    part: slice.part.clone(),
                    time_ns: 0,
                    share_ratio: 0.0,
                    start_up_ns: Some(0),
                    gpu_idle_ns: Some(0),
                    subjects: Vec::new(),
                };
                (part, BTreeMap::new())
            };
            let (part, subjects) = parts.entry(&slice.part).or_insert_with(empty);
            part.time_ns = part.time_ns.saturating_add(slice.time_ns);
            add(&mut part.start_up_ns, before_launch_ns);
            add(&mut part.gpu_idle_ns, slice.gpu_idle_ns);
            add(&mut start_up_ns, before_launch_ns);
            add(&mut gpu_busy_ns, slice.gpu_busy_ns);
            if let Some(subject) = self.subject(slice) {
                let (threads, time_ns) = subjects.entry(subject).or_default();
                threads.insert(slice.thread_tid);
                *time_ns = time_ns.saturating_add(slice.time_ns);
            }
        }
        let sum = |(mut part, subjects): (Part, BTreeMap<&str, Threads>)| {
            part.share_ratio = part.time_ns as f64 / self.wall_ns.max(1) as f64;
            part.subjects = subjects
                .into_iter()
                .map(|(name, (threads, time_ns))| Subject {
                    name: name.to_owned(),
                    threads_count: threads.len() as i64,
                    time_ns,
                })
                .collect();
            part.subjects.sort_by_key(|subject| std::cmp::Reverse(subject.time_ns));
            part.subjects.truncate(NAMED);
            part
        };
        let mut parts: Vec<Part> = parts.into_values().map(sum).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.time_ns));
        (self.parts, self.start_up_ns, self.gpu_busy_ns) = (parts, start_up_ns, gpu_busy_ns);
    }
}

const QUERY: &str = "SELECT run, CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, wall_ts, wall_ns, part, state, \
     stage, stage = 'start-up' AS is_start_up, op, CAST(thread_pid AS BIGINT) AS thread_pid, \
     CAST(thread_tid AS BIGINT) AS thread_tid, thread_comm, CAST(task_pid AS BIGINT) AS task_pid, task_comm, time_ns, \
     intervals_count, gpu_busy_ns, gpu_idle_ns, depth, waited_in, syscall, waits_count, longest_ns FROM run_time \
     ORDER BY run, pid, time_ns DESC";

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
        let text = |name| strings(batch, name);
        let (runs, parts, states) = (text("run")?, text("part")?, text("state")?);
        let (ops, threads, tasks) = (text("op")?, text("thread_comm")?, text("task_comm")?);
        let (stages, sleeps, syscalls) = (text("stage")?, text("waited_in")?, text("syscall")?);
        let starts = booleans(batch, "is_start_up")?;
        let whole = |name| integers(batch, name);
        let (pids, tids) = (whole("pid")?, whole("tid")?);
        let (wall_ts, walls) = (whole("wall_ts")?, whole("wall_ns")?);
        let (thread_pids, thread_tids, task_pids) =
            (whole("thread_pid")?, whole("thread_tid")?, whole("task_pid")?);
        let (times, intervals) = (whole("time_ns")?, whole("intervals_count")?);
        let (busy, idle) = (whole("gpu_busy_ns")?, whole("gpu_idle_ns")?);
        let (depths, waits, longest) = (whole("depth")?, whole("waits_count")?, whole("longest_ns")?);
        for row in 0..batch.num_rows() {
            let (name, pid) = (runs.value(row), pids.value(row));
            if processes.last().is_none_or(|last| last.run != name || last.pid != pid) {
                processes.push(ProcessTime {
                    run: name.to_owned(),
                    pid,
                    tid: tids.value(row),
                    wall_ts_ns: wall_ts.value(row),
                    wall_ns: walls.value(row),
                    start_up_ns: None,
                    gpu_busy_ns: None,
                    parts: Vec::new(),
                    slices: Vec::new(),
                });
            }
            let Some(process) = processes.last_mut() else { continue };
            process.slices.push(Slice {
                part: parts.value(row).to_owned(),
                state: states.value(row).to_owned(),
                stage: stages.at(row).map(str::to_owned),
                is_start_up: starts.is_valid(row).then(|| starts.value(row)),
                op: ops.at(row).map(str::to_owned),
                thread_pid: thread_pids.value(row),
                thread_tid: thread_tids.value(row),
                thread_comm: threads.at(row).map(str::to_owned),
                task_pid: task_pids.at(row),
                task_comm: tasks.at(row).map(str::to_owned),
                time_ns: times.value(row),
                intervals_count: intervals.value(row),
                gpu_busy_ns: busy.at(row),
                gpu_idle_ns: idle.at(row),
                depth: depths.value(row),
                waited_in: sleeps.at(row).map(str::to_owned),
                syscall: syscalls.at(row).map(str::to_owned),
                waits_count: waits.value(row),
                longest_ns: longest.value(row),
            });
        }
    }
    processes.iter_mut().for_each(ProcessTime::sum);
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
