//! What the file says about itself: its version and the circumstances of the recording, as key/value
//! metadata of the Parquet file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Kind, stored::Stored};

/// Version of the format. A reader refuses a newer one. Bump it when a column is renamed, retyped or
/// removed or a value changes its meaning; a column added at the end does not count.
pub const FORMAT_VERSION: u32 = 1;

/// Metadata key of [`FORMAT_VERSION`], in decimal. Its presence makes a Parquet file a run.
pub const META_VERSION: &str = "inquest.format_version";

/// Metadata key of [`Run`], as JSON.
pub const META_RUN: &str = "inquest.run";

/// Circumstances of one recording. A field that the source did not tell is empty, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Program and version that wrote the file, or the importer.
    pub producer: String,
    /// The traced command, or how its processes were chosen.
    pub command: Vec<String>,
    /// Whether the processes ran before recording began; the first events of the run are then not their first.
    pub joined_running: bool,
    /// The recording machine.
    pub host: Host,
    /// The GPUs of that machine, in the driver's order.
    pub gpus: Vec<Gpu>,
    /// When the run was recorded, and how its clock relates to Unix time.
    pub clock: Clock,
    /// Libraries in which probes were placed.
    pub libraries: Vec<Library>,
    /// Every function probe that the recorder tried to attach, with the outcome.
    pub probes: Vec<AttachedProbe>,
    /// The profile, which decides what was probed: light, default or full.
    pub profile: String,
    /// How function probes were attached: session, multi or single.
    pub attach_method: String,
    /// The traced processes.
    pub processes: Vec<ProcessInfo>,
    /// Number of this part of a run in parts, from 1; 0 if the run is this one file.
    pub part_number: u32,
    /// Whether this part is the last one of the run.
    pub part_is_last: bool,
    /// Threads of traced processes, with the last name seen of each.
    pub threads: Vec<Thread>,
    /// Events that the recorder dropped, by probe and interval; empty if it dropped none.
    pub lost: Vec<Lost>,
    /// Whether the source counts the events that it loses. If not, an empty `lost` does not mean that none were lost.
    pub lost_is_counted: bool,
    /// Statements about events that the source counted without storing all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<Stored>,
    /// Whether off-CPU time of throttled control groups has a state of its own (`throttled`); if not, it counts as `preempted`.
    pub throttling_is_recorded: bool,
    /// How command lines were redacted: `secrets`, `text` or `all`, as `--redact` names it; empty if they are whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// What this trace cannot show, in sentences for users.
    pub not_captured: Vec<String>,
    /// Profiler traces whose rows were moved onto this run's clock.
    pub alignments: Vec<Alignment>,
    /// Sources of scheduler rows that `analyze merge` added; empty if all such rows are of the run's own source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleSource>,
}

/// The recording machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Name and version of the operating system.
    pub os: String,
    /// Processor model.
    pub cpu: String,
    /// Number of logical processors.
    pub cpu_count: u32,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Model name, as the driver reports it.
    pub name: String,
    /// Version of the NVIDIA driver.
    pub driver: String,
}

/// When the run was recorded, and how its clock relates to Unix time and UTC. All fields are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// CLOCK_MONOTONIC when recording began.
    pub start_ns: i64,
    /// CLOCK_MONOTONIC when recording ended; 0 while it goes on.
    pub end_ns: i64,
    /// Offset to add to a monotonic time to get Unix time, measured at the start; 0 if it is not known.
    pub wall_offset_ns: i64,
    /// Upper bound of the error of `wall_offset_ns`.
    pub wall_error_ns: i64,
    /// Change of the offset between start and end of the recording: by how much the wall clock was set.
    pub wall_step_ns: i64,
    /// Whether NTP or PTP kept the host's clock on UTC while recording, as the kernel reports it. `None`: not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_synchronised: Option<bool>,
    /// Upper bound of the host clock's error against UTC, as the kernel reports it. `None`: nothing kept it, or not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc_error_ns: Option<i64>,
    /// Name of the clock that the times are on, as `CLOCK_MONOTONIC`; empty if the source does not say so. See [`Run::clock_base`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// Step to which the source rounded its times. `None`: one nanosecond, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<i64>,
}

impl Clock {
    /// Name of the clock that `capture` reads.
    pub const MONOTONIC: &str = "CLOCK_MONOTONIC";

    /// Times above this one are Unix times; times below are of a clock that began with the machine or a session.
    const UNIX_TIME_NS: i64 = 1_000_000_000_000_000_000;

    /// Upper bound of the error of a time of the run against UTC, in nanoseconds; `None` unless NTP or PTP kept the host's clock.
    pub fn utc_error_ns(&self) -> Option<i64> {
        let (_, wall_error_ns) = self.wall_offset()?;
        Some(wall_error_ns?.saturating_add(self.utc_error_ns?))
    }

    /// Offset to add to a time of the run to get Unix time, and the upper bound of its error against the host's clock, both in
    /// nanoseconds and `None` where they are not known. The offset is 0 for an imported trace whose times are Unix times.
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

/// A function probe, and whether it could be attached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachedProbe {
    /// Symbol of the probed function.
    pub symbol: String,
    /// Path of the library, as the traced process sees it.
    pub library: String,
    /// Why the probe could not be attached; `None` if it was attached.
    pub error: Option<String>,
}

/// A traced process. A field that could not be determined is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// Process id, in the host's namespace.
    pub pid: u32,
    /// Process id of the parent.
    pub parent_pid: u32,
    /// Command line, one element per argument.
    pub command: Vec<String>,
    /// Path of the process's control group.
    pub cgroup: String,
    /// Container id in hexadecimal, from the control group's path.
    pub container_id: String,
    /// Uid of the Kubernetes pod.
    pub pod_uid: String,
    /// Name of the Kubernetes pod.
    pub pod_name: String,
    /// Environment variables that decide how memory is managed, as they were when the program started. No other
    /// variable is stored, because the rest may hold secrets.
    pub environment: BTreeMap<String, String>,
    /// Version of PyTorch that the process runs; empty if it runs none or the version could not be determined.
    pub torch_version: String,
}

/// A thread of a traced process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Process id, in the host's namespace.
    pub pid: u32,
    /// Thread id, in the host's namespace.
    pub tid: u32,
    /// Last thread name seen.
    pub comm: String,
}

/// Events lost by one probe between two readings of the kernel's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// The probed function, or `off_cpu`, `run`, `process`, `fault`, `stack`, `mark`.
    pub probe: String,
    /// Time of the earlier reading, in nanoseconds on CLOCK_MONOTONIC.
    pub from_ns: i64,
    /// Time of the later reading, in nanoseconds on CLOCK_MONOTONIC.
    pub to_ns: i64,
    /// Number of events lost in the interval.
    pub count: u64,
}

/// A profiler's trace whose rows were moved onto the clock of the run: `t` became
/// `t + offset_ns + (t - origin_ns) * drift_ppm / 1e6`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alignment {
    /// File name of the profiler's trace.
    pub profile: String,
    /// Program that wrote the profiler's trace.
    pub producer: String,
    /// Processes of the run that the profiler traced.
    pub pids: Vec<u32>,
    /// Time on the profile's clock at which `offset_ns` holds.
    pub origin_ns: i64,
    /// Nanoseconds added to a time of the profile at `origin_ns`.
    pub offset_ns: i64,
    /// Parts per million by which the profile's clock is slow against the run's; 0 if the drift is not significant.
    pub drift_ppm: f64,
    /// Half the width of the drift's 95 % confidence interval.
    pub drift_error_ppm: f64,
    /// Upper bound of the offset's error, from the 99 % of calls of which one record encloses the other. `None`: too few do.
    pub offset_error_ns: Option<i64>,
    /// Calls of the profile that the run could have recorded, too.
    pub matchable_count: u64,
    /// Calls among the matchable ones that were found in the run.
    pub matched_count: u64,
    /// Median distance between the middles of a call's two records after the move.
    pub residual_median_ns: i64,
    /// 99th percentile of that distance.
    pub residual_p99_ns: i64,
    /// Largest value of that distance.
    pub residual_max_ns: i64,
    /// Largest median distance among up to 64 consecutive parts of the profile: how far the clocks' relation is from a line.
    pub nonlinearity_ns: i64,
}

/// A source of scheduler rows that was joined with calls of another source, or merged with runs of other processes. Its rows
/// say nothing of the time before `from_ns` and after `to_ns`, and nothing within `offset_error_ns` of a call's start or end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleSource {
    /// File name of the trace.
    pub trace: String,
    /// Program that wrote the trace, or its importer.
    pub producer: String,
    /// Processes of which the trace has scheduler rows; 0 stands for threads whose process is not known.
    pub pids: Vec<u32>,
    /// Time, in nanoseconds on the run's clock, from which the trace has all switches. `None`: from the beginning of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<i64>,
    /// Time, in nanoseconds on the run's clock, until which the trace has all switches. `None`: until the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<i64>,
    /// Nanoseconds that were added to the times of the trace.
    pub offset_ns: i64,
    /// Upper bound of the error of these times against those of the calls, in nanoseconds, rounding included.
    pub offset_error_ns: i64,
}

impl Run {
    /// What the name of every version of the recorder begins with.
    const RECORDER: &str = "inquest capture";

    /// Returns the name of the clock that the times are on; `None` if the source does not say so.
    pub fn clock_base(&self) -> Option<&str> {
        match self.clock.base.as_str() {
            "" => self.producer.starts_with(Self::RECORDER).then_some(Clock::MONOTONIC),
            base => Some(base),
        }
    }

    /// Returns whether the source knows from when to when it watched the scheduler. The rows of any other source say so
    /// themselves: by the first and the last of them.
    pub fn knows_schedule_span(&self) -> bool {
        !self.probes.is_empty() || self.stored.iter().any(|stored| stored.is_of(Kind::OffCpu))
    }

    /// Beginning of a sentence in [`Run::not_captured`] of a source without the scheduler.
    pub const NO_SCHEDULE: &str = "what the scheduler did to threads";
    /// Sentence in [`Run::not_captured`] of a recording without a profiler.
    pub const NO_DEVICE_ROWS: &str = "GPU-side execution: kernels and copies on the device have no rows";

    /// Returns whether events of a kind, of which `wanted` selects the names, are stored in part only: a statement about
    /// all names of the kind counts.
    pub fn is_partial(&self, kind: Kind, wanted: impl Fn(&str) -> bool) -> bool {
        let of = self.stored.iter().filter(|stored| stored.is_of(kind) && !stored.is_whole());
        of.into_iter().any(|stored| stored.op.is_empty() || wanted(&stored.op))
    }

    /// Total number of events lost, over all probes and intervals.
    pub fn lost_count(&self) -> u64 {
        self.lost.iter().map(|lost| lost.count).fold(0, u64::saturating_add)
    }
}
