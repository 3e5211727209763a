//! Whether the two sides do the same amount of work: how many kernels a run launches, and how many bytes it
//! copies. More work takes more time without any call being slower, so that a comparison says it before it says
//! regression.
//!
//! The numbers are sums of the figures `calls_count` and `copied_bytes` over functions and directions. Calls that
//! wait or poll are left out, and those that allocate wherever there is anything else to count: more of them may
//! be the very regression.

use serde::Serialize;
use trace_schema::{Class, Layer, Op};

use super::{metric::Metric, runs::Runs, samples::median};

/// Smallest difference of the medians that counts, as a share of the base's.
const RATIO: f64 = 0.05;

/// Metric that counts the calls of each function.
const CALLS: &str = "calls_count";
/// Metric that sums the bytes of copies in each direction.
const BYTES: &str = "copied_bytes";

/// A kind of work: its name, and which classes of calls count as it.
type Counted = (&'static str, fn(Class) -> bool);

/// What calls are counted as, and whether a class of functions is. The first of which any run has a call is
/// used, because a recorder may leave launches out.
const COUNTED: [Counted; 3] = [
    ("launches", |class| class == Class::Launch),
    ("copies and memsets", |class| matches!(class, Class::Copy | Class::Set)),
    ("calls", |class| !matches!(class, Class::Sync | Class::Event | Class::Query)),
];

/// A kind of work of which the sides do different amounts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// What is counted: `launches`, `copies and memsets`, `calls` or `copied bytes`.
    pub what: &'static str,
    /// Median over the base runs, a number or in bytes.
    pub base: f64,
    /// Median over the new runs, a number or in bytes.
    pub new: f64,
    /// Metric that it is a sum of.
    metric: Metric,
}

impl Work {
    /// Returns the difference between the amounts of the two sides; `None` if it is no more than noise: the
    /// medians are near each other, or some runs of one side do as much as some of the other.
    fn new(what: &'static str, metric: &str, base: &[f64], new: &[f64]) -> Option<Self> {
        if base.is_empty() || new.is_empty() {
            return None;
        }
        let least = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |side: &[f64]| side.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let are_apart = most(base) < least(new) || most(new) < least(base);
        let work = Self { what, base: median(base), new: median(new), metric: Metric::of(metric) };
        let trifle = work.metric.declaration().floor.max(RATIO * work.base);
        (are_apart && (work.new - work.base).abs() > trifle).then_some(work)
    }

    /// Describes the difference, as in `base 57 launches a run, new 114 (× 2.0)`.
    fn shown(&self) -> String {
        let ratio = self.new / self.base;
        let times = if self.base == 0.0 {
            "from 0".to_owned()
        } else if ratio < 1.5 {
            format!("× {ratio:.2}")
        } else {
            format!("× {ratio:.1}")
        };
        let what = if self.metric.name() == BYTES { "copied" } else { self.what };
        let (base, new) = (self.metric.show(self.base), self.metric.show(self.new));
        format!("base {base} {what} a run, new {new} ({times})")
    }
}

/// Sums a metric over the wanted subjects, in each run that has any call of CUDA or NCCL on record; 0 for a run
/// without a wanted subject.
fn sums(runs: &Runs, metric: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<f64> {
    let mut sums = vec![0.0; runs.each().len()];
    let mut has_calls = vec![false; sums.len()];
    for key in runs.keys().iter().filter(|key| key.stratum.is_none()) {
        let Some(subject) = key.subject.as_deref() else { continue };
        if key.metric.name() == CALLS && Op::from_name(subject).is_some() {
            runs.figure(key).for_each(|(run, _)| has_calls[run] = true);
        }
        if key.metric.name() == metric && wanted(subject) {
            runs.figure(key).for_each(|(run, figure)| sums[run] += figure.value);
        }
    }
    sums.into_iter().zip(has_calls).filter_map(|(sum, has)| has.then_some(sum)).collect()
}

/// Counts the calls of classes in every run of both sides, on the layer that has more of them: a runtime call
/// may or may not have a driver call within it.
fn counts(base: &Runs, new: &Runs, is_counted: fn(Class) -> bool) -> [Vec<f64>; 2] {
    let of = |layer: Layer| {
        let wanted =
            |name: &str| Op::from_name(name).is_some_and(|op| op.layer() == layer && is_counted(op.class()));
        [sums(base, CALLS, &wanted), sums(new, CALLS, &wanted)]
    };
    let total = |sides: &[Vec<f64>; 2]| sides.iter().flatten().sum::<f64>();
    let (driver, runtime) = (of(Layer::Driver), of(Layer::Runtime));
    if total(&runtime) > total(&driver) { runtime } else { driver }
}

/// Returns the kinds of work of which the sides do different amounts.
pub fn differences(base: &Runs, new: &Runs) -> Vec<Work> {
    let counted = COUNTED.into_iter().find_map(|(what, is_counted)| {
        let sides = counts(base, new, is_counted);
        sides.iter().flatten().any(|count| *count > 0.0).then_some((what, sides))
    });
    let calls = counted.and_then(|(what, [base, new])| Work::new(what, CALLS, &base, &new));
    let bytes = |runs: &Runs| sums(runs, BYTES, &|_| true);
    calls.into_iter().chain(Work::new("copied bytes", BYTES, &bytes(base), &bytes(new))).collect()
}

/// Describes the differences in one sentence; `None` if there are none.
pub fn caution(differences: &[Work]) -> Option<String> {
    let all: Vec<String> = differences.iter().map(Work::shown).collect();
    (!all.is_empty()).then(|| format!("the sides do different work: {}", all.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{
        facts::Facts,
        figure::{Figure, Key},
        runs::RunFigures,
    };

    /// Runs with these numbers of calls and bytes, each by metric and subject.
    fn side(runs: &[&[(&str, &str, f64)]]) -> Runs {
        let run = |figures: &&[(&str, &str, f64)]| RunFigures {
            name: String::new(),
            facts: Facts::default(),
            figures: figures
                .iter()
                .map(|(metric, subject, value)| {
                    (Key::of(metric, Some(*subject), None), Figure { value: *value, calls_count: None })
                })
                .collect(),
        };
        Runs::new(runs.iter().map(run)).unwrap()
    }

    fn said(base: &[&[(&str, &str, f64)]], new: &[&[(&str, &str, f64)]]) -> Option<String> {
        caution(&differences(&side(base), &side(new)))
    }

    #[test]
    fn twice_the_work_is_said() {
        // The runtime's launches have the driver's within them, and phases are no calls.
        let run = |launches: f64, bytes: f64| {
            [
                (CALLS, "cudaLaunchKernel", launches - 1.0),
                (CALLS, "cuLaunchKernel", launches),
                (CALLS, "step #", 900.0),
                (BYTES, "h2d", bytes),
            ]
        };
        let (once, twice) = (run(57.0, 1_073_741_824.0), run(114.0, 2_147_483_648.0));
        assert_eq!(
            said(&[&once], &[&twice]).as_deref(),
            Some(
                "the sides do different work: base 57 launches a run, new 114 (× 2.0); base 1.00 GiB copied a run, new 2.00 GiB (× 2.0)"
            )
        );
        assert_eq!(said(&[&twice[..]; 3], &[&twice[..]; 3]), None);
        // A run of one side that does as much as one of the other makes it noise; so does a small difference.
        assert_eq!(said(&[&once, &once, &twice], &[&twice[..]; 3]), None);
        assert_eq!(said(&[&run(100.0, 0.0)], &[&run(105.0, 0.0)]), None);
        assert!(said(&[&run(100.0, 0.0)], &[&run(94.0, 0.0)]).unwrap().contains("(× 0.94)"));
    }

    #[test]
    fn waiting_is_no_work() {
        let run = |launches: f64, syncs: f64| {
            [(CALLS, "cuLaunchKernel", launches), (CALLS, "cudaDeviceSynchronize", syncs)]
        };
        assert_eq!(said(&[&run(500.0, 10.0)], &[&run(500.0, 400.0)]), None);
        // Without launches on record other calls are counted.
        let copies = |count: f64| [(CALLS, "cudaMemcpy", count), (CALLS, "cudaMalloc", 7.0)];
        assert!(said(&[&copies(10.0)], &[&copies(20.0)]).unwrap().contains("base 10 copies and memsets"));
        let others = |count: f64| [(CALLS, "cudaMalloc", count)];
        assert!(said(&[&others(10.0)], &[&others(20.0)]).unwrap().contains("base 10 calls a run, new 20"));
        // A run without any call on record says nothing about the work.
        assert_eq!(said(&[&[("phase_ns", "step #", 1.0)]], &[&others(20.0)]), None);
    }
}
