//! What the file says about itself: its version and the circumstances of the recording, as key/value
//! metadata of the Parquet file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the format. A reader refuses a newer one. Bump it when a column is renamed, retyped or
/// removed or a value changes its meaning; a column added at the end does not count.
pub const FORMAT_VERSION: u32 = 1;

/// Metadata key of [`FORMAT_VERSION`], in decimal. Its presence makes a Parquet file a run.
pub const META_VERSION: &str = "inquest.format_version";

/// Metadata key of [`Run`], as JSON.
pub const META_RUN: &str = "inquest.run";

/// Circumstances of one recording. Whatever the source did not tell is absent, not guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Program and version that wrote the file, or the importer.
    pub producer: String,
    /// The traced command, or how its processes were chosen.
    pub command: Vec<String>,
    /// The processes ran before recording began: what came first in the run need not have come first.
    pub joined_running: bool,
    /// The machine.
    pub host: Host,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Recording time, and how its clock relates to the wall.
    pub clock: Clock,
    /// Libraries in which probes were placed.
    pub libraries: Vec<Library>,
    /// Every function probe that was tried, with the outcome.
    pub probes: Vec<AttachedProbe>,
    /// What was probed: light, default or full.
    pub profile: String,
    /// How function probes were placed: session, multi or single.
    pub attach_method: String,
    /// Traced processes.
    pub processes: Vec<ProcessInfo>,
    /// A run in parts: number of this one, from 1. 0: the run is this file.
    pub part_number: u32,
    /// This part ends the run.
    pub part_is_last: bool,
    /// Threads seen, with their last names.
    pub threads: Vec<Thread>,
    /// Events lost, by probe and interval. Empty: none were.
    pub lost: Vec<Lost>,
    /// Whether the source counts what it loses. If not, an empty `lost` proves nothing.
    pub lost_is_counted: bool,
    /// Off-CPU time of throttled control groups is told apart (`throttled`); if not, it counts as `preempted`.
    pub throttling_is_recorded: bool,
    /// In plain words, what this trace cannot show.
    pub not_captured: Vec<String>,
    /// Profiles whose rows were moved onto this run's clock.
    pub alignments: Vec<Alignment>,
}

/// The recording machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Operating system.
    pub os: String,
    /// Processor model.
    pub cpu: String,
    /// Logical processors.
    pub cpu_count: u32,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Model.
    pub name: String,
    /// Driver version.
    pub driver: String,
}

/// Recording time. All in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// CLOCK_MONOTONIC when recording began.
    pub start_ns: i64,
    /// CLOCK_MONOTONIC when it ended.
    pub end_ns: i64,
    /// What to add to a monotonic time to get Unix time, measured at the start.
    pub wall_offset_ns: i64,
    /// Upper bound of that measurement's error.
    pub wall_error_ns: i64,
    /// By how much the wall's clock had been moved against the monotonic one when recording ended.
    pub wall_step_ns: i64,
    /// Whether something kept the host's own clock on UTC while recording, as the kernel has it. `None`: not on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_synchronised: Option<bool>,
    /// Upper bound of that clock's error against UTC, as what keeps it says. `None`: nothing keeps it, or not on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_error_ns: Option<i64>,
}

impl Clock {
    /// Times above are Unix times, below of a clock that began with the machine or a session.
    const UNIX_TIME_NS: i64 = 1_000_000_000_000_000_000;

    /// Upper bound of the error of a time of the run against UTC, if something kept the host's clock.
    pub fn utc_error_ns(&self) -> Option<i64> {
        let (_, wall_error_ns) = self.wall_offset()?;
        Some(wall_error_ns?.saturating_add(self.utc_error_ns?))
    }

    /// What to add to a time of the run to get Unix time, and the bound of its error against the host's own clock, as far as they are
    /// known. An imported trace may be on that clock itself.
    pub fn wall_offset(&self) -> Option<(i64, Option<i64>)> {
        match self.wall_offset_ns {
            0 => (self.start_ns > Self::UNIX_TIME_NS).then_some((0, None)),
            offset => {
                Some((offset, Some(self.wall_error_ns.saturating_add(self.wall_step_ns.saturating_abs()))))
            }
        }
    }
}

/// A file in which probes were placed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// Path as the traced process sees it.
    pub path: String,
    /// GNU build id in hexadecimal; empty if it has none.
    pub build_id: String,
    /// Known functions that this version of the library does not have.
    pub absent: Vec<String>,
}

/// A probe and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachedProbe {
    /// Symbol.
    pub symbol: String,
    /// Path of the library.
    pub library: String,
    /// Why it could not be placed; `None`: it was.
    pub error: Option<String>,
}

/// A traced process. What could not be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Its parent's.
    pub parent_pid: u32,
    /// Command line.
    pub command: Vec<String>,
    /// Control group.
    pub cgroup: String,
    /// Container id, in hexadecimal.
    pub container_id: String,
    /// Kubernetes: the pod's uid.
    pub pod_uid: String,
    /// Kubernetes: the pod's name.
    pub pod_name: String,
    /// Settings that decide how memory is managed, as the process had them when its program started. No other
    /// variable of its environment is kept: the rest may hold secrets.
    pub environment: BTreeMap<String, String>,
    /// Version of the PyTorch that it runs; empty: none, or it is not told.
    pub torch_version: String,
}

/// A thread of a traced process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Last name seen.
    pub comm: String,
}

/// Events lost by one probe between two readings of the kernel's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Function, or `off_cpu`, `run`, `process`, `fault`, `stack`.
    pub probe: String,
    /// Earlier reading, CLOCK_MONOTONIC ns.
    pub from_ns: i64,
    /// Later reading.
    pub to_ns: i64,
    /// How many.
    pub count: u64,
}

/// A profiler's trace whose rows were moved onto the clock of the run: `t` became
/// `t + offset_ns + (t - origin_ns) * drift_ppm / 1e6`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alignment {
    /// Name of its file.
    pub profile: String,
    /// What made it.
    pub producer: String,
    /// Processes of the run that it is of.
    pub pids: Vec<u32>,
    /// Time on the profile's clock at which `offset_ns` holds.
    pub origin_ns: i64,
    /// What was added at that time.
    pub offset_ns: i64,
    /// Parts per million by which the profile's clock is slow against the run's. 0: it does not differ significantly.
    pub drift_ppm: f64,
    /// Half the width of the drift's 95 % confidence interval.
    pub drift_error_ppm: f64,
    /// The offset is off by no more than this, for in 99 % of calls one of the two records encloses the other. `None`: they do not.
    pub offset_error_ns: Option<i64>,
    /// Calls of the profile that the run could have.
    pub matchable_count: u64,
    /// Of these, those that it has.
    pub matched_count: u64,
    /// Distance between the middles of a call's two records after the move: median, 99th percentile, the largest.
    pub residual_median_ns: i64,
    /// Its 99th percentile.
    pub residual_p99_ns: i64,
    /// The largest.
    pub residual_max_ns: i64,
    /// The largest of the medians of up to 64 consecutive parts of the profile: by how much the clocks' relation is not a line.
    pub nonlinearity_ns: i64,
}

impl Run {
    /// What [`Run::not_captured`] says of a recording without a profiler.
    pub const NO_DEVICE_ROWS: &str = "GPU-side execution: kernels and copies on the device have no rows";

    /// Events lost, all told.
    pub fn lost_count(&self) -> u64 {
        self.lost.iter().map(|lost| lost.count).sum()
    }
}
