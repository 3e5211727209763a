//! The cases of the courtroom: what goes wrong, who did it, and which verdict is right.
//!
//! All have the same mix of calls on one thread, pinned to one CPU. Most of them also have copies that are slow by their
//! size and first launches that load code: whoever judges by the window instead of the call falls for these.

/// Labels of verdicts, as the view `slow_calls` spells them.
pub mod label {
    /// It could have run, and another task had the CPU.
    pub const SCHEDULER: &str = "scheduler";
    /// Its control group had used up its CPU quota.
    pub const THROTTLED: &str = "throttled";
    /// It waited for a lock.
    pub const FUTEX: &str = "blocked:futex";
    /// It waited for a file's bytes.
    pub const DISK: &str = "blocked:disk";
    /// It waited for a page of a mapped file.
    pub const PAGE_FAULT: &str = "blocked:page-fault";
    /// It slept within a driver's `ioctl`.
    pub const IOCTL: &str = "blocked:ioctl";
    /// It slept for a time.
    pub const SLEEP: &str = "blocked:sleep";
    /// It waited for the GPU, which is its purpose.
    pub const GPU: &str = "gpu-wait";
    /// It moved many bytes.
    pub const SIZE: &str = "size";
    /// It was the first launch of a kernel.
    pub const FIRST: &str = "first-call";
    /// A nested call of another kind took the time.
    pub const NESTED: &str = "nested";
    /// Nothing of these.
    pub const UNEXPLAINED: &str = "unexplained";
}

/// What some calls are told to do beside their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Nothing.
    None,
    /// Wait for a lock whose holder has lost its CPU.
    Convoy,
    /// Read past the page cache.
    Disk,
    /// Touch pages that are not in memory.
    PageFault,
    /// Sleep in an `ioctl`.
    Ioctl,
    /// Load a module in a launch.
    Module,
    /// Sleep in a synchronise call.
    Gpu,
}

/// What competes for a CPU with the accused; each from a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hogs {
    /// Nothing.
    None,
    /// So many on the caller's CPU, all the time.
    Beside(usize),
    /// One on the caller's CPU, at a higher priority, half of the time.
    Above,
    /// One on the other CPU, at a higher priority, all the time.
    AboveHolder,
    /// Several on every other CPU.
    Elsewhere,
    /// One on the caller's CPU, at real-time priority, only between calls, when the caller asks for it.
    Between,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// The verdict that it is about; null where nobody is guilty.
    pub label: Option<&'static str>,
    /// Calls.
    pub calls_count: usize,
    /// Copies of many bytes, in a thousand copies.
    pub large_permille: u64,
    /// Different kernels.
    pub kernels_count: u64,
    /// What is done to some calls.
    pub injection: Injection,
    /// To how many in a thousand of those that can have it.
    pub injected_permille: u64,
    /// Who competes.
    pub hogs: Hogs,
    /// Whether a control group with a quarter of a CPU holds the accused.
    pub throttled: bool,
    /// Helper threads of the accused that mostly sleep.
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

/// All of them, in the order of the table.
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
    /// Whether they take the CPU from calls; else they may be named in no verdict on a call's own waiting for a CPU.
    pub fn meet_calls(self) -> bool {
        matches!(self, Self::Beside(_) | Self::Above)
    }
}

impl Scenario {
    /// By its name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }
}

/// Name of the threads that take CPUs away.
pub const HOG_COMM: &str = "court-hog";

/// Line that a hog says when it has begun.
pub const HOG_READY: &str = "ready";
