//! What was slow, why, who is innocent, and where the memory is: in plain words, with the figures.

use super::{percent, size, time};
use crate::{
    analysis::{
        causes::Cause,
        chains::{Chains, Scheduler, share_of},
    },
    report::{
        Report,
        document::{Headline, Tone},
    },
};

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

/// What the scheduler did, in a sentence.
fn scheduler(chains: &Chains) -> (String, Tone) {
    let own = share_of(&chains.overall, Cause::Scheduler);
    let found =
        Scheduler::of(own, chains.scheduler_behind_ratio, share_of(&chains.overall, Cause::Inconclusive));
    let by = main_culprit(chains).map_or_else(String::new, |(name, ratio)| {
        format!("; {name} held the CPU for {} of the waiting", percent(ratio))
    });
    match found {
        Scheduler::Cleared => {
            (format!("The scheduler has an alibi: it took {} of the lost time.", percent(own)), Tone::Cleared)
        }
        Scheduler::Guilty => {
            (format!("The scheduler is guilty of {} of the lost time{by}.", percent(own)), Tone::Guilty)
        }
        Scheduler::Behind => (
            format!(
                "The scheduler is behind {} of the lost time: it kept threads waiting that slow calls waited for{by}.",
                percent(chains.scheduler_behind_ratio)
            ),
            Tone::Guilty,
        ),
        Scheduler::Inconclusive => (
            "What the scheduler did cannot be told: the record has holes where slow calls ran.".to_owned(),
            Tone::Open,
        ),
        Scheduler::Minor => {
            (format!("The scheduler had a minor part: {} of the lost time{by}.", percent(own)), Tone::Open)
        }
    }
}

/// What stands first.
pub(crate) fn build(report: &Report) -> Headline {
    let chains = &report.chains;
    let (scheduler, tone, slow) = if chains.overall_slow_count == 0 {
        let slow = "No slow call could be judged in this run.".to_owned();
        ("The scheduler is neither accused nor cleared.".to_owned(), Tone::Open, slow)
    } else {
        let main = chains.overall.iter().max_by(|a, b| a.share_ratio.total_cmp(&b.share_ratio));
        let slow = format!(
            "{} slow calls lost {} above their functions' medians; {} of it is {}.",
            chains.overall_slow_count,
            time(chains.overall_excess_ns),
            percent(main.map_or(0.0, |share| share.share_ratio)),
            main.map_or("unexplained", |share| share.cause.name())
        );
        let (scheduler, tone) = scheduler(chains);
        (scheduler, tone, slow)
    };
    let mut sentences = vec![slow];
    match &report.memory {
        None => sentences.push("Memory: no event of PyTorch's allocator is on record.".to_owned()),
        Some(memory) => {
            let at_peak = &memory.review.peak;
            let sum = |of: fn(&crate::analysis::memory_state::Held) -> i64| -> i64 {
                at_peak.allocators.iter().map(of).sum()
            };
            sentences.push(format!(
                "Memory: PyTorch had {} from the driver at most; of that {} was in use, {} free but pinned, and {} could have been given back.",
                size(memory.curve.peak_reserved_bytes),
                size(sum(|held| held.allocated_bytes + held.pending_bytes)),
                size(sum(|held| held.pinned_bytes)),
                size(sum(|held| held.releasable_bytes))
            ));
            for oom in memory.review.history.ooms.iter().take(1) {
                let count = memory.review.history.ooms.len();
                sentences.push(format!(
                    "{count} {} failed for lack of memory; the first asked for {} ({}).",
                    if count == 1 { "request" } else { "requests" },
                    size(oom.requested_bytes as i64),
                    oom.verdict.replace('_', " ")
                ));
            }
            let leaking = memory.growth.iter().filter(|growth| growth.account.leaked_bytes > 0);
            for growth in leaking {
                sentences.push(format!(
                    "Process {} leaks: {} were kept, epoch after epoch.",
                    growth.pid,
                    size(growth.account.leaked_bytes)
                ));
            }
            for advice in memory.review.advice.iter().take(1) {
                sentences.push(format!("What would use less: {}", advice.text));
            }
        }
    }
    Headline { scheduler, sentences, tone }
}
