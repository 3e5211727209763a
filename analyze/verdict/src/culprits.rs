//! Who is behind the off-CPU time of calls: the tasks that had the CPU, the threads that were waited for, the
//! system calls slept in. Totals over the whole run, and over its slow calls; outermost calls only, because
//! a nested call's time stands in the one around it.

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

/// Culprits kept.
const CULPRITS: usize = 20;

/// A task behind off-CPU time of calls. Processes by name and number; a thread of the traced process by its own.
#[derive(Clone, Debug, Serialize)]
pub struct Culprit {
    /// What it is behind: `scheduler`: it had the CPU; `blocked:…`: it was waited for.
    pub cause: Cause,
    pub pid: u32,
    /// Threads of the same process are told apart only where they were waited for.
    pub tid: Option<u32>,
    pub comm: String,
    /// Its control group, if it is a traced process.
    pub cgroup: Option<String>,
    /// In slow calls.
    pub held_ns: i64,
    /// In all calls of the run.
    pub run_ns: i64,
    /// Share of this cause's time in slow calls.
    pub share_ratio: f64,
}

/// A system call in which calls slept.
#[derive(Clone, Debug, Serialize)]
pub struct Syscall {
    pub name: String,
    pub blocker: Blocker,
    pub slow_ns: i64,
    pub run_ns: i64,
}

/// Everything found.
pub struct Blame {
    /// Longest in slow calls first.
    pub culprits: Vec<Culprit>,
    pub syscalls: Vec<Syscall>,
    /// Waiting for a CPU inside slow calls, in all threads of their chains.
    pub waiting_in_slow_ns: i64,
    /// Time of other threads in the chains of slow calls, by cause.
    behind: [i64; causes::COUNT],
    /// Processes that had a CPU while a slow call waited for it.
    pub holders: HashSet<u32>,
    /// Threads in the chains of slow calls.
    pub involved: HashSet<ThreadKey>,
}

impl Blame {
    /// Time of other threads in the chains of slow calls that had this cause.
    pub fn behind_ns(&self, cause: Cause) -> i64 {
        self.behind[cause.index()]
    }
}

/// Cause, process, thread, number of the name.
type Key = (Cause, u32, Option<u32>, u32);

fn add(total: &mut i64, ns: i64) {
    *total = total.saturating_add(ns);
}

/// Sums over calls.
#[derive(Debug, Default)]
pub struct Totals {
    tasks: HashMap<Key, i64>,
    causes: [i64; causes::COUNT],
    /// Of that, time of other threads than the call's.
    behind: [i64; causes::COUNT],
    syscalls: HashMap<(Blocker, i64), i64>,
}

/// Sleeping is what a synchronising call is for; waiting for a CPU is not.
fn counts(is_sync: bool, link: &Link) -> bool {
    !is_sync || (link.depth == 0 && matches!(cause_of(link), Some(Cause::Scheduler | Cause::Throttled)))
}

impl Totals {
    /// Adds those of other calls.
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

    /// Adds one call of a thread: its chain, which it gives back, and what it slept in.
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

/// The number of a task's name; a thread of the run itself has it in the run's metadata. `u32::MAX`: it has none.
fn name_number(thread_names: &HashMap<(u32, u32), u32>, run: u32, task: Task) -> u32 {
    match task.comm {
        u32::MAX => thread_names.get(&(run, task.tid)).copied().unwrap_or(u32::MAX),
        comm => comm,
    }
}

/// The name of a task; empty: not on record.
pub fn thread_name(derived: &Derived, run: u32, task: Task) -> &str {
    derived.schedule.names.name(name_number(&derived.thread_names, run, task))
}

/// Finds them for one run, whose outermost slow calls these are.
pub fn find(derived: &Derived, run: u32, slow: &[&SlowCall]) -> Blame {
    let schedule = &derived.schedule;
    let mut in_slow = Totals::default();
    let (mut holders, mut involved) = (HashSet::default(), HashSet::default());
    let mut walker = Walker::new(schedule);
    // Who ran all the time waited for nobody.
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

/// Sums, largest first; of equal ones by name.
fn largest_first<K: Copy, N: Ord>(totals: &HashMap<K, i64>, name: impl Fn(&K) -> N) -> Vec<(K, i64)> {
    let mut list: Vec<(K, i64)> = totals.iter().map(|(key, ns)| (*key, *ns)).collect();
    list.sort_by_cached_key(|(key, ns)| (std::cmp::Reverse(*ns), name(key)));
    list
}
