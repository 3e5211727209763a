//! By how much the wall times of the two sides differ, and what the difference was spent on.
//!
//! A run's account (view `metrics_run_time`) divides the wall time of its process with the longest one, without overlap and
//! without rest. A mean over runs of a sum is the sum of the means, so the differences of the parts' means sum to the
//! difference of the mean wall times, whatever the number of runs. Medians have no such sum: they only say where the runs
//! of a side lie.
//!
//! Time before the first launch is set apart where every run tells it. Where the scheduler is not on record in some run, the
//! parts that it would tell are unknown, not 0: the time in CUDA calls is told apart from all other time, and no more.

use std::collections::BTreeMap;

use serde::Serialize;
use trace_schema::Nanos;

use super::{
    change::{Change, LISTED_Q},
    figure::{Figures, Key},
    runs::Runs,
    samples::{mean, median},
};
use crate::questions::where_time_went;

/// Wall time of the process with the longest one.
const WALL: &str = "process_wall_ns";
/// Part of it before the first launch.
const START_UP: &str = "process_start_up_ns";
/// Time of it in calls after the first launch.
const CALLS: &str = "process_calls_ns";
/// Time of a part before the first launch.
const PART_START_UP: &str = "start_up_ns";
/// Time of a part after the first launch.
const PART_RUNNING: &str = "running_ns";

/// Largest number of names of a part.
const NAMES: usize = 3;

/// When time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Before the first launch.
    StartUp,
    /// After the first launch.
    Running,
    /// At any time: some run does not tell its first launch.
    All,
}

/// Wall times of the runs of a side, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Wall {
    /// Number of runs.
    pub runs_count: usize,
    /// Median.
    pub median_ns: f64,
    /// Mean, which the parts sum to.
    pub mean_ns: f64,
    /// Shortest.
    pub least_ns: f64,
    /// Longest.
    pub most_ns: f64,
}

impl Wall {
    fn of(accounts: &[Account]) -> Self {
        let all: Vec<f64> = accounts.iter().map(|account| account.wall_ns).collect();
        Self {
            runs_count: all.len(),
            median_ns: median(&all),
            mean_ns: mean(&all),
            least_ns: all.iter().copied().fold(f64::INFINITY, f64::min),
            most_ns: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn shown(&self) -> String {
        let median = shown(self.median_ns);
        match self.runs_count {
            1 => median,
            _ => format!("{median} (median; {} to {})", shown(self.least_ns), shown(self.most_ns)),
        }
    }
}

/// Time of one name within a part: a function, a task that had the CPU, or another thread. Times are means over the
/// runs of a side, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Mean over the base runs.
    pub base_ns: f64,
    /// Mean over the new runs.
    pub new_ns: f64,
}

impl Name {
    /// Difference, new minus base, in nanoseconds.
    pub fn delta_ns(&self) -> f64 {
        self.new_ns - self.base_ns
    }
}

/// One part of the wall time. Times are means over the runs of a side, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// When it was spent.
    pub stage: Stage,
    /// Name of the part as in the view `run_time`; `calls` where only the time in CUDA calls is told apart.
    pub part: String,
    /// Mean over the base runs.
    pub base_ns: f64,
    /// Mean over the new runs.
    pub new_ns: f64,
    /// Difference, new minus base.
    pub delta_ns: f64,
    /// Share of the difference of the wall times. It may be negative or exceed 1.
    pub share_ratio: f64,
    /// Two-sided p, corrected over all figures of the comparison; `None` if there was no test.
    pub q: Option<f64>,
    /// The names whose times differ most, largest difference first; at most three.
    pub names: Vec<Name>,
}

impl Part {
    /// Returns what the process did in this time.
    pub fn meaning(&self) -> &'static str {
        let known = where_time_went::PARTS.iter().find(|(part, _)| *part == self.part);
        match self.part.as_str() {
            "calls" => "was in CUDA calls",
            "start_up" => "had not launched anything yet",
            _ => known.map_or("did something else", |(_, meaning)| meaning),
        }
    }

    /// Returns whether chance alone would often make such a difference; false if there was no test.
    pub fn may_be_chance(&self) -> bool {
        self.q.is_some_and(|q| q > LISTED_Q)
    }
}

/// The difference of the wall times of two sides, and its parts.
#[derive(Clone, Debug, Serialize)]
pub struct RunTime {
    /// Wall times of the base runs.
    pub base: Wall,
    /// Wall times of the new runs.
    pub new: Wall,
    /// Difference of the means in nanoseconds, new minus base. The differences of the parts sum to it.
    pub delta_ns: f64,
    /// Two-sided p of the wall times' difference, corrected over all figures; `None` if there was no test.
    pub q: Option<f64>,
    /// The time before the first launch as one part; `None` if some run does not tell it.
    pub start_up: Option<Part>,
    /// The parts of all of the wall time, largest difference first.
    pub parts: Vec<Part>,
    /// True if the scheduler is on record in every run, so that the parts are those of the view `run_time`.
    pub is_recorded: bool,
}

/// The account of one run, in nanoseconds.
#[derive(Clone, Debug)]
struct Account {
    wall_ns: f64,
    start_up_ns: Option<f64>,
    calls_ns: f64,
    /// Times of parts; empty if the scheduler is not on record.
    parts: BTreeMap<(Stage, String), f64>,
    /// Times of names within parts.
    names: BTreeMap<(Stage, String, String), f64>,
}

impl Account {
    /// Divides the wall time as far as all runs tell it.
    fn divided(&self, has_start_up: bool, is_recorded: bool) -> BTreeMap<(Stage, String), f64> {
        let mut divided: BTreeMap<(Stage, String), f64> = BTreeMap::new();
        if is_recorded {
            for ((stage, part), ns) in &self.parts {
                let stage = if has_start_up { *stage } else { Stage::All };
                *divided.entry((stage, part.clone())).or_default() += ns;
            }
            return divided;
        }
        let start_up_ns = self.start_up_ns.filter(|_| has_start_up);
        let stage = if has_start_up { Stage::Running } else { Stage::All };
        let rest_ns = self.wall_ns - self.calls_ns - start_up_ns.unwrap_or(0.0);
        divided.extend(start_up_ns.map(|ns| ((Stage::StartUp, "unknown".to_owned()), ns)));
        divided.insert((stage, "calls".to_owned()), self.calls_ns);
        divided.insert((stage, "unknown".to_owned()), rest_ns);
        divided
    }

    /// Returns the times of names, with the stages that [`Self::divided`] has.
    fn named(&self, has_start_up: bool) -> BTreeMap<(Stage, String, String), f64> {
        let mut named: BTreeMap<(Stage, String, String), f64> = BTreeMap::new();
        for ((stage, part, name), ns) in &self.names {
            let stage = if has_start_up { *stage } else { Stage::All };
            *named.entry((stage, part.clone(), name.clone())).or_default() += ns;
        }
        named
    }
}

/// Returns whether the scheduler is on record, so that a run has the parts that it tells.
pub(super) fn is_recorded(figures: &Figures) -> bool {
    figures.keys().any(|key| key.metric.name() == PART_RUNNING)
}

/// Returns the account of each run; `None` if a run has none.
fn accounts(runs: &Runs) -> Option<Vec<Account>> {
    let whole =
        |run: usize, metric: &str| runs.get(run, &Key::of(metric, None, None)).map(|figure| figure.value);
    let account = |run: usize| {
        Some(Account {
            wall_ns: whole(run, WALL)?,
            start_up_ns: whole(run, START_UP),
            calls_ns: whole(run, CALLS)?,
            parts: BTreeMap::new(),
            names: BTreeMap::new(),
        })
    };
    let mut accounts = (0..runs.each().len()).map(account).collect::<Option<Vec<Account>>>()?;
    for (key, run, figure) in runs.all() {
        let stage = match key.metric.name() {
            PART_START_UP => Stage::StartUp,
            PART_RUNNING => Stage::Running,
            _ => continue,
        };
        let (Some(part), Some(account)) = (key.subject.clone(), accounts.get_mut(run)) else { continue };
        match key.stratum.clone() {
            None => account.parts.insert((stage, part), figure.value),
            Some(name) => account.names.insert((stage, part, name), figure.value),
        };
    }
    Some(accounts)
}

/// Returns the means over the runs of each side; what a run does not have is 0.
fn means<K: Ord>(
    sides: [&[Account]; 2],
    of: impl Fn(&Account) -> BTreeMap<K, f64>,
) -> BTreeMap<K, (f64, f64)> {
    let [base, new] = sides;
    let mut sums: BTreeMap<K, (f64, f64)> = BTreeMap::new();
    for account in base {
        of(account).into_iter().for_each(|(key, ns)| sums.entry(key).or_default().0 += ns);
    }
    for account in new {
        of(account).into_iter().for_each(|(key, ns)| sums.entry(key).or_default().1 += ns);
    }
    let count = |side: &[Account]| side.len().max(1) as f64;
    sums.into_iter().map(|(key, (old, now))| (key, (old / count(base), now / count(new)))).collect()
}

/// Orders by the size of a difference, largest first.
fn larger(one: f64, other: f64) -> std::cmp::Ordering {
    other.abs().total_cmp(&one.abs())
}

fn shown(ns: f64) -> String {
    Nanos(ns.round() as i64).to_string()
}

/// Formats a difference in nanoseconds with its sign.
pub fn signed_ns(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "" } else { "+" }, shown(ns))
}

impl RunTime {
    /// Divides the difference of the wall times; `all` are the compared figures. Returns `None` if a run has no account,
    /// as one without calls, or a baseline of a version that did not measure it.
    pub fn of(base: &Runs, new: &Runs, all: &[Change]) -> Option<Self> {
        let (old, now) = (accounts(base)?, accounts(new)?);
        let every = |is_so: fn(&Account) -> bool| old.iter().chain(&now).all(is_so);
        let has_start_up = every(|account| account.start_up_ns.is_some());
        let is_recorded = every(|account| !account.parts.is_empty());
        let q = |metric: &str, part: Option<&str>| {
            let key = Key::of(metric, part, None);
            all.iter().find(|change| change.key == key).and_then(|change| change.q)
        };
        let (base, new) = (Wall::of(&old), Wall::of(&now));
        let delta_ns = new.mean_ns - base.mean_ns;
        let part = |stage: Stage, part: &str, (base_ns, new_ns): (f64, f64), q: Option<f64>| Part {
            stage,
            part: part.to_owned(),
            base_ns,
            new_ns,
            delta_ns: new_ns - base_ns,
            share_ratio: if delta_ns == 0.0 { 0.0 } else { (new_ns - base_ns) / delta_ns },
            q,
            names: Vec::new(),
        };
        let sides = [old.as_slice(), now.as_slice()];
        let divided = means(sides, |account| account.divided(has_start_up, is_recorded));
        let named =
            means(sides, |account| if is_recorded { account.named(has_start_up) } else { BTreeMap::new() });
        let tested = |stage: Stage, name: &str| match (stage, name) {
            (Stage::All, _) => None,
            (Stage::Running, "calls") => q(CALLS, None),
            (Stage::StartUp, "unknown") if !is_recorded => q(START_UP, None),
            (Stage::Running, _) => q(PART_RUNNING, Some(name)),
            (Stage::StartUp, _) => q(PART_START_UP, Some(name)),
        };
        let mut parts: Vec<Part> = Vec::new();
        for ((stage, name), both) in divided.into_iter().filter(|(_, both)| *both != (0.0, 0.0)) {
            let mut found = part(stage, &name, both, tested(stage, &name));
            let of_part = named.iter().filter(|((at, of, _), _)| *at == stage && *of == name);
            let mut names: Vec<Name> = of_part
                .map(|((_, _, name), (base_ns, new_ns))| Name {
                    name: name.clone(),
                    base_ns: *base_ns,
                    new_ns: *new_ns,
                })
                .collect();
            names.sort_by(|a, b| larger(a.delta_ns(), b.delta_ns()).then_with(|| a.name.cmp(&b.name)));
            names.truncate(NAMES);
            found.names = names;
            parts.push(found);
        }
        parts.sort_by(|a, b| {
            larger(a.delta_ns, b.delta_ns).then_with(|| (a.stage, &a.part).cmp(&(b.stage, &b.part)))
        });
        let start_up = has_start_up.then(|| {
            let mean_of = |side: &[Account]| {
                mean(&side.iter().filter_map(|account| account.start_up_ns).collect::<Vec<f64>>())
            };
            part(Stage::StartUp, "start_up", (mean_of(&old), mean_of(&now)), q(START_UP, None))
        });
        Some(Self { base, new, delta_ns, q: q(WALL, None), start_up, parts, is_recorded })
    }

    /// Returns the parts that the wall time is divided into if start-up is one of them; largest difference first.
    pub fn outermost(&self) -> Vec<&Part> {
        let after = self.parts.iter().filter(|part| part.stage != Stage::StartUp);
        let mut outermost: Vec<&Part> = self.start_up.iter().chain(after).collect();
        outermost.sort_by(|a, b| larger(a.delta_ns, b.delta_ns));
        outermost
    }

    /// Describes the difference in a few sentences: what most of it was spent on.
    pub fn sentence(&self) -> String {
        /// Largest number of parts that are named, the least share of one, and the least share of a part that one name has.
        const PARTS: usize = 3;
        const LEAST_RATIO: f64 = 0.05;
        const MAIN_RATIO: f64 = 0.5;
        let of_means = if self.base.runs_count.max(self.new.runs_count) > 1 { " in the mean" } else { "" };
        let took = format!(
            "The process took {} instead of {}: {}{of_means}.",
            self.new.shown(),
            self.base.shown(),
            signed_ns(self.delta_ns)
        );
        if self.q.is_some_and(|q| q > LISTED_Q) {
            return format!("{took} The runs of a side differ as much among themselves.");
        }
        let words = |part: &Part| {
            let main = part.names.first().filter(|name| name.delta_ns() >= MAIN_RATIO * part.delta_ns);
            let main = main.filter(|_| part.delta_ns > 0.0);
            let main = main.map_or_else(String::new, |name| format!(" – {}", name.name));
            let share = 100.0 * part.share_ratio;
            format!("for {} of it ({share:.1} %), it {}{main}", signed_ns(part.delta_ns), part.meaning())
        };
        let counts = |part: &&Part| part.share_ratio >= LEAST_RATIO && !part.may_be_chance();
        let parts: Vec<String> = self.outermost().into_iter().filter(counts).take(PARTS).map(words).collect();
        let mut text = took;
        if let Some((first, rest)) = parts.split_first() {
            let first = first.replacen("for", " For", 1);
            let all = std::iter::once(first).chain(rest.iter().cloned()).collect::<Vec<String>>();
            text += &format!("{}.", all.join("; "));
        }
        if !self.is_recorded {
            text +=
                " The scheduler is not on record in every run, so that waiting for a CPU is not told apart.";
        }
        text
    }
}

#[cfg(test)]
mod tests;
