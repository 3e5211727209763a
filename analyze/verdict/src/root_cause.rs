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
    use crate::{
        blocker::Blocker,
        causes::{Evidence, divide, largest},
    };

    fn link((ts, end): (i64, i64), depth: usize, state: State) -> Link {
        let thread = (0, 1, 1 + depth as u32);
        Link {
            ts,
            end,
            thread,
            depth,
            state,
            task: None,
            slept_in: None,
            slept_from: None,
            cpu: None,
            syscall: None,
        }
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

    #[test]
    fn each_state_stands_for_a_cause_and_blames_a_task() {
        let hog = Task { pid: 7, tid: 7, comm: 3 };
        let futex = Cause::Blocked(Blocker::Futex);
        for (state, expected) in [
            (State::Preempted, Cause::Scheduler),
            (State::Runnable, Cause::Scheduler),
            (State::Throttled, Cause::Throttled),
            (State::Stopped, Cause::Stopped),
            (State::Blocked(Blocker::Futex), futex),
        ] {
            let link = Link { task: Some(hog), ..link((0, 1), 0, state) };
            assert_eq!((cause_of(&link, false), blamed(&link)), (Some(expected), Some(hog)), "{state:?}");
        }
        let waker = Link { slept_in: Some(Blocker::Futex), task: Some(hog), ..link((0, 1), 1, State::OnCpu) };
        assert_eq!(cause_of(&waker, false), Some(futex));
        assert_eq!(blamed(&waker), Some(Task { pid: 1, tid: 2, comm: u32::MAX }), "it was working itself");
    }

    #[test]
    fn the_root_is_the_cause_and_the_task_with_most_time() {
        let task = |tid| Task { pid: 7, tid, comm: 0 };
        let link = |ns, state, by: Option<u32>| Link { task: by.map(task), ..link((0, ns), 0, state) };
        let (preempted, throttled) = (State::Preempted, State::Throttled);
        for (links, expected) in [
            (vec![link(9, State::OnCpu, Some(1))], None),
            (vec![link(5, preempted, Some(1)), link(6, throttled, None)], Some((Cause::Throttled, None))),
            // Several tasks share a cause, and some time is without a known one.
            (
                vec![
                    link(3, preempted, Some(1)),
                    link(4, State::Runnable, Some(2)),
                    link(9, preempted, None),
                    link(15, throttled, Some(3)),
                ],
                Some((Cause::Scheduler, Some(task(2)))),
            ),
            (
                vec![link(3, preempted, Some(1)), link(2, preempted, Some(2)), link(2, preempted, Some(2))],
                Some((Cause::Scheduler, Some(task(2)))),
            ),
            // Of equal ones, the first in order.
            (vec![link(5, throttled, None), link(5, preempted, None)], Some((Cause::Scheduler, None))),
            (
                vec![link(5, preempted, Some(2)), link(5, preempted, Some(1))],
                Some((Cause::Scheduler, Some(task(1)))),
            ),
        ] {
            assert_eq!(root(&links, false), expected, "{links:?}");
        }
    }
}
