//! What is behind the off-CPU time of calls: the tasks that held the CPU, the threads that were waited for,
//! and the system calls slept in. Totals are over the whole run and over its slow calls. Only top-level calls
//! count, because a nested call's time is also in the call around it.

use serde::Serialize;
use trace_schema::Class;

use crate::derived::Derived;
use crate::{
    blocker::{Blocker, syscall_name},
    causes::{self, Cause},
    classify::{SlowCall, blamed, cause_of},
    schedule::{Task, ThreadKey},
    thread_state::State,
    walk::{Link, Walker},
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

/// Cause, process ID, thread ID, and number of the task's name in `Names`.
type Key = (Cause, u32, Option<u32>, u32);

fn add(total: &mut i64, ns: i64) {
    *total = total.saturating_add(ns);
}

/// Sums over calls, in nanoseconds.
#[derive(Debug, Default)]
pub struct Totals {
    tasks: HashMap<Key, i64>,
    causes: [i64; causes::COUNT],
    /// Part of `causes` that is off-CPU time of threads other than the call's.
    behind: [i64; causes::COUNT],
    syscalls: HashMap<(Blocker, i64), i64>,
}

/// Returns whether a link counts. A synchronizing call is expected to sleep, but not to wait for a CPU.
fn counts(is_sync: bool, link: &Link) -> bool {
    !is_sync || (link.depth == 0 && matches!(cause_of(link), Some(Cause::Scheduler | Cause::Throttled)))
}

impl Totals {
    /// Adds the sums of other calls.
    pub fn merge(&mut self, other: Self) {
        for (key, ns) in other.tasks {
            add(self.tasks.entry(key).or_default(), ns);
        }
        for (key, ns) in other.syscalls {
            add(self.syscalls.entry(key).or_default(), ns);
        }
        self.causes.iter_mut().zip(other.causes).for_each(|(total, ns)| add(total, ns));
        self.behind.iter_mut().zip(other.behind).for_each(|(total, ns)| add(total, ns));
    }

    /// Adds one call of a thread: its chain, and the system calls it slept in. Returns the chain.
    pub fn add_call<'a>(
        &mut self,
        walker: &'a mut Walker<'_>,
        thread_names: &HashMap<(u32, u32), u32>,
        is_sync: bool,
        slot: usize,
        (ts, end): (i64, i64),
    ) -> &'a [Link] {
        if !is_sync {
            walker.cut(slot, (ts, end), |from, to, state, piece| {
                if let (State::Blocked(blocker), Some(piece)) = (state, piece) {
                    add(
                        self.syscalls.entry((blocker, piece.syscall().unwrap_or(-1))).or_default(),
                        to - from,
                    );
                }
            });
        }
        let links = walker.walk(slot, ts, end);
        let counted = links.iter().filter(|link| counts(is_sync, link));
        counted.for_each(|link| self.add(thread_names, link));
        links
    }

    /// Adds one link of a chain.
    fn add(&mut self, thread_names: &HashMap<(u32, u32), u32>, link: &Link) {
        let ns = link.end - link.ts;
        let Some(cause) = cause_of(link) else { return };
        add(&mut self.causes[cause.index()], ns);
        if link.depth > 0 && link.state != State::OnCpu {
            add(&mut self.behind[cause.index()], ns);
        }
        let Some(task) = blamed(link) else { return };
        let (tid, comm) = match cause {
            Cause::Scheduler => (None, task.comm),
            _ => (Some(task.tid), name_number(thread_names, link.thread.0, task)),
        };
        add(self.tasks.entry((cause, task.pid, tid, comm)).or_default(), ns);
    }
}

/// Returns the number of a task's name. The run's metadata has the names of its own threads. The result is
/// `u32::MAX` if there is no name.
fn name_number(thread_names: &HashMap<(u32, u32), u32>, run: u32, task: Task) -> u32 {
    match task.comm {
        u32::MAX => thread_names.get(&(run, task.tid)).copied().unwrap_or(u32::MAX),
        comm => comm,
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
            if cause_of(link) == Some(Cause::Scheduler) {
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
