//! What a run was recorded with, and whether two sides may be compared at all.
//!
//! A difference that makes figures mean something else forbids a verdict: another GPU or CPU, other probes, another
//! recorder, lost events. A difference that may be the very change in question (driver, libraries, command) is shown.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use trace_schema::Run;

use super::figure::{Figures, Key};

/// Up to this share of events may be lost before figures are not trusted.
const LOST_RATIO: f64 = 1e-3;
/// Clocks of GPUs, means of two sides, that differ by more are worth a word.
const CLOCK_RATIO: f64 = 0.05;

/// Circumstances of a run. What the source does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub producer: String,
    pub command: String,
    pub host: String,
    pub cpu: String,
    pub cpu_count: u32,
    pub kernel: String,
    pub gpus: Vec<String>,
    pub drivers: Vec<String>,
    pub profile: String,
    /// Functions that were probed, as a number that changes with any of them.
    pub probes: String,
    /// File names of libraries, and their build ids.
    pub libraries: BTreeMap<String, String>,
    pub torch: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub rows_count: u64,
    pub lost_count: u64,
    pub lost_is_counted: bool,
    /// The processes ran before recording began.
    pub joined_running: bool,
    /// Unix time of the beginning; `None`: not known.
    pub start_wall_ns: Option<i64>,
}

/// Those different from each other, in order.
fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    values.filter(|value| !value.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The same for the same texts in any order.
fn fingerprint<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let sorted: BTreeSet<&str> = texts.collect();
    // FNV-1a: it must be the same in every version of this program.
    let hash = sorted
        .iter()
        .flat_map(|text| text.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{} functions, {hash:016x}", sorted.len())
}

impl Facts {
    /// Those of a run.
    pub fn of(run: &Run, rows_count: u64) -> Self {
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
            lost_is_counted: run.lost_is_counted,
            joined_running: run.joined_running,
            start_wall_ns: run
                .clock
                .wall_offset()
                .map(|(offset, _)| run.clock.start_ns.saturating_add(offset)),
        }
    }

    /// Share of events that was lost.
    fn lost_ratio(&self) -> f64 {
        self.lost_count as f64 / (self.lost_count + self.rows_count).max(1) as f64
    }
}

/// A run with all that is compared of it.
#[derive(Clone, Debug)]
pub struct RunFigures {
    pub name: String,
    pub facts: Facts,
    pub figures: Figures,
}

/// A circumstance that is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Discord {
    pub what: &'static str,
    /// It forbids a verdict.
    pub forbids: bool,
    pub base: Vec<String>,
    pub new: Vec<String>,
}

/// Circumstances: name, whether a difference forbids a verdict, and what it is of a run.
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

/// Mean clock of the GPUs, over the runs in which it was read.
fn clock(runs: &[RunFigures]) -> Option<f64> {
    let of_run = |run: &RunFigures| {
        let clocks = run.figures.iter().filter(|(key, _)| key.metric == "sm_clock_mean_mhz");
        clocks.map(|(_, figure)| figure.value).collect::<Vec<_>>()
    };
    let all: Vec<f64> = runs.iter().flat_map(of_run).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// Each library whose build differs.
fn libraries(base: &[RunFigures], new: &[RunFigures]) -> Option<Discord> {
    let of = |runs: &[RunFigures]| -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, build) in runs.iter().flat_map(|run| &run.facts.libraries) {
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

/// What is not the same in all runs of both sides.
pub fn discords(base: &[RunFigures], new: &[RunFigures]) -> Vec<Discord> {
    let of = |runs: &[RunFigures], get: fn(&Facts) -> String| {
        runs.iter().map(|run| get(&run.facts)).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
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
    let lossy = |runs: &[RunFigures]| {
        let all = runs.iter().filter(|run| run.facts.lost_ratio() > LOST_RATIO);
        all.map(|run| format!("{}: {:.2} %", run.name, 100.0 * run.facts.lost_ratio())).collect::<Vec<_>>()
    };
    let (base_lost, new_lost) = (lossy(base), lossy(new));
    if !base_lost.is_empty() || !new_lost.is_empty() {
        found.push(Discord { what: "lost events", forbids: true, base: base_lost, new: new_lost });
    }
    if let Some((old, now)) =
        clock(base).zip(clock(new)).filter(|(old, now)| (now / old - 1.0).abs() > CLOCK_RATIO)
    {
        let show = |mhz: f64| vec![format!("{mhz:.0} MHz")];
        found.push(Discord { what: "clock of the GPU", forbids: false, base: show(old), new: show(now) });
    }
    found
}

/// What is true of every run, and weakens what is said of it.
pub fn cautions(base: &[RunFigures], new: &[RunFigures]) -> Vec<String> {
    let all = || base.iter().chain(new);
    let mut cautions = Vec::new();
    if all().any(|run| !run.facts.lost_is_counted) {
        cautions.push(
            "runs of a source that does not count the events it loses: figures may miss some".to_owned(),
        );
    }
    let times =
        |runs: &[RunFigures]| runs.iter().map(|run| run.facts.start_wall_ns).collect::<Option<Vec<i64>>>();
    if let (Some(old), Some(now)) = (times(base), times(new))
        && base.len().min(new.len()) > 1
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

/// The same run twice would count as two.
pub fn repeated<'a>(runs: impl Iterator<Item = &'a RunFigures>) -> Option<(&'a str, &'a str)> {
    let mut seen: Vec<&RunFigures> = Vec::new();
    for run in runs {
        let is_same = |other: &&&RunFigures| {
            other.facts == run.facts && other.facts.start_wall_ns.is_some() && other.figures == run.figures
        };
        if let Some(other) = seen.iter().find(is_same) {
            return Some((&other.name, &run.name));
        }
        seen.push(run);
    }
    None
}

/// A metric that the run measures at all. Slow calls are looked for wherever there are calls.
pub fn measures(run: &RunFigures, key: &Key) -> bool {
    let is_of_slow_calls =
        key.metric.starts_with("lost_") || matches!(key.metric.as_str(), "slow_count" | "excess_ns");
    let has = |metric: &str| run.figures.keys().any(|other| other.metric == metric);
    has(&key.metric) || (is_of_slow_calls && has("wall_ns"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::figure::Figure;

    #[test]
    fn a_run_without_a_slow_call_has_none_rather_than_no_figure() {
        let key = |metric: &str| Key::of(metric, None, None);
        let run = |metrics: &[&str]| RunFigures {
            name: String::new(),
            facts: Facts::default(),
            figures: metrics.iter().map(|m| (key(m), Figure { value: 1.0, calls_count: None })).collect(),
        };
        assert!(measures(&run(&["wall_ns"]), &key("excess_ns")));
        assert!(!measures(&run(&["off_cpu_ns"]), &key("excess_ns")), "no calls are on record");
        assert!(!measures(&run(&["wall_ns"]), &key("behind_ns")));
    }
}
