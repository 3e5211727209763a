//! What a chain says about why a call was off CPU: the cause and the task behind each link, and the root cause
//! of the whole chain.

use std::collections::BTreeMap;

use crate::{causes::Cause, schedule::Task, thread_state::State, walk::Link};

/// Returns the root cause of a call's chain: what kept the thread from running longest, and the task responsible for
/// most of it. Returns `None` if nothing kept the thread from running.
pub fn root(links: &[Link], synchronises: bool) -> Option<(Cause, Option<Task>)> {
    let mut totals: BTreeMap<(Cause, Option<Task>), i64> = BTreeMap::new();
    for link in links {
        if let Some(cause) = cause_of(link, synchronises) {
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
/// waited for it. `synchronises` is whether the call, if it is one, has a reason to sleep; nothing is known of that for
/// other threads, and for time outside of calls.
pub fn cause_of(link: &Link, synchronises: bool) -> Option<Cause> {
    match link.state {
        // A thread that another one waited for was working.
        State::OnCpu => link.slept_in.map(Cause::Blocked),
        State::Preempted | State::Runnable => Some(Cause::Scheduler),
        State::Throttled => Some(Cause::Throttled),
        State::Blocked(blocker) => Some(Cause::Blocked(blocker)),
        State::Stopped => Some(Cause::Stopped),
        State::Unknown => Some(Cause::unrecorded(synchronises || link.depth > 0)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::{Evidence, divide, largest};

    fn link((ts, end): (i64, i64), depth: usize, state: State) -> Link {
        let thread = (0, 1, 1 + depth as u32);
        Link { ts, end, thread, depth, state, task: None, slept_in: None, cpu: None, syscall: None }
    }

    /// What the division of the excess and the chain say of one call is one thing.
    #[test]
    fn time_without_a_reason_has_the_cause_that_the_division_gives_it() {
        let preempted_ns = 100;
        for (synchronises, expected) in [(false, Cause::Scheduler), (true, Cause::Inconclusive)] {
            let links = [
                link((0, 1000), 0, State::Unknown),
                link((1000, 1100), 0, State::Preempted),
                link((1100, 1200), 0, State::OnCpu),
            ];
            let evidence = Evidence {
                excess: 1100.0,
                synchronises,
                unknown: 1000.0,
                waiting: preempted_ns as f64,
                ..Evidence::default()
            };
            assert_eq!(largest(&divide(&evidence)), expected);
            assert_eq!(root(&links, synchronises), Some((expected, None)));
            assert_eq!(cause_of(&links[0], synchronises), Some(expected));
            assert_eq!(cause_of(&links[2], synchronises), None);
        }
        // Why another thread was off CPU is not known, whatever the call is.
        assert_eq!(cause_of(&link((0, 1), 1, State::Unknown), false), Some(Cause::Inconclusive));
    }
}
