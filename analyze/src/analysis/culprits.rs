//! Who is behind the off-CPU time of calls: the tasks that had the CPU, the threads that were waited for, the
//! system calls slept in. Totals over the whole run, and over its slow calls; outermost calls only, because
//! a nested call's time stands in the one around it.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::{
    blocker::{Blocker, syscall_name},
    call_columns::CallColumns,
    causes::Cause,
    judge::{SlowCall, blamed, cause_of},
    schedule::{State, Task, ThreadKey},
    walk::{Link, walk},
};
use crate::functions::derived::Derived;

/// Culprits kept.
const CULPRITS: usize = 20;

/// A task behind off-CPU time of calls. Processes by name and number; a thread of the traced process by its own.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Culprit {
    /// What it is behind: `scheduler`: it had the CPU; `blocked:…`: it was waited for.
    pub(crate) cause: Cause,
    pub(crate) pid: u32,
    /// Threads of the same process are told apart only where they were waited for.
    pub(crate) tid: Option<u32>,
    pub(crate) comm: String,
    /// Its control group, if it is a traced process.
    pub(crate) cgroup: Option<String>,
    /// In slow calls.
    pub(crate) held_ns: i64,
    /// In all calls of the run.
    pub(crate) run_ns: i64,
    /// Share of this cause's time in slow calls.
    pub(crate) share_ratio: f64,
}

/// A system call in which calls slept.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Syscall {
    pub(crate) name: String,
    pub(crate) blocker: Blocker,
    pub(crate) slow_ns: i64,
    pub(crate) run_ns: i64,
}

/// Everything found.
pub(crate) struct Blame {
    /// Longest in slow calls first.
    pub(crate) culprits: Vec<Culprit>,
    pub(crate) syscalls: Vec<Syscall>,
    /// Waiting for a CPU inside slow calls, in all threads of their chains.
    pub(crate) waiting_in_slow_ns: i64,
    /// Time of other threads in the chains of slow calls, by cause.
    behind: HashMap<Cause, i64>,
    /// Processes that had a CPU while a slow call waited for it.
    pub(crate) holders: HashSet<u32>,
}

impl Blame {
    /// Time of other threads in the chains of slow calls that had this cause.
    pub(crate) fn behind_ns(&self, cause: Cause) -> i64 {
        self.behind.get(&cause).copied().unwrap_or_default()
    }
}

type Key = (Cause, u32, Option<u32>, String);

fn add(total: &mut i64, ns: i64) {
    *total = total.saturating_add(ns);
}

#[derive(Default)]
struct Totals {
    tasks: HashMap<Key, i64>,
    causes: HashMap<Cause, i64>,
    /// Of that, time of other threads than the call's.
    behind: HashMap<Cause, i64>,
    syscalls: HashMap<(Blocker, i64), i64>,
}

impl Totals {
    /// Adds what the call itself slept in.
    fn add_sleep(&mut self, derived: &Derived, thread: ThreadKey, ts: i64, end: i64) {
        derived.schedule.segments(thread, ts, end, |from, to, state, piece| {
            if let (State::Blocked(blocker), Some(piece)) = (state, piece) {
                add(self.syscalls.entry((blocker, piece.syscall.unwrap_or(-1))).or_default(), to - from);
            }
        });
    }

    fn add(&mut self, derived: &Derived, link: &Link) {
        let ns = link.end - link.ts;
        let Some(cause) = cause_of(link) else { return };
        add(self.causes.entry(cause).or_default(), ns);
        if link.depth > 0 && link.state != State::OnCpu {
            add(self.behind.entry(cause).or_default(), ns);
        }
        let Some(task) = blamed(link) else { return };
        let (tid, comm) = match cause {
            Cause::Scheduler => (None, derived.schedule.names.name(task.comm).to_owned()),
            _ => (Some(task.tid), thread_name(derived, link.thread.0, task)),
        };
        add(self.tasks.entry((cause, task.pid, tid, comm)).or_default(), ns);
    }
}

/// The name of a task; a thread of the run itself has it in the run's metadata.
pub(crate) fn thread_name(derived: &Derived, run: u32, task: Task) -> String {
    if task.comm != u32::MAX {
        return derived.schedule.names.name(task.comm).to_owned();
    }
    derived.thread_names.get(&(run, task.tid)).cloned().unwrap_or_default()
}

/// Finds them for one run, whose outermost slow calls these are.
pub(crate) fn find(derived: &Derived, columns: &CallColumns, run: u32, slow: &[&SlowCall]) -> Blame {
    let schedule = &derived.schedule;
    // Sleeping is what a synchronising call is for; waiting for a CPU is not.
    let counts = |row: usize, link: &Link| {
        !columns.is_sync(row)
            || (link.depth == 0 && matches!(cause_of(link), Some(Cause::Scheduler | Cause::Throttled)))
    };
    let (mut in_slow, mut in_all) = (Totals::default(), Totals::default());
    for call in slow {
        let links = call.links.iter().filter(|link| counts(call.row, link));
        links.for_each(|link| in_slow.add(derived, link));
        if let Some(dur) = columns.dur(call.row).filter(|_| !columns.is_sync(call.row)) {
            let ts = columns.ts(call.row);
            in_slow.add_sleep(derived, columns.thread(call.row), ts, ts + dur);
        }
    }
    for row in (0..columns.len()).filter(|row| columns.thread(*row).0 == run && columns.depth(*row) == 0) {
        let Some(dur) = columns.dur(row).filter(|dur| columns.parts(row).on_cpu < *dur) else { continue };
        let links = walk(schedule, columns.thread(row), columns.ts(row), columns.ts(row) + dur);
        links.iter().filter(|link| counts(row, link)).for_each(|link| in_all.add(derived, link));
        if !columns.is_sync(row) {
            in_all.add_sleep(derived, columns.thread(row), columns.ts(row), columns.ts(row) + dur);
        }
    }
    let info = derived.run(run);
    let cgroup = |pid: u32| {
        let processes = info.map(|run| run.processes.as_slice()).unwrap_or_default();
        processes.iter().find(|process| process.pid == pid).map(|process| process.cgroup.clone())
    };
    let culprits = largest_first(&in_slow.tasks)
        .into_iter()
        .take(CULPRITS)
        .map(|(key, held_ns)| {
            let run_ns = in_all.tasks.get(&key).copied().unwrap_or(held_ns);
            let (cause, pid, tid, comm) = key;
            let of_cause = in_slow.causes.get(&cause).copied().unwrap_or_default();
            let share_ratio = held_ns as f64 / (of_cause as f64).max(1.0);
            Culprit { cause, pid, tid, comm, cgroup: cgroup(pid), held_ns, run_ns, share_ratio }
        })
        .collect();
    let syscalls = largest_first(&in_all.syscalls)
        .into_iter()
        .map(|(key, run_ns)| Syscall {
            name: match key.1 {
                -1 if key.0 == Blocker::PageFault => "none: a page fault".to_owned(),
                -1 => "none on record".to_owned(),
                number => syscall_name(number).map_or_else(|| number.to_string(), str::to_owned),
            },
            blocker: key.0,
            slow_ns: in_slow.syscalls.get(&key).copied().unwrap_or_default(),
            run_ns,
        })
        .collect();
    let waits =
        slow.iter().flat_map(|call| &call.links).filter(|link| cause_of(link) == Some(Cause::Scheduler));
    let holders = waits.filter_map(|link| link.task).map(|task| task.pid).collect();
    Blame {
        culprits,
        behind: in_slow.behind,
        holders,
        syscalls,
        waiting_in_slow_ns: in_slow.causes.get(&Cause::Scheduler).copied().unwrap_or_default(),
    }
}

/// Sums by name, largest first.
fn largest_first<K: Ord + Clone>(totals: &HashMap<K, i64>) -> Vec<(K, i64)> {
    let sorted: BTreeMap<&K, i64> = totals.iter().map(|(key, ns)| (key, *ns)).collect();
    let mut list: Vec<(K, i64)> = sorted.into_iter().map(|(key, ns)| (key.clone(), ns)).collect();
    list.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    list
}
