//! What was slow, why, and who is innocent.

use trace_schema::{Bytes, Nanos};

use super::{percent, time};
use crate::analysis::{
    causes::Cause,
    chains::{Chains, Scheduler, Share, share_of},
};

/// Functions with slow calls shown in full.
const SLOWEST: usize = 12;

/// The first lines of the page.
pub(crate) struct Headline {
    pub(crate) sentence: String,
    pub(crate) scheduler: String,
    /// CSS class: guilty, cleared, or open.
    pub(crate) tone: &'static str,
}

/// One part of a whole.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) percent: String,
    /// Width in percent, for style.
    pub(crate) width: String,
    pub(crate) total: String,
}

/// A function's line.
pub(crate) struct Function {
    pub(crate) op: String,
    pub(crate) calls: usize,
    pub(crate) p50: String,
    pub(crate) p99: String,
    pub(crate) p99_without: String,
    pub(crate) slow: usize,
    pub(crate) overlapping: usize,
    pub(crate) excess: String,
    pub(crate) scheduler: &'static str,
    pub(crate) tone: &'static str,
    pub(crate) sentence: String,
    pub(crate) bars: Vec<Bar>,
}

/// A task that held the CPU.
pub(crate) struct Culprit {
    pub(crate) comm: String,
    pub(crate) pid: u32,
    /// What it is behind, and that cause's name in words.
    pub(crate) cause: &'static str,
    pub(crate) held: String,
    pub(crate) percent: String,
}

/// One slow call.
pub(crate) struct SlowCall {
    pub(crate) id: usize,
    pub(crate) op: String,
    pub(crate) ts: i64,
    pub(crate) thread: String,
    pub(crate) dur: String,
    pub(crate) facts: String,
    pub(crate) bars: Vec<Bar>,
}

pub(crate) fn bars(shares: &[Share]) -> Vec<Bar> {
    shares
        .iter()
        .map(|share| Bar {
            name: share.cause.name(),
            meaning: share.cause.meaning(),
            percent: percent(share.share_ratio),
            width: format!("{:.3}", 100.0 * share.share_ratio),
            total: time(share.total_ns),
        })
        .collect()
}

/// The name under which most of the waiting stands, with the number of its processes, and its share.
fn main_culprit(chains: &Chains) -> Option<(String, f64)> {
    let holders = || chains.culprits.iter().filter(|culprit| culprit.cause == Cause::Scheduler);
    let names = holders().map(|culprit| culprit.comm.as_str());
    let of = |name: &str| holders().filter(|culprit| culprit.comm == name).collect::<Vec<_>>();
    let ratio = |name: &str| of(name).iter().map(|culprit| culprit.share_ratio).sum::<f64>();
    let name = names.max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let label = match of(name).as_slice() {
        [one] => format!("{name} (pid {})", one.pid),
        several => format!("{name} ({} processes)", several.len()),
    };
    Some((label, ratio(name)))
}

pub(crate) fn headline(chains: &Chains) -> Headline {
    if chains.overall_slow_count == 0 {
        return Headline {
            sentence: "No slow call could be judged in this run.".to_owned(),
            scheduler: "The scheduler is neither accused nor cleared.".to_owned(),
            tone: "open",
        };
    }
    let main = chains.overall.iter().max_by(|a, b| a.share_ratio.total_cmp(&b.share_ratio));
    let cause = main.map_or("unexplained", |share| share.cause.name());
    let share = main.map_or(0.0, |share| share.share_ratio);
    let own = share_of(&chains.overall, Cause::Scheduler);
    let found =
        Scheduler::of(own, chains.scheduler_behind_ratio, share_of(&chains.overall, Cause::Inconclusive));
    let tone = match found {
        Scheduler::Cleared => "cleared",
        Scheduler::Guilty | Scheduler::Behind => "guilty",
        Scheduler::Minor | Scheduler::Inconclusive => "open",
    };
    let by = main_culprit(chains).map_or_else(String::new, |(name, ratio)| {
        format!("; {name} held the CPU for {} of the waiting", percent(ratio))
    });
    let scheduler = match found {
        Scheduler::Cleared => {
            format!("The scheduler has an alibi: it took {} of the lost time.", percent(own))
        }
        Scheduler::Guilty => format!("The scheduler is guilty of {} of the lost time{by}.", percent(own)),
        Scheduler::Behind => format!(
            "The scheduler is behind {} of the lost time: it kept threads waiting that slow calls waited for{by}.",
            percent(chains.scheduler_behind_ratio)
        ),
        Scheduler::Inconclusive => {
            "What the scheduler did cannot be told: the record has holes where slow calls ran.".to_owned()
        }
        Scheduler::Minor => {
            format!("The scheduler had a minor part: {} of the lost time{by}.", percent(own))
        }
    };
    Headline {
        sentence: format!(
            "{} slow calls lost {} above their functions' medians; {} of it is {cause}.",
            chains.overall_slow_count,
            time(chains.overall_excess_ns),
            percent(share)
        ),
        scheduler,
        tone,
    }
}

pub(crate) fn functions(chains: &Chains) -> Vec<Function> {
    chains
        .verdicts
        .iter()
        .map(|verdict| {
            let (scheduler, tone) = match verdict.scheduler {
                Scheduler::Cleared => ("cleared", "cleared"),
                Scheduler::Minor => ("minor part", "open"),
                Scheduler::Guilty => ("guilty", "guilty"),
                Scheduler::Behind => ("behind", "guilty"),
                Scheduler::Inconclusive => ("–", "open"),
            };
            let sentence = match &verdict.size_line {
                Some(line) => format!(
                    "{}; bytes cost {:.4} ns each above {} (R² {:.4})",
                    verdict.sentence,
                    line.ns_per_byte,
                    time(line.fixed_ns),
                    line.r_squared
                ),
                None => verdict.sentence.clone(),
            };
            Function {
                op: verdict.op.clone(),
                calls: verdict.calls_count,
                p50: time(verdict.p50_ns),
                p99: time(verdict.p99_ns),
                p99_without: time(verdict.p99_without_scheduler_ns),
                slow: verdict.slow_count,
                overlapping: verdict.overlapping_count,
                excess: time(verdict.excess_ns),
                scheduler,
                tone,
                sentence,
                bars: bars(&verdict.shares),
            }
        })
        .collect()
}

pub(crate) fn culprits(chains: &Chains) -> Vec<Culprit> {
    chains
        .culprits
        .iter()
        .map(|culprit| Culprit {
            comm: culprit.comm.clone(),
            pid: culprit.pid,
            cause: culprit.cause.name(),
            held: Nanos(culprit.held_ns).to_string(),
            percent: percent(culprit.share_ratio),
        })
        .collect()
}

pub(crate) fn slowest(chains: &Chains) -> Vec<SlowCall> {
    let mut all: Vec<_> = chains
        .verdicts
        .iter()
        .flat_map(|verdict| verdict.examples.iter().map(move |example| (verdict, example)))
        // A nested call's time stands in the call around it already.
        .filter(|(_, example)| example.depth == 0)
        .collect();
    all.sort_by_key(|(_, example)| std::cmp::Reverse(example.dur_ns));
    all.into_iter()
        .take(SLOWEST)
        .enumerate()
        .map(|(id, (verdict, example))| {
            let size = example.size_bytes.map(|bytes| Bytes(bytes).to_string());
            let first = example.first_call.then(|| "first launch of its kernel".to_owned());
            let child = example.child_op.as_ref().map(|child| format!("contains {child}"));
            SlowCall {
                id: id + 1,
                op: verdict.op.clone(),
                ts: example.ts_ns,
                thread: format!("{}/{}", example.pid, example.tid),
                dur: Nanos(example.dur_ns).to_string(),
                facts: [size, first, child].into_iter().flatten().collect::<Vec<_>>().join(", "),
                bars: bars(&example.parts),
            }
        })
        .collect()
}
