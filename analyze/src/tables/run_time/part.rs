//! What a span of a process's time was spent on.

use analyze_verdict::{blocker::Blocker, thread_state::State, walk::Link};
use trace_schema::Class;

/// Columns of the parts of a step. Sleep is one of them, whatever the thread slept for.
pub(in crate::tables) const STEP_COLUMNS: [&str; 14] = [
    "host_ns",
    "launch_ns",
    "sync_ns",
    "alloc_ns",
    "copy_ns",
    "nccl_ns",
    "module_ns",
    "other_call_ns",
    "other_thread_ns",
    "waiting_for_cpu_ns",
    "throttled_ns",
    "blocked_ns",
    "stopped_ns",
    "unknown_ns",
];

/// What a span of time on the path was spent on. The order is that of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    /// The thread that drives the GPU ran outside of CUDA and NCCL calls.
    Host,
    /// A call of this class.
    Call(CallPart),
    /// A thread that the driving thread waited for ran, and is none that drives the GPU.
    OtherThread,
    /// A thread waited for CPython's global interpreter lock, and the thread that had the lock ran.
    InterpreterLock,
    /// A thread was runnable, and another task had the CPU.
    WaitingForCpu,
    /// A thread was runnable, and its control group had used up its quota.
    Throttled,
    /// A thread slept outside of calls, and the record does not lead on to who it waited for.
    Blocked(Blocker),
    /// A thread was stopped by a signal.
    Stopped,
    /// The record does not say.
    Unknown,
}

/// Classes of calls that an account of a run tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum CallPart {
    Launch,
    Sync,
    Alloc,
    Copy,
    Nccl,
    Module,
    Other,
}

impl CallPart {
    /// Returns the part that calls of a class belong to.
    fn of(class: Option<Class>) -> Self {
        match class {
            Some(Class::Launch) => Self::Launch,
            Some(Class::Sync) => Self::Sync,
            Some(Class::Alloc | Class::Free | Class::Map) => Self::Alloc,
            Some(Class::Copy | Class::Set) => Self::Copy,
            Some(Class::Collective | Class::PointToPoint | Class::Communicator) => Self::Nccl,
            Some(Class::Module | Class::Graph) => Self::Module,
            _ => Self::Other,
        }
    }
}

impl Part {
    /// The name of the part in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Call(CallPart::Launch) => "launch",
            Self::Call(CallPart::Sync) => "sync",
            Self::Call(CallPart::Alloc) => "alloc",
            Self::Call(CallPart::Copy) => "copy",
            Self::Call(CallPart::Nccl) => "nccl",
            Self::Call(CallPart::Module) => "module",
            Self::Call(CallPart::Other) => "other_call",
            Self::OtherThread => "other_thread",
            Self::InterpreterLock => "gil",
            Self::WaitingForCpu => "waiting_for_cpu",
            Self::Throttled => "throttled",
            Self::Blocked(blocker) => match blocker {
                Blocker::Ioctl => "ioctl",
                Blocker::Futex => "futex",
                Blocker::PageFault => "page_fault",
                Blocker::Disk => "disk",
                Blocker::Sleep => "sleep",
                Blocker::Poll => "poll",
                Blocker::Other => "blocked",
            },
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the index of the part's column in [`STEP_COLUMNS`].
    pub(super) fn step_column(self) -> usize {
        match self {
            Self::Host => 0,
            Self::Call(CallPart::Launch) => 1,
            Self::Call(CallPart::Sync) => 2,
            Self::Call(CallPart::Alloc) => 3,
            Self::Call(CallPart::Copy) => 4,
            Self::Call(CallPart::Nccl) => 5,
            Self::Call(CallPart::Module) => 6,
            Self::Call(CallPart::Other) => 7,
            Self::OtherThread | Self::InterpreterLock => 8,
            Self::WaitingForCpu => 9,
            Self::Throttled => 10,
            Self::Blocked(_) => 11,
            Self::Stopped => 12,
            Self::Unknown => 13,
        }
    }

    /// Returns what a link of the path was spent on. `own` is the class of the top-level call that the link's thread was
    /// in, if it was in one; `asked` is that of the driving thread, whose path it is; `drives` is whether the link's thread
    /// launches work, too; `has_gil` is whether it had the global interpreter lock that the driving thread waited for.
    ///
    /// Waiting for a CPU, for quota or for a signal is that, wherever it happens. A thread that waits for the GPU may
    /// sleep until another thread of the driver wakes it: what that one did is part of the synchronizing call.
    pub(super) fn of(
        link: &Link,
        own: Option<Option<Class>>,
        asked: Option<Option<Class>>,
        drives: bool,
        has_gil: bool,
    ) -> Self {
        let in_sync = asked == Some(Some(Class::Sync));
        match link.state {
            State::Preempted | State::Runnable => Self::WaitingForCpu,
            State::Throttled => Self::Throttled,
            State::Stopped => Self::Stopped,
            _ if in_sync => Self::Call(CallPart::Sync),
            State::OnCpu | State::Blocked(Blocker::Ioctl) | State::Unknown if own.is_some() => {
                Self::Call(CallPart::of(own.flatten()))
            }
            State::Blocked(_) if own == Some(Some(Class::Sync)) => Self::Call(CallPart::Sync),
            State::OnCpu if has_gil => Self::InterpreterLock,
            State::OnCpu if drives => Self::Host,
            State::OnCpu => Self::OtherThread,
            State::Blocked(blocker) => Self::Blocked(blocker),
            State::Unknown => Self::Unknown,
        }
    }
}

/// Returns the name of a state in tables.
pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::OnCpu => "on-cpu",
        State::Preempted => "preempted",
        State::Runnable => "runnable",
        State::Throttled => "throttled",
        State::Blocked(_) => "blocked",
        State::Stopped => "stopped",
        State::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(depth: usize, state: State) -> Link {
        Link {
            ts: 0,
            end: 10,
            thread: (0, 1, 1),
            depth,
            state,
            task: None,
            slept_in: None,
            slept_from: None,
            cpu: None,
            syscall: None,
        }
    }

    #[test]
    fn each_part_has_the_column_of_its_name() {
        let calls = [
            CallPart::Launch,
            CallPart::Sync,
            CallPart::Alloc,
            CallPart::Copy,
            CallPart::Nccl,
            CallPart::Module,
            CallPart::Other,
        ];
        let others = [
            Part::Host,
            Part::OtherThread,
            Part::WaitingForCpu,
            Part::Throttled,
            Part::Blocked(Blocker::Other),
            Part::Stopped,
            Part::Unknown,
        ];
        for part in calls.map(Part::Call).into_iter().chain(others) {
            assert_eq!(STEP_COLUMNS[part.step_column()], format!("{}_ns", part.name()));
        }
        let columns = [Blocker::Futex, Blocker::Disk].map(|blocker| Part::Blocked(blocker).step_column());
        assert_eq!(columns, [Part::Blocked(Blocker::Other).step_column(); 2]);
    }

    #[test]
    fn each_link_has_one_part() {
        let (launch, sync, alloc) =
            (Some(Some(Class::Launch)), Some(Some(Class::Sync)), Some(Some(Class::Alloc)));
        let futex = State::Blocked(Blocker::Futex);
        let ioctl = State::Blocked(Blocker::Ioctl);
        for (depth, state, own, asked, drives, expected) in [
            (0, State::OnCpu, None, None, true, "host"),
            (0, State::OnCpu, launch, launch, true, "launch"),
            (0, State::Preempted, launch, launch, true, "waiting_for_cpu"),
            (0, State::Runnable, None, None, true, "waiting_for_cpu"),
            (0, futex, None, None, true, "futex"),
            (0, futex, launch, launch, true, "futex"),
            (0, ioctl, alloc, alloc, true, "alloc"),
            (0, futex, sync, sync, true, "sync"),
            (1, State::Blocked(Blocker::Poll), None, sync, false, "sync"),
            (1, State::Preempted, None, sync, false, "waiting_for_cpu"),
            (1, State::OnCpu, None, None, false, "other_thread"),
            (1, State::OnCpu, None, None, true, "host"),
            (1, State::OnCpu, launch, None, true, "launch"),
            (1, futex, sync, None, true, "sync"),
            (1, State::Blocked(Blocker::Disk), None, None, false, "disk"),
            (0, State::Unknown, alloc, alloc, true, "alloc"),
            (0, State::Unknown, None, None, true, "unknown"),
            (0, State::Throttled, sync, sync, true, "throttled"),
            (0, State::Stopped, None, None, true, "stopped"),
        ] {
            let found = Part::of(&link(depth, state), own, asked, drives, false);
            assert_eq!(found.name(), expected, "{depth} {state:?} {own:?} {asked:?} {drives}");
        }
        for (state, own, asked, expected) in [
            (State::OnCpu, None, None, "gil"),
            (State::OnCpu, launch, None, "launch"),
            (State::OnCpu, None, sync, "sync"),
            (State::Preempted, None, None, "waiting_for_cpu"),
            (State::Blocked(Blocker::Disk), None, None, "disk"),
        ] {
            assert_eq!(
                Part::of(&link(1, state), own, asked, true, true).name(),
                expected,
                "{state:?} {own:?}"
            );
        }
    }
}
