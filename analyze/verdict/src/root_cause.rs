//! What a chain says about why a call was off CPU: the cause and the task behind each link, and the root cause
//! of the whole chain.

use std::collections::BTreeMap;

use crate::{causes::Cause, schedule::Task, thread_state::State, walk::Link};

/// Returns the root cause of a chain: what kept the thread from running longest, and the task responsible for
/// most of it. Returns `None` if nothing kept the thread from running.
pub fn root(links: &[Link]) -> Option<(Cause, Option<Task>)> {
    let mut totals: BTreeMap<(Cause, Option<Task>), i64> = BTreeMap::new();
    for link in links {
        if let Some(cause) = cause_of(link) {
            let total = totals.entry((cause, blamed(link))).or_default();
            *total = total.saturating_add(link.end - link.ts);
        }
    }
    let mut causes: BTreeMap<Cause, i64> = BTreeMap::new();
    for ((cause, _), ns) in &totals {
        let total = causes.entry(*cause).or_default();
        *total = total.saturating_add(*ns);
    }
    let (cause, _) = causes.into_iter().rev().max_by_key(|(_, ns)| *ns)?;
    let tasks = totals.into_iter().filter(|((of, task), _)| *of == cause && task.is_some());
    let task = tasks.rev().max_by_key(|(_, ns)| *ns).and_then(|((_, task), _)| task);
    Some((cause, task))
}

/// Returns the cause that a link stands for; `None` if the link's thread was running and no other thread
/// waited for it, or if the source does not record why it was off CPU.
pub fn cause_of(link: &Link) -> Option<Cause> {
    match link.state {
        // A thread that another one waited for was working.
        State::OnCpu => link.slept_in.map(Cause::Blocked),
        State::Preempted | State::Runnable => Some(Cause::Scheduler),
        State::Throttled => Some(Cause::Throttled),
        State::Blocked(blocker) => Some(Cause::Blocked(blocker)),
        State::Stopped => Some(Cause::Stopped),
        State::Unknown => None,
    }
}

/// Returns the task that a link is attributed to. A thread that was running while another one waited for it
/// has `u32::MAX` as the number of its name.
pub fn blamed(link: &Link) -> Option<Task> {
    match link.state {
        State::OnCpu => {
            let (_, pid, tid) = link.thread;
            Some(Task { pid, tid, comm: u32::MAX })
        }
        _ => link.task,
    }
}
