//! The scenarios of the courtroom: the fault, its cause, and the right verdict.
//!
//! All have the same mix of calls on one thread, pinned to one CPU. Most of them also have copies that are slow by their
//! size and first launches that load code: whoever judges by the window instead of the call falls for these.

/// Labels of verdicts, as the view `slow_calls` spells them.
pub mod label {
    /// The thread was runnable while another task had the CPU.
    pub const SCHEDULER: &str = "scheduler";
    /// The thread's control group had used up its CPU quota.
    pub const THROTTLED: &str = "throttled";
    /// The thread waited for a lock.
    pub const FUTEX: &str = "blocked:futex";
    /// The thread waited for a read from a file.
    pub const DISK: &str = "blocked:disk";
    /// The thread waited for a page of a mapped file.
    pub const PAGE_FAULT: &str = "blocked:page-fault";
    /// The thread slept within a driver's `ioctl`.
    pub const IOCTL: &str = "blocked:ioctl";
    /// The thread slept for a fixed time.
    pub const SLEEP: &str = "blocked:sleep";
    /// The call waited for the GPU, which is its purpose.
    pub const GPU: &str = "gpu-wait";
    /// The call moved many bytes.
    pub const SIZE: &str = "size";
    /// The call was the first launch of a kernel.
    pub const FIRST: &str = "first-call";
    /// A nested call of another kind took the time.
    pub const NESTED: &str = "nested";
    /// None of these causes explains the call.
    pub const UNEXPLAINED: &str = "unexplained";
}

/// The fault that some calls are told to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// There is none.
    None,
    /// The call waits for a lock whose holder was preempted.
    Convoy,
    /// The call reads a file past the page cache.
    Disk,
    /// The call touches pages that are not in memory.
    PageFault,
    /// The call sleeps in an `ioctl`.
    Ioctl,
    /// A launch loads a module.
    Module,
    /// A synchronization call sleeps.
    Gpu,
}

/// The hogs that compete with the workload for CPUs; each is a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hogs {
    /// There is none.
    None,
    /// This number of hogs on the caller's CPU, all the time.
    Beside(usize),
    /// One hog on the caller's CPU, at a higher priority, half of the time.
    Above,
    /// One hog on the other CPU, at a higher priority, all the time.
    AboveHolder,
    /// Several hogs on every other CPU.
    Elsewhere,
    /// One hog on the caller's CPU, at real-time priority, only between calls, when the caller asks for it.
    Between,
}

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: &'static str,
    /// The verdict that is right for the faulty calls; null if no call has a fault.
    pub label: Option<&'static str>,
    /// Number of calls.
    pub calls_count: usize,
    /// Number of large copies in a thousand copies.
    pub large_permille: u64,
    /// Number of different kernels.
    pub kernels_count: u64,
    /// Fault of some calls.
    pub injection: Injection,
    /// Number of calls with the fault in a thousand of those that can have it.
    pub injected_permille: u64,
    /// Hogs that compete for CPUs.
    pub hogs: Hogs,
    /// Whether the workload runs in a control group with a quarter of a CPU.
    pub throttled: bool,
    /// Number of helper threads of the workload that mostly sleep.
    pub sleepers_count: usize,
}

const PLAIN: Scenario = Scenario {
    name: "nothing",
    label: None,
    calls_count: 20_000,
    large_permille: 20,
    kernels_count: 8,
    injection: Injection::None,
    injected_permille: 0,
    hogs: Hogs::None,
    throttled: false,
    sleepers_count: 0,
};

/// All scenarios, in the order of the table.
pub const SCENARIOS: [Scenario; 16] = [
    Scenario { large_permille: 0, ..PLAIN },
    Scenario { name: "size_only", label: Some(label::SIZE), large_permille: 80, ..PLAIN },
    Scenario {
        name: "first_call_only",
        label: Some(label::FIRST),
        large_permille: 0,
        kernels_count: 300,
        ..PLAIN
    },
    Scenario { name: "hog_equal", label: Some(label::SCHEDULER), hogs: Hogs::Beside(1), ..PLAIN },
    Scenario { name: "hog_higher", label: Some(label::SCHEDULER), hogs: Hogs::Above, ..PLAIN },
    Scenario {
        name: "many_hogs",
        label: Some(label::SCHEDULER),
        hogs: Hogs::Beside(5),
        calls_count: 12_000,
        ..PLAIN
    },
    Scenario { name: "throttle", label: Some(label::THROTTLED), throttled: true, ..PLAIN },
    Scenario {
        name: "futex_convoy",
        label: Some(label::FUTEX),
        injection: Injection::Convoy,
        injected_permille: 25,
        hogs: Hogs::AboveHolder,
        calls_count: 6_000,
        ..PLAIN
    },
    Scenario {
        name: "disk_wait",
        label: Some(label::DISK),
        injection: Injection::Disk,
        injected_permille: 30,
        ..PLAIN
    },
    Scenario {
        name: "major_faults",
        label: Some(label::PAGE_FAULT),
        injection: Injection::PageFault,
        injected_permille: 30,
        ..PLAIN
    },
    Scenario {
        name: "ioctl_sleep",
        label: Some(label::IOCTL),
        injection: Injection::Ioctl,
        injected_permille: 30,
        ..PLAIN
    },
    Scenario {
        name: "slow_driver_call",
        label: Some(label::NESTED),
        injection: Injection::Module,
        injected_permille: 50,
        ..PLAIN
    },
    Scenario {
        name: "decoy_sleepy_helpers",
        label: Some(label::SIZE),
        large_permille: 80,
        sleepers_count: 24,
        ..PLAIN
    },
    Scenario {
        name: "decoy_other_cores",
        label: Some(label::SIZE),
        large_permille: 80,
        hogs: Hogs::Elsewhere,
        ..PLAIN
    },
    Scenario {
        name: "decoy_outside",
        label: Some(label::SIZE),
        large_permille: 80,
        hogs: Hogs::Between,
        ..PLAIN
    },
    Scenario {
        name: "sync_wait",
        label: Some(label::GPU),
        injection: Injection::Gpu,
        injected_permille: 150,
        ..PLAIN
    },
];

impl Hogs {
    /// Whether the hogs preempt calls; if not, no verdict on a call's own wait for a CPU may name them.
    pub fn meet_calls(self) -> bool {
        matches!(self, Self::Beside(_) | Self::Above)
    }
}

impl Scenario {
    /// The scenario with the given name; `None` if there is none.
    pub fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }
}

/// Thread name of the hogs.
pub const HOG_COMM: &str = "court-hog";

/// Line that a hog prints when it has begun.
pub const HOG_READY: &str = "ready";
