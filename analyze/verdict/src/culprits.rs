//! What is behind the off-CPU time of calls: the tasks that held the CPU, the threads that were waited for,
//! and the system calls slept in. Totals are over the whole run and over its slow calls. Only top-level calls
//! count, because a nested call's time is also in the call around it.

use serde::Serialize;
use trace_schema::Class;

use crate::{
    blocker::{Blocker, syscall_name},
    causes::{self, Cause},
    classify::SlowCall,
    derived::Derived,
    off_cpu_totals::{Key, Totals, name_number},
    root_cause::cause_of,
    schedule::{Task, ThreadKey},
    walk::Walker,
};
use analyze_run::hash::{HashMap, HashSet};

/// Maximum number of culprits that are kept.
const CULPRITS: usize = 20;

/// A task behind the off-CPU time of calls. Threads of a process that held a CPU are one culprit; threads
/// that were waited for are told apart.
#[derive(Clone, Debug, Serialize)]
pub struct Culprit {
    /// What the task caused: for `scheduler`, it held the CPU; for `blocked:…`, a call waited for it; for
    /// `stopped`, it continued the thread.
    pub cause: Cause,
    /// Process ID.
    pub pid: u32,
    /// Thread ID; `None` for `scheduler`, because threads that held a CPU are summed by process.
    pub tid: Option<u32>,
    /// Name of the task; empty if it is not known.
    pub comm: String,
    /// Control group of the process, if it is a traced one.
    pub cgroup: Option<String>,
    /// Time in slow calls in nanoseconds.
    pub held_ns: i64,
    /// Time in all calls of the run in nanoseconds.
    pub run_ns: i64,
    /// Share of `held_ns` in all time of this cause in slow calls, from 0 to 1.
    pub share_ratio: f64,
}

/// A system call in which calls slept.
#[derive(Clone, Debug, Serialize)]
pub struct Syscall {
    /// Name of the system call, or its number if the name is not known.
    pub name: String,
    /// Class of blocking.
    pub blocker: Blocker,
    /// Time in slow calls in nanoseconds.
    pub slow_ns: i64,
    /// Time in all calls of the run in nanoseconds.
    pub run_ns: i64,
}

/// What was found behind the off-CPU time of one run's calls.
pub struct Blame {
    /// The culprits, those with most time in slow calls first.
    pub culprits: Vec<Culprit>,
    /// The system calls, those with most time in the run first.
    pub syscalls: Vec<Syscall>,
    /// Time in which threads waited for a CPU inside slow calls, over all threads of the calls' chains, in
    /// nanoseconds.
    pub waiting_in_slow_ns: i64,
    /// Off-CPU time of other threads in the chains of slow calls, by cause, in nanoseconds.
    behind: [i64; causes::COUNT],
    /// Processes that held a CPU while a slow call waited for it.
    pub holders: HashSet<u32>,
    /// Threads in the chains of slow calls.
    pub involved: HashSet<ThreadKey>,
}

impl Blame {
    /// Returns the off-CPU time of other threads in the chains of slow calls that is due to `cause`, in
    /// nanoseconds.
    pub fn behind_ns(&self, cause: Cause) -> i64 {
        self.behind[cause.index()]
    }
}

/// Returns the name of a task; it is empty if it is not in the recording.
pub fn thread_name(derived: &Derived, run: u32, task: Task) -> &str {
    derived.schedule.names.name(name_number(&derived.thread_names, run, task))
}

/// Sums what is behind the off-CPU time of one run; `slow` are its top-level slow calls.
pub fn find(derived: &Derived, run: u32, slow: &[&SlowCall]) -> Blame {
    let schedule = &derived.schedule;
    let mut in_slow = Totals::default();
    let (mut holders, mut involved) = (HashSet::default(), HashSet::default());
    let mut walker = Walker::new(schedule);
    // A call that was running all the time waited for no other task.
    for call in slow.iter().filter(|call| call.has_chain) {
        let is_sync = schedule.names.class(derived.judgement.kind(call).op) == Some(Class::Sync);
        let (slot, time) = (call.call.slot(), (call.call.ts, call.call.end()));
        for link in in_slow.add_call(&mut walker, &derived.thread_names, is_sync, slot, time) {
            involved.insert(link.thread);
            involved.extend(link.task.map(|task| (run, task.pid, task.tid)));
            if cause_of(link, is_sync) == Some(Cause::Scheduler) {
                holders.extend(link.task.map(|task| task.pid));
            }
        }
    }
    let none = Totals::default();
    let in_all = derived.totals.get(&run).unwrap_or(&none);
    let named = |(cause, pid, tid, comm): Key| (cause, pid, tid, schedule.names.name(comm));
    let info = derived.run(run);
    let cgroup = |pid: u32| {
        let processes = info.map(|run| run.processes.as_slice()).unwrap_or_default();
        processes.iter().find(|process| process.pid == pid).map(|process| process.cgroup.clone())
    };
    let culprits = largest_first(&in_slow.tasks, |key| named(*key))
        .into_iter()
        .take(CULPRITS)
        .map(|(key, held_ns)| {
            let run_ns = in_all.tasks.get(&key).copied().unwrap_or(held_ns);
            let (cause, pid, tid, comm) = key;
            let comm = schedule.names.name(comm).to_owned();
            let of_cause = in_slow.causes[cause.index()];
            let share_ratio = held_ns as f64 / (of_cause as f64).max(1.0);
            Culprit { cause, pid, tid, comm, cgroup: cgroup(pid), held_ns, run_ns, share_ratio }
        })
        .collect();
    let syscalls = largest_first(&in_all.syscalls, |key| *key)
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
    Blame {
        culprits,
        behind: in_slow.behind,
        holders,
        involved,
        syscalls,
        waiting_in_slow_ns: in_slow.causes[Cause::Scheduler.index()],
    }
}

/// Returns the sums, largest first; equal ones are sorted by name.
fn largest_first<K: Copy, N: Ord>(totals: &HashMap<K, i64>, name: impl Fn(&K) -> N) -> Vec<(K, i64)> {
    let mut list: Vec<(K, i64)> = totals.iter().map(|(key, ns)| (*key, *ns)).collect();
    list.sort_by_cached_key(|(key, ns)| (std::cmp::Reverse(*ns), name(key)));
    list
}
