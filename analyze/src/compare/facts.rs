//! The circumstances under which a run was recorded, and whether two sides may be compared at all.
//!
//! A difference that changes what the figures mean forbids a verdict: another GPU or CPU, other probes,
//! another recorder, lost events. A difference that may be the very change under test (driver, libraries,
//! command) is reported.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use trace_schema::Run;

use super::runs::{About, Runs};
use crate::trace::Trace;
use analyze_run::{error::AnalyzeError, run_file::RunFile};

/// Share of events that a run may lose before its figures are no longer trusted.
const LOST_RATIO: f64 = 1e-3;
/// Relative difference between the mean GPU clocks of two sides above which the difference is reported.
const CLOCK_RATIO: f64 = 0.05;

/// Circumstances of a run. A field is empty, zero or false if the source does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Program and version that recorded or imported the run.
    pub producer: String,
    /// Traced command line, its words joined by spaces.
    pub command: String,
    /// Name of the recording host.
    pub host: String,
    /// Processor model.
    pub cpu: String,
    /// Number of logical processors; 0 if unknown.
    pub cpu_count: u32,
    /// Linux kernel release.
    pub kernel: String,
    /// GPU models, one entry per GPU.
    pub gpus: Vec<String>,
    /// Distinct versions of the GPU driver.
    pub drivers: Vec<String>,
    /// Probe profile of the recorder: light, default or full.
    pub profile: String,
    /// Fingerprint of the set of probed functions: their count, and a hash that changes with any of them.
    pub probes: String,
    /// Build IDs of the probed libraries, by file name.
    pub libraries: BTreeMap<String, String>,
    /// Distinct PyTorch versions of the traced processes.
    pub torch: Vec<String>,
    /// Recorded environment variables of the traced processes.
    pub environment: BTreeMap<String, String>,
    /// Number of recorded events.
    pub rows_count: u64,
    /// Number of events that the recorder lost.
    pub lost_count: u64,
    /// Kinds of events of which the source stored a part only, each with the function if it is of one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partial: Vec<String>,
    /// True if the source counts lost events. If not, a `lost_count` of 0 proves nothing.
    pub lost_is_counted: bool,
    /// Whether the run has rows of the scheduler; `None` in baselines of versions that did not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_schedule: Option<bool>,
    /// True if the processes were already running when recording began.
    pub joined_running: bool,
    /// Unix time at which recording began, in ns; `None` if unknown.
    pub start_wall_ns: Option<i64>,
}

/// Returns the distinct non-empty values in ascending order.
fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    values.filter(|value| !value.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns a text that depends only on the set of texts, not on their order.
fn fingerprint<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let sorted: BTreeSet<&str> = texts.collect();
    // FNV-1a, because the hash must not change between versions of this program.
    let hash = sorted
        .iter()
        .flat_map(|text| text.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{} functions, {hash:016x}", sorted.len())
}

impl Facts {
    /// Collects the circumstances of an opened run.
    ///
    /// # Errors
    /// Returns an error if the run's data cannot be read.
    pub async fn read(trace: &Trace, file: &RunFile) -> Result<Self, AnalyzeError> {
        let rows = trace.batches("SELECT ts FROM events WHERE kind = 'off_cpu' LIMIT 1").await?;
        let has_schedule = Some(rows.iter().any(|batch| batch.num_rows() > 0));
        Ok(Self { has_schedule, ..Self::of(&file.run, file.rows_count) })
    }

    /// Collects what a run with `rows_count` events says about itself.
    fn of(run: &Run, rows_count: u64) -> Self {
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let placed = run.probes.iter().filter(|probe| probe.error.is_none());
        Self {
            producer: run.producer.clone(),
            command: run.command.join(" "),
            host: run.host.name.clone(),
            cpu: run.host.cpu.clone(),
            cpu_count: run.host.cpu_count,
            kernel: run.host.kernel.clone(),
            gpus: run.gpus.iter().map(|gpu| gpu.name.clone()).collect(),
            drivers: distinct(run.gpus.iter().map(|gpu| gpu.driver.clone())),
            profile: run.profile.clone(),
            probes: fingerprint(placed.map(|probe| probe.symbol.as_str())),
            libraries: run.libraries.iter().map(|lib| (name(&lib.path), lib.build_id.clone())).collect(),
            torch: distinct(run.processes.iter().map(|process| process.torch_version.clone())),
            environment: run.processes.iter().flat_map(|process| process.environment.clone()).collect(),
            rows_count,
            lost_count: run.lost_count(),
            partial: distinct(
                run.stored
                    .iter()
                    .filter(|stored| !stored.is_whole())
                    .map(|stored| format!("{} {}", stored.kind, stored.op).trim_end().to_owned()),
            ),
            lost_is_counted: run.lost_is_counted,
            has_schedule: None,
            joined_running: run.joined_running,
            start_wall_ns: run
                .clock
                .wall_offset()
                .map(|(offset, _)| run.clock.start_ns.saturating_add(offset)),
        }
    }

    /// Share of the run's events that was lost, from 0 to 1.
    fn lost_ratio(&self) -> f64 {
        self.lost_count as f64 / (self.lost_count + self.rows_count).max(1) as f64
    }
}

/// A circumstance that differs between runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Discord {
    /// Name of the circumstance, which is also the argument of `--allow`.
    pub what: &'static str,
    /// True if the difference forbids a verdict.
    pub forbids: bool,
    /// Distinct values among the base runs.
    pub base: Vec<String>,
    /// Distinct values among the new runs.
    pub new: Vec<String>,
}

/// A circumstance: its name, whether a difference forbids a verdict, and the function that reads it from a
/// run.
type Circumstance = (&'static str, bool, fn(&Facts) -> String);

const CIRCUMSTANCES: [Circumstance; 11] = [
    ("recorder", true, |facts| facts.producer.split(' ').next().unwrap_or_default().to_owned()),
    ("GPU", true, |facts| facts.gpus.join(", ")),
    ("CPU", true, |facts| match facts.cpu_count {
        0 => facts.cpu.clone(),
        count => format!("{} × {count}", facts.cpu),
    }),
    ("profile", true, |facts| facts.profile.clone()),
    ("probes", true, |facts| facts.probes.clone()),
    ("joined while running", true, |facts| facts.joined_running.to_string()),
    ("driver", false, |facts| facts.drivers.join(", ")),
    ("kernel", false, |facts| facts.kernel.clone()),
    ("PyTorch", false, |facts| facts.torch.join(", ")),
    ("command", false, |facts| facts.command.clone()),
    ("settings", false, |facts| {
        facts.environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }),
];

/// Mean SM clock in MHz, over the runs in which it was sampled.
fn clock(runs: &Runs) -> Option<f64> {
    let clocks = runs.keys().iter().filter(|key| key.metric.name() == "sm_clock_mean_mhz");
    let all: Vec<f64> = clocks.flat_map(|key| runs.figure(key)).map(|(_, figure)| figure.value).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// Returns whether a run of a side has rows of the scheduler, if that is known. One run without may have had none.
fn has_schedule(runs: &Runs) -> Option<bool> {
    runs.each().iter().filter_map(|run| run.facts.has_schedule).reduce(|one, other| one || other)
}

/// Reports the libraries whose builds differ between the sides.
fn libraries(base: &Runs, new: &Runs) -> Option<Discord> {
    let of = |runs: &Runs| -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, build) in runs.each().iter().flat_map(|run| &run.facts.libraries) {
            all.entry(name.clone()).or_default().insert(build.clone());
        }
        all
    };
    let (old, now) = (of(base), of(new));
    let differs = |name: &&String| old.get(*name) != now.get(*name);
    let names: BTreeSet<&String> = old.keys().chain(now.keys()).filter(differs).collect();
    let show = |side: &BTreeMap<String, BTreeSet<String>>| {
        let build = |name: &&String| {
            let builds = side
                .get(*name)
                .map(|builds| builds.iter().map(|id| id.get(..8).unwrap_or(id)).collect::<Vec<_>>());
            format!("{name} {}", builds.map_or_else(|| "absent".to_owned(), |builds| builds.join("/")))
        };
        names.iter().map(build).collect::<Vec<_>>()
    };
    (!names.is_empty()).then(|| Discord {
        what: "libraries",
        forbids: false,
        base: show(&old),
        new: show(&now),
    })
}

/// Returns every circumstance that is not the same in all runs of both sides.
pub fn discords(base: &Runs, new: &Runs) -> Vec<Discord> {
    let of = |runs: &Runs, get: fn(&Facts) -> String| {
        runs.each().iter().map(|run| get(&run.facts)).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let mut found: Vec<Discord> = CIRCUMSTANCES
        .iter()
        .map(|(what, forbids, get)| Discord {
            what,
            forbids: *forbids,
            base: of(base, *get),
            new: of(new, *get),
        })
        .filter(|discord| discord.base != discord.new || discord.base.len() > 1)
        .collect();
    found.extend(libraries(base, new));
    let lossy = |runs: &Runs| {
        let all = runs.each().iter().filter(|run| run.facts.lost_ratio() > LOST_RATIO);
        all.map(|run| format!("{}: {:.2} %", run.name, 100.0 * run.facts.lost_ratio())).collect::<Vec<_>>()
    };
    let (base_lost, new_lost) = (lossy(base), lossy(new));
    if !base_lost.is_empty() || !new_lost.is_empty() {
        found.push(Discord { what: "lost events", forbids: true, base: base_lost, new: new_lost });
    }
    let partial = |runs: &Runs| {
        let of = |run: &About| {
            let all = run.facts.partial.iter().map(|what| format!("{}: {what}", run.name));
            all.collect::<Vec<String>>()
        };
        runs.each().iter().flat_map(of).collect::<Vec<String>>()
    };
    let (base_partial, new_partial) = (partial(base), partial(new));
    if !base_partial.is_empty() || !new_partial.is_empty() {
        found.push(Discord { what: "stored events", forbids: true, base: base_partial, new: new_partial });
    }
    // What one side does not know is not a change.
    if let (Some(old), Some(now)) = (has_schedule(base), has_schedule(new))
        && old != now
    {
        let show = |is_there: bool| vec![if is_there { "on record" } else { "not on record" }.to_owned()];
        found.push(Discord { what: "scheduler", forbids: true, base: show(old), new: show(now) });
    }
    if let Some((old, now)) =
        clock(base).zip(clock(new)).filter(|(old, now)| (now / old - 1.0).abs() > CLOCK_RATIO)
    {
        let show = |mhz: f64| vec![format!("{mhz:.0} MHz")];
        found.push(Discord { what: "clock of the GPU", forbids: false, base: show(old), new: show(now) });
    }
    found
}

/// Returns warnings that hold for all runs and weaken the conclusions.
pub fn cautions(base: &Runs, new: &Runs) -> Vec<String> {
    let all = || base.each().iter().chain(new.each());
    let mut cautions = Vec::new();
    let undeclared: BTreeSet<&str> = base.undeclared().into_iter().chain(new.undeclared()).collect();
    if !undeclared.is_empty() {
        let names = undeclared.into_iter().collect::<Vec<_>>().join(", ");
        cautions.push(format!(
            "no query declares what {names} is: lower is taken to be better, without a floor; `-- metrics:` in the header of the query declares it"
        ));
    }
    if all().any(|run| !run.facts.lost_is_counted) {
        cautions.push(
            "runs of a source that does not count the events it loses: figures may miss some".to_owned(),
        );
    }
    let times =
        |runs: &Runs| runs.each().iter().map(|run| run.facts.start_wall_ns).collect::<Option<Vec<i64>>>();
    if let (Some(old), Some(now)) = (times(base), times(new))
        && base.each().len().min(new.each().len()) > 1
    {
        let apart = old.iter().max() < now.iter().min() || now.iter().max() < old.iter().min();
        if apart {
            cautions.push(
                "all runs of one side were recorded before those of the other: if the machine drifts, this looks like a change; record them in turn"
                    .to_owned(),
            );
        }
    }
    cautions
}

/// Returns the names of two entries that are the same run, if there are any: the run would count twice.
pub fn repeated<'a>(sides: [&'a Runs; 2]) -> Option<(&'a str, &'a str)> {
    let mut seen: BTreeMap<i64, Vec<(&'a Runs, usize)>> = BTreeMap::new();
    for side in sides {
        for (run, about) in side.each().iter().enumerate() {
            let Some(start) = about.facts.start_wall_ns else { continue };
            let others = seen.entry(start).or_default();
            let is_same = |(other, at): &&(&'a Runs, usize)| {
                other.each()[*at].facts == about.facts && other.of_run(*at).eq(side.of_run(run))
            };
            if let Some((other, at)) = others.iter().find(is_same) {
                return Some((&other.each()[*at].name, &about.name));
            }
            others.push((side, run));
        }
    }
    None
}
