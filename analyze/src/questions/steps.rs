//! The steps of each process, from the view `steps`: how they were found, what a typical one takes, what slower ones spend more
//! time on, and whether steps drift over time.
//!
//! All figures but those of warm-up are of the steady state, the steps after warm-up. The typical step is the one with the lower
//! median of their durations: as it is a step on record, its parts sum to its duration, and the differences by part between
//! another step and it to the difference of the two.

use analyze_run::{
    columns::{booleans, integers, strings},
    error::AnalyzeError,
    quantiles::{interpolated, median, ranks},
};
use serde::Serialize;
use statrs::function::erf::erfc;

use crate::trace::Trace;

/// Largest number of slow steps of a process.
const SLOWEST: usize = 3;
/// Least number of steps, or of groups of them, for a test of drift.
const LEAST_GROUPS: usize = 10;
/// Largest number of groups of consecutive steps that a test of drift compares. Steps near each other resemble each other, so
/// that single steps would make a drift of any slow moment.
const MOST_GROUPS: usize = 30;
/// Largest p-value of a drift.
pub const SIGNIFICANT: f64 = 0.01;

/// A part of a step's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartTime {
    /// Name of the part, as in the view `run_time`; `blocked` is all sleep outside of calls.
    pub part: String,
    /// Time in nanoseconds, or how much more it is than that of another step, which may be negative.
    pub time_ns: i64,
}

/// A step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Number of the step in its process, from 0.
    pub step: i64,
    /// Start in nanoseconds.
    pub ts: i64,
    /// Duration in nanoseconds.
    pub dur_ns: i64,
    /// Number of launches.
    pub launches_count: i64,
    /// The parts of the duration; largest first.
    pub parts: Vec<PartTime>,
}

impl Step {
    /// Returns what this step spends more time on than another one; the largest difference first. They sum to the difference of the
    /// durations.
    fn more_than(&self, other: &Self) -> Vec<PartTime> {
        let of = |step: &Self, part: &str| {
            step.parts.iter().find(|other| other.part == part).map_or(0, |part| part.time_ns)
        };
        let both = self.parts.iter().chain(other.parts.iter().filter(|part| of(self, &part.part) == 0));
        sorted(both.map(|part| (part.part.as_str(), of(self, &part.part) - of(other, &part.part))))
    }
}

/// Returns the parts that are not 0, largest first.
fn sorted<'a>(parts: impl Iterator<Item = (&'a str, i64)>) -> Vec<PartTime> {
    let parts = parts.filter(|(_, time_ns)| *time_ns != 0);
    let mut parts: Vec<PartTime> =
        parts.map(|(part, time_ns)| PartTime { part: part.to_owned(), time_ns }).collect();
    parts.sort_by(|one, other| {
        other.time_ns.abs().cmp(&one.time_ns.abs()).then_with(|| one.part.cmp(&other.part))
    });
    parts
}

/// A step that took longer than the typical one.
#[derive(Clone, Debug, Serialize)]
pub struct SlowStep {
    /// The step.
    pub step: Step,
    /// How much longer it took than the typical step, in nanoseconds.
    pub more_ns: i64,
    /// What it spent that time on; negative for what took less time. The sum is `more_ns`.
    pub differences: Vec<PartTime>,
}

/// How the durations of steps change over time.
#[derive(Clone, Debug, Serialize)]
pub struct Drift {
    /// Step with the lower median of the durations in the first third.
    pub first_step: i64,
    /// Its duration in nanoseconds.
    pub first_ns: i64,
    /// Step with the lower median of the durations in the last third.
    pub last_step: i64,
    /// Its duration in nanoseconds.
    pub last_ns: i64,
    /// p-value of the rank correlation (Spearman's) between time and the medians of up to 30 groups of consecutive steps: how
    /// often durations in random order would be ordered as much.
    pub p_value: f64,
    /// True if the p-value is at most 0.01.
    pub is_significant: bool,
    /// What the later step spends more time on than the earlier one; negative for what takes less time.
    pub differences: Vec<PartTime>,
}

/// The steps of a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSteps {
    /// Name of the run.
    pub run: String,
    /// Process ID.
    pub pid: i64,
    /// The thread that drives the GPU, whose time is accounted for.
    pub tid: i64,
    /// How the steps were found: `marks`, `graph` or `sequence`, as in the view `steps`.
    pub found_by: String,
    /// Name of the marked ranges, or function whose calls are the borders of steps.
    pub name: String,
    /// Number of steps.
    pub steps_count: usize,
    /// Number of steps at the beginning that are warm-up.
    pub warm_up_count: usize,
    /// Time of these steps in nanoseconds.
    pub warm_up_ns: i64,
    /// Part of that time above what as many typical steps take, in nanoseconds.
    pub warm_up_more_ns: i64,
    /// Time from the start of the first step to the end of the last one that is in no step, in nanoseconds.
    pub between_ns: i64,
    /// The typical step.
    pub typical: Step,
    /// The 5th percentile of the durations in nanoseconds.
    pub p5_ns: f64,
    /// The 95th percentile of the durations in nanoseconds.
    pub p95_ns: f64,
    /// The steps that are longer than the typical one, longest first; at most three.
    pub slowest: Vec<SlowStep>,
    /// How durations change over time; `None` for fewer than ten steps, which say nothing of that.
    pub drift: Option<Drift>,
}

/// What the rows of a process have in common: run, process, thread, how its steps were found, and their name.
type Head = (String, i64, i64, String, String);

/// Returns the step with the lower median of the durations.
fn typical(steps: &[Step]) -> Option<&Step> {
    let mut order: Vec<&Step> = steps.iter().collect();
    order.sort_by_key(|step| (step.dur_ns, step.step));
    order.get(order.len().checked_sub(1)? / 2).copied()
}

/// Returns the p-value of the rank correlation between time and the medians of groups of consecutive values; `None` if there are
/// too few values. Among random orders, the correlation of `n` groups has a variance of `1 / (n - 1)` whatever the values are, and
/// is nearly normal.
fn trend_p(values: &[f64]) -> Option<f64> {
    let count = values.len().min(MOST_GROUPS);
    if count < LEAST_GROUPS {
        return None;
    }
    let group = |index: usize| index * values.len() / count;
    let medians = (0..count).filter_map(|index| median(values.get(group(index)..group(index + 1))?));
    let ranks = ranks(&medians.collect::<Vec<f64>>());
    let mean = (count + 1) as f64 / 2.0;
    let times = || (1..=count).map(|time| time as f64 - mean);
    let product: f64 = ranks.iter().zip(times()).map(|(rank, time)| (rank - mean) * time).sum();
    let of_ranks: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    let of_times: f64 = times().map(|time| time.powi(2)).sum();
    if of_ranks == 0.0 {
        return Some(1.0);
    }
    let deviations = product.abs() / (of_ranks * of_times).sqrt() * ((count - 1) as f64).sqrt();
    Some(erfc(deviations / std::f64::consts::SQRT_2))
}

fn drift(steady: &[Step]) -> Option<Drift> {
    let durs: Vec<f64> = steady.iter().map(|step| step.dur_ns as f64).collect();
    let p_value = trend_p(&durs)?;
    let third = steady.len() / 3;
    let first = typical(steady.get(..third)?)?;
    let last = typical(steady.get(steady.len() - third..)?)?;
    Some(Drift {
        first_step: first.step,
        first_ns: first.dur_ns,
        last_step: last.step,
        last_ns: last.dur_ns,
        p_value,
        is_significant: p_value <= SIGNIFICANT,
        differences: last.more_than(first),
    })
}

/// Sums up the steps of a process, in the order of time; `None` if there are none after warm-up.
fn summary(
    (run, pid, tid, found_by, name): Head,
    steps: &[Step],
    warm_up_count: usize,
) -> Option<ProcessSteps> {
    let (warm_up, steady) = steps.split_at_checked(warm_up_count)?;
    let typical = typical(steady)?;
    let mut durs: Vec<f64> = steady.iter().map(|step| step.dur_ns as f64).collect();
    durs.sort_by(f64::total_cmp);
    let mut slowest: Vec<&Step> = steady.iter().filter(|step| step.dur_ns > typical.dur_ns).collect();
    slowest.sort_by_key(|step| (std::cmp::Reverse(step.dur_ns), step.step));
    let slow = |step: &&Step| SlowStep {
        step: (*step).clone(),
        more_ns: step.dur_ns - typical.dur_ns,
        differences: step.more_than(typical),
    };
    let time = |steps: &[Step]| steps.iter().map(|step| step.dur_ns).sum::<i64>();
    let (first, last) = (steps.first()?, steps.last()?);
    Some(ProcessSteps {
        run,
        pid,
        tid,
        found_by,
        name,
        steps_count: steps.len(),
        warm_up_count,
        warm_up_ns: time(warm_up),
        warm_up_more_ns: time(warm_up) - typical.dur_ns * warm_up_count as i64,
        between_ns: last.ts + last.dur_ns - first.ts - time(steps),
        p5_ns: interpolated(&durs, 0.05)?,
        p95_ns: interpolated(&durs, 0.95)?,
        slowest: slowest.iter().take(SLOWEST).map(slow).collect(),
        drift: drift(steady),
        typical: typical.clone(),
    })
}

const QUERY: &str = "SELECT *, CAST(pid AS BIGINT) AS process, CAST(tid AS BIGINT) AS thread FROM steps \
     ORDER BY run, process, step";

/// Returns the steps of every process in which some were found, those with most time first.
///
/// # Errors
/// Returns an error if the runs cannot be read.
pub async fn run(trace: &Trace) -> Result<Vec<ProcessSteps>, AnalyzeError> {
    let mut found = Vec::new();
    let mut current: Option<(Head, Vec<Step>, usize)> = None;
    let mut end = |process: Option<(Head, Vec<Step>, usize)>| {
        found.extend(process.and_then(|(head, steps, warm_up_count)| summary(head, &steps, warm_up_count)));
    };
    for batch in &trace.batches(QUERY).await? {
        let whole = |name: &str| integers(batch, name);
        let (runs, found_by, names) =
            (strings(batch, "run")?, strings(batch, "found_by")?, strings(batch, "name")?);
        let (pids, tids, numbers) = (whole("process")?, whole("thread")?, whole("step")?);
        let (times, durs, launches) = (whole("ts")?, whole("dur_ns")?, whole("launches_count")?);
        let warm_up = booleans(batch, "is_warm_up")?;
        let mut parts = Vec::new();
        for field in batch.schema().fields() {
            if let Some(part) = field.name().strip_suffix("_ns").filter(|part| *part != "dur") {
                parts.push((part.to_owned(), whole(field.name())?));
            }
        }
        for row in 0..batch.num_rows() {
            let is_same = |(head, ..): &(Head, Vec<Step>, usize)| {
                (head.0.as_str(), head.1) == (runs.value(row), pids.value(row))
            };
            if !current.as_ref().is_some_and(is_same) {
                let text = |column: &arrow::array::StringArray| column.value(row).to_owned();
                let head = (text(&runs), pids.value(row), tids.value(row), text(&found_by), text(&names));
                end(current.replace((head, Vec::new(), 0)));
            }
            let Some((_, steps, warm_up_count)) = &mut current else { continue };
            *warm_up_count += usize::from(warm_up.value(row));
            steps.push(Step {
                step: numbers.value(row),
                ts: times.value(row),
                dur_ns: durs.value(row),
                launches_count: launches.value(row),
                parts: sorted(parts.iter().map(|(part, times)| (part.as_str(), times.value(row)))),
            });
        }
    }
    end(current);
    found.sort_by_key(|process| (std::cmp::Reverse(process.time_ns()), process.pid));
    Ok(found)
}

impl ProcessSteps {
    /// Returns the time from the first step to the last, in nanoseconds, without what is in no step.
    fn time_ns(&self) -> i64 {
        let steady_count = self.steps_count - self.warm_up_count;
        self.warm_up_ns + self.typical.dur_ns.saturating_mul(steady_count as i64)
    }
}

#[cfg(test)]
mod tests {
    use analyze_run::random::Random;

    use super::*;

    /// A step that waits for the GPU for `sync_ns` after 10 ns of host code.
    fn step(step: i64, sync_ns: i64) -> Step {
        let parts = sorted([("host", 10), ("sync", sync_ns)].into_iter());
        Step { step, ts: 1_000 * step, dur_ns: 10 + sync_ns, launches_count: 2, parts }
    }

    fn found(sync_ns: &[i64], warm_up_count: usize) -> ProcessSteps {
        let steps: Vec<Step> = (0..).zip(sync_ns).map(|(number, ns)| step(number, *ns)).collect();
        let head = ("r".to_owned(), 1, 1, "marks".to_owned(), "step".to_owned());
        summary(head, &steps, warm_up_count).expect("steps")
    }

    #[test]
    fn differences_are_to_the_typical_step_and_sum_up() {
        let process = found(&[900, 500, 90, 290, 90, 90, 80, 0], 2);
        assert_eq!((process.steps_count, process.warm_up_count), (8, 2));
        assert_eq!((process.typical.dur_ns, process.typical.step), (100, 2), "the first of three");
        assert_eq!((process.warm_up_ns, process.warm_up_more_ns), (1_420, 1_220));
        // Steps begin every 1000 ns, and the last one takes 10.
        assert_eq!(process.between_ns, 7_010 - (1_420 + 100 + 300 + 100 + 100 + 90 + 10));
        assert_eq!(process.slowest.len(), 1, "others are not longer than the typical one");
        let slowest = &process.slowest[0];
        assert_eq!((slowest.step.step, slowest.more_ns), (3, 200));
        assert_eq!(slowest.differences, [PartTime { part: "sync".to_owned(), time_ns: 200 }]);
        assert!(process.drift.is_none(), "six steps");
    }

    #[test]
    fn parts_that_one_step_lacks_count() {
        fn parts(parts: &[(&str, i64)]) -> Step {
            let dur_ns = parts.iter().map(|(_, ns)| ns).sum();
            Step { parts: sorted(parts.iter().copied()), dur_ns, ..step(0, 0) }
        }
        let slow = parts(&[("host", 10), ("alloc", 70), ("sync", 0)]);
        let usual = parts(&[("host", 12), ("sync", 30)]);
        let found = slow.more_than(&usual);
        let of: Vec<(&str, i64)> = found.iter().map(|part| (part.part.as_str(), part.time_ns)).collect();
        assert_eq!(of, [("alloc", 70), ("sync", -30), ("host", -2)]);
        assert_eq!(found.iter().map(|part| part.time_ns).sum::<i64>(), slow.dur_ns - usual.dur_ns);
    }

    #[test]
    fn a_drift_is_no_noise() {
        let rising: Vec<i64> = (0..60).map(|number| 100 + 2 * number + 7 * (number % 3)).collect();
        let drift = found(&rising, 0).drift.expect("a test");
        assert!(drift.is_significant && drift.last_ns > drift.first_ns, "{drift:?}");
        let sum: i64 = drift.differences.iter().map(|part| part.time_ns).sum();
        assert_eq!(sum, drift.last_ns - drift.first_ns);
        assert_eq!(found(&[50; 40], 0).drift.map(|drift| drift.p_value), Some(1.0));
        assert!(found(&rising[..9], 0).drift.is_none() && found(&rising[..10], 0).drift.is_some());
        let noise = |seed| {
            let mut random = Random::nth(seed, 0);
            let durs: Vec<i64> = (0..100).map(|_| 100 + random.below(50) as i64).collect();
            found(&durs, 0).drift.expect("a test").is_significant
        };
        let alarms = (0..200).filter(|seed| noise(*seed)).count();
        assert!(alarms <= 8, "{alarms} of 200 at 1 %");
        // A slow moment in the middle, and two shapes of step in turn.
        let hump: Vec<i64> =
            (0..90).map(|number| if (40..50).contains(&number) { 500 } else { 100 }).collect();
        let turns: Vec<i64> = (0..90).map(|number| if number % 2 == 0 { 500 } else { 100 }).collect();
        for durs in [hump, turns] {
            assert!(!found(&durs, 0).drift.expect("a test").is_significant);
        }
    }
}
