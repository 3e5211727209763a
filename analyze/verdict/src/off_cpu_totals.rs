//! Sums of what top-level calls waited for: by task, by cause, and by system call.

use crate::{
    blocker::Blocker,
    causes::{self, Cause},
    root_cause::{blamed, cause_of},
    schedule::Task,
    thread_state::State,
    walk::{Link, Walker},
};
use analyze_run::hash::HashMap;

/// Cause, process ID, thread ID, and number of the task's name in `Names`.
pub(super) type Key = (Cause, u32, Option<u32>, u32);

fn add(total: &mut i64, ns: i64) {
    *total = total.saturating_add(ns);
}

/// Sums over calls, in nanoseconds.
#[derive(Debug, Default)]
pub struct Totals {
    pub(super) tasks: HashMap<Key, i64>,
    pub(super) causes: [i64; causes::COUNT],
    /// Part of `causes` that is off-CPU time of threads other than the call's.
    pub(super) behind: [i64; causes::COUNT],
    pub(super) syscalls: HashMap<(Blocker, i64), i64>,
}

/// Returns whether a link counts. A synchronizing call is expected to sleep, but not to wait for a CPU.
fn counts(is_sync: bool, link: &Link) -> bool {
    !is_sync
        || (link.depth == 0 && matches!(cause_of(link, is_sync), Some(Cause::Scheduler | Cause::Throttled)))
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
            walker.cut(slot, (ts, end), |from, to, state, thread_state| {
                if let (State::Blocked(blocker), Some(thread_state)) = (state, thread_state) {
                    add(
                        self.syscalls.entry((blocker, thread_state.syscall().unwrap_or(-1))).or_default(),
                        to - from,
                    );
                }
            });
        }
        let links = walker.walk(slot, ts, end);
        let counted = links.iter().filter(|link| counts(is_sync, link));
        counted.for_each(|link| self.add(thread_names, is_sync, link));
        links
    }

    /// Adds one link of a chain.
    fn add(&mut self, thread_names: &HashMap<(u32, u32), u32>, is_sync: bool, link: &Link) {
        // Without a reason, there is no wait for a CPU and no task to name.
        if link.state == State::Unknown {
            return;
        }
        let ns = link.end - link.ts;
        let Some(cause) = cause_of(link, is_sync) else { return };
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
pub(super) fn name_number(thread_names: &HashMap<(u32, u32), u32>, run: u32, task: Task) -> u32 {
    match task.comm {
        u32::MAX => thread_names.get(&(run, task.tid)).copied().unwrap_or(u32::MAX),
        comm => comm,
    }
}
