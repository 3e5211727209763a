//! Holds the verdicts against the truth, call by call.
//!
//! - *Slow*: a call that by its own clock took more than three times its function's median in the same scenario, and at
//!   least 20 µs more than that ([`cuda_stub::truth`]).
//! - *Guilty*: a slow call whose true label is the scenario's. The label is the cause that took most of the call, by the
//!   kernel's books of the thread (waiting for a CPU, throttling) or by what was injected. A call with two causes of
//!   about the same size, or with a wait of which it is not known whether it was in the call or just beside it, is
//!   *contested* and counts nowhere.
//! - *Blamed*: a call to which `slow_calls` gives the scenario's label. It is *right* if that is its true label,
//!   however slow it was.
//! - Precision is right / blamed, recall is right and guilty / guilty.
//! - *Decoys*: calls blamed on the scheduler, on a quota or on blocking whose true label is another; and calls that
//!   waited for a CPU, but not for the hog that is named, because that one was on another CPU or between calls.
//!
//! A lock's wait is followed to its root: the right verdict is `blocked:futex` with the root `scheduler`, and the
//! culprit is the hog that had the CPU of the lock's holder. Waits in which the holder mostly ran, or in which mostly
//! others than the hog had its CPU, are contested.
//!
//! A row of `slow_calls` belongs to the call with its function and thread in whose measured interval it begins. Driver
//! calls nested in runtime calls belong to none: the same happened there, and it would count twice.

use std::collections::{BTreeMap, HashMap};

use cuda_stub::{
    scenario::{HOG_COMM, Injection, Scenario, label},
    truth::Call,
};
use serde::Serialize;

use crate::stage::{Evidence, Verdict};

/// Less precision or recall is a failure.
const LEAST_PRECISION: f64 = 0.99;
const LEAST_RECALL: f64 = 0.95;
/// So many are told.
const MISTAKES: usize = 50;

/// How many slow calls with this true label got this verdict.
#[derive(Debug, Serialize)]
pub(crate) struct Confusion {
    pub(crate) truth: String,
    pub(crate) verdict: String,
    pub(crate) calls_count: usize,
}

/// A call that was judged wrongly: by it, the trace can be looked up.
#[derive(Debug, Serialize)]
pub(crate) struct Mistake {
    pub(crate) truth: &'static str,
    /// Null: not in the view.
    pub(crate) verdict: Option<String>,
    pub(crate) culprit_comm: Option<String>,
    pub(crate) call: Call,
}

/// The kernel's books of the guilty calls.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Books {
    pub(crate) excess_ns: u64,
    /// Part of that time which the accounting of the label's cause explains.
    pub(crate) explained_ns: u64,
    pub(crate) median_dur_ns: u64,
    pub(crate) run_delay_ns: u64,
    pub(crate) throttled_ns: u64,
    pub(crate) fault_ns: u64,
    pub(crate) holder_run_delay_ns: u64,
    pub(crate) hog_ran_ns: u64,
    pub(crate) nvcsw_count: i64,
    pub(crate) nivcsw_count: i64,
    pub(crate) majflt_count: i64,
}

/// One row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Score {
    pub(crate) scenario: &'static str,
    pub(crate) label: Option<&'static str>,
    pub(crate) calls_count: usize,
    pub(crate) slow_count: usize,
    pub(crate) guilty_count: usize,
    pub(crate) blamed_count: usize,
    /// Null: nobody was blamed.
    pub(crate) precision_ratio: Option<f64>,
    /// Null: nobody was guilty.
    pub(crate) recall_ratio: Option<f64>,
    pub(crate) decoys_count: usize,
    pub(crate) contested_count: usize,
    pub(crate) lost_count: u64,
    pub(crate) medians_ns: BTreeMap<String, u64>,
    pub(crate) books: Books,
    pub(crate) confusion: Vec<Confusion>,
    /// The first of them.
    pub(crate) mistakes: Vec<Mistake>,
}

impl Score {
    /// Whether the verdicts hold, and there was something to judge.
    pub(crate) fn holds(&self) -> bool {
        let enough = |ratio: Option<f64>, least: f64| ratio.is_none_or(|ratio| ratio >= least);
        enough(self.precision_ratio, LEAST_PRECISION)
            && enough(self.recall_ratio, LEAST_RECALL)
            && self.decoys_count == 0
            && (self.label.is_none() || self.guilty_count > 0)
    }
}

/// Scores one scenario.
pub(crate) fn score(scenario: &Scenario, evidence: &Evidence) -> Score {
    let medians = medians(&evidence.truth);
    let median = |call: &Call| medians.get(&call.op).copied().unwrap_or(0);
    let verdicts = matched(evidence);
    let mut score = Score {
        scenario: scenario.name,
        label: scenario.label,
        calls_count: evidence.truth.len(),
        slow_count: 0,
        guilty_count: 0,
        blamed_count: 0,
        precision_ratio: None,
        recall_ratio: None,
        decoys_count: 0,
        contested_count: 0,
        lost_count: evidence.lost_count,
        medians_ns: BTreeMap::new(),
        books: Books::default(),
        confusion: Vec::new(),
        mistakes: Vec::new(),
    };
    let (mut right, mut found) = (0, 0);
    let mut guilty = Vec::new();
    let mut confusion: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (index, call) in evidence.truth.iter().enumerate() {
        let said = verdicts.get(&index).copied();
        let slow = call.is_slow(median(call));
        score.slow_count += usize::from(slow);
        let Some(truth) = call.label(median(call)) else {
            score.contested_count += usize::from(slow || said.is_some());
            continue;
        };
        if slow || said.is_some() {
            *confusion.entry((truth, said.map_or("not slow", |said| &said.verdict))).or_default() += 1;
        }
        // A futex wait that the holder itself caused, or a stranger on its CPU, is no case of this scenario.
        let convoy = scenario.injection == Injection::Convoy && truth == label::FUTEX;
        if convoy && !call.is_hog_s_convoy() {
            score.contested_count += usize::from(slow || said.is_some());
            continue;
        }
        let is_guilty = slow && scenario.label == Some(truth);
        if is_guilty {
            guilty.push(call);
        }
        let is_right = said.is_some_and(|said| said.verdict == truth && (!convoy || names_the_hog(said)));
        if let Some(said) = said {
            let innocent_hog =
                said.verdict == label::SCHEDULER && names_the_hog(said) && !scenario.hogs.meet_calls();
            let innocent_cause = takes_off_cpu(&said.verdict) && said.verdict != truth;
            score.decoys_count += usize::from(innocent_cause || innocent_hog);
            if scenario.label == Some(said.verdict.as_str()) {
                score.blamed_count += 1;
                right += usize::from(is_right);
                found += usize::from(is_right && is_guilty);
            }
        }
        if !is_right && (slow || said.is_some()) && score.mistakes.len() < MISTAKES {
            score.mistakes.push(Mistake {
                truth,
                verdict: said.map(|said| said.verdict.clone()),
                culprit_comm: said.and_then(|said| said.culprit_comm.clone()),
                call: call.clone(),
            });
        }
    }
    let ratio = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
    score.guilty_count = guilty.len();
    score.precision_ratio = ratio(right, score.blamed_count);
    score.recall_ratio = ratio(found, guilty.len());
    score.books = books(&guilty, &median);
    score.confusion = confusion
        .into_iter()
        .map(|((truth, verdict), calls_count)| Confusion {
            truth: truth.to_owned(),
            verdict: verdict.to_owned(),
            calls_count,
        })
        .collect();
    score.medians_ns = medians;
    score
}

fn takes_off_cpu(verdict: &str) -> bool {
    verdict == label::SCHEDULER || verdict == label::THROTTLED || verdict.starts_with("blocked:")
}

fn names_the_hog(said: &Verdict) -> bool {
    said.root.as_deref() == Some(label::SCHEDULER) && said.culprit_comm.as_deref() == Some(HOG_COMM)
}

/// Each function's median.
fn medians(truth: &[Call]) -> BTreeMap<String, u64> {
    let mut spans: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for call in truth {
        spans.entry(call.op.clone()).or_default().push(call.dur_ns());
    }
    spans.into_iter().map(|(op, mut spans)| (op, middle(&mut spans))).collect()
}

fn middle(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// The verdict on each call that got one, by the call's place in the truth.
fn matched(evidence: &Evidence) -> HashMap<usize, &Verdict> {
    let mut calls: HashMap<(&str, i32), Vec<usize>> = HashMap::new();
    for (index, call) in evidence.truth.iter().enumerate() {
        calls.entry((&call.op, call.tid)).or_default().push(index);
    }
    // One thread's calls are in the order they were made.
    let mut found = HashMap::new();
    for verdict in &evidence.verdicts {
        let Some(own) = calls.get(&(verdict.op.as_str(), verdict.tid)) else { continue };
        let after = own.partition_point(|index| evidence.truth[*index].before_ns <= verdict.ts);
        if let Some(index) = after.checked_sub(1).map(|place| own[place])
            && verdict.ts < evidence.truth[index].after_ns
        {
            found.insert(index, verdict);
        }
    }
    found
}

fn books(guilty: &[&Call], median: &impl Fn(&Call) -> u64) -> Books {
    let mut books = Books::default();
    for call in guilty {
        books.excess_ns += call.dur_ns() - median(call);
        books.explained_ns += call.parts(median(call))[0].1;
        books.run_delay_ns += call.run_delay_ns;
        books.throttled_ns += call.throttled_ns;
        books.fault_ns += call.fault_ns;
        books.holder_run_delay_ns += call.holder_run_delay_ns;
        books.hog_ran_ns += call.hog_ran_ns;
        books.nvcsw_count += call.nvcsw_count;
        books.nivcsw_count += call.nivcsw_count;
        books.majflt_count += call.majflt_count;
    }
    books.median_dur_ns = middle(&mut guilty.iter().map(|call| call.dur_ns()).collect::<Vec<_>>());
    books
}
