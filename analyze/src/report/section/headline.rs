//! The first lines of the report: what is wrong, where the time went, what was slow and why, and where the memory was.

use std::cmp::Reverse;

use super::{findings::cost, percent, size, time};
use crate::{
    questions::{
        chains::{Chains, Scheduler, Verdict},
        findings::Findings,
        memory::{overview::Overview, state::Held},
        share::{Share, share_of},
    },
    report::{
        data::Report,
        document::{Answer, Headline, Link},
    },
};
use analyze_verdict::causes::Cause;

/// Number of functions and causes that are named.
const NAMED: usize = 3;

/// Returns the task name with the largest share of the waiting for a CPU, with its process or number of
/// processes, and that share.
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

/// Describes the scheduler's part in slow calls in one sentence.
fn scheduler(chains: &Chains) -> String {
    let own = share_of(&chains.overall, Cause::Scheduler);
    let found =
        Scheduler::of(own, chains.scheduler_behind_ratio, share_of(&chains.overall, Cause::Inconclusive));
    let by = main_culprit(chains).map_or_else(String::new, |(name, ratio)| {
        format!("; {name} held the CPU for {} of the waiting", percent(ratio))
    });
    match found {
        Scheduler::NotAFactor => {
            format!("The scheduler is not a factor: it caused {} of the excess latency.", percent(own))
        }
        Scheduler::MainCause => {
            format!("The scheduler caused {} of the excess latency{by}.", percent(own))
        }
        Scheduler::Behind => format!(
            "The scheduler caused {} of the excess latency, because threads that slow calls waited for had to wait for a CPU{by}.",
            percent(chains.scheduler_behind_ratio)
        ),
        Scheduler::Inconclusive => {
            "The scheduler's part is inconclusive: events were lost while slow calls ran.".to_owned()
        }
        Scheduler::Minor => {
            format!("The scheduler is a minor factor: it caused {} of the excess latency{by}.", percent(own))
        }
    }
}

/// Describes the slow calls: their number, their excess latency, and their functions. Nested calls are part
/// of the calls around them.
fn slow(chains: &Chains) -> String {
    let mut functions: Vec<&Verdict> = chains
        .verdicts
        .iter()
        .filter(|verdict| verdict.examples.iter().any(|call| call.depth == 0))
        .collect();
    functions.sort_by(|a, b| b.excess_ns.total_cmp(&a.excess_ns));
    let names: Vec<&str> = functions.iter().take(NAMED).map(|verdict| verdict.op.as_str()).collect();
    let more = match functions.len().saturating_sub(NAMED) {
        0 => String::new(),
        count => format!(" and {count} more functions"),
    };
    let (names, count) = (names.join(", "), chains.overall_slow_count);
    let calls = if count == 1 { "call" } else { "calls" };
    let lost = time(chains.overall_excess_ns);
    format!("{count} slow {calls} took {lost} more than the medians of their functions: {names}{more}.")
}

/// Describes the largest causes and the sum of the others.
fn why(chains: &Chains) -> String {
    let mut shares: Vec<&Share> = chains.overall.iter().collect();
    shares.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
    let words = |share: &&Share| {
        format!("{} {} ({})", percent(share.share_ratio), share.cause.label(), share.cause.meaning())
    };
    let named: Vec<String> = shares.iter().take(NAMED).map(words).collect();
    let rest: f64 = shares.iter().skip(NAMED).map(|share| share.share_ratio).sum();
    let rest = if rest >= 0.0005 { format!("; {} other causes", percent(rest)) } else { String::new() };
    format!("{}{rest}.", named.join("; "))
}

/// Names the causes that were examined and are not a factor.
fn ruled_out(chains: &Chains) -> String {
    if chains.alibis.is_empty() {
        return "Nothing is ruled out: the record lacks what would rule out a cause.".to_owned();
    }
    let names: Vec<&str> = chains.alibis.iter().map(|suspect| suspect.suspect.as_str()).collect();
    format!("examined, and ruled out: {}.", names.join(", "))
}

/// Describes the parts of what one allocator had reserved.
fn parts(held: &Held) -> String {
    format!(
        "{} was allocated, {} was inactive split, and {} was reclaimable by empty_cache().",
        size(held.allocated_bytes + held.pending_bytes),
        size(held.pinned_bytes),
        size(held.releasable_bytes)
    )
}

fn memory(of: Option<&Overview>) -> String {
    let Some(memory) = of else { return "no event of PyTorch's allocator is on record.".to_owned() };
    if memory.curve.peak_reserved_bytes == 0 {
        return "not known: PyTorch's blocks are on record, but no segment that it reserved.".to_owned();
    }
    let mut held: Vec<&Held> = memory.review.peak.allocators.iter().collect();
    held.sort_by_key(|held| (Reverse(held.reserved_bytes), held.pid, held.device));
    let all = size(memory.curve.peak_reserved_bytes);
    let mut words = match held.as_slice() {
        [] => format!("PyTorch reserved at most {all}."),
        [one] => format!("PyTorch reserved at most {all}; at that time {}", parts(one)),
        several => {
            let of = |held: &&Held| {
                let reserved = size(held.reserved_bytes.unwrap_or_default());
                format!(
                    " Process {} had {reserved} on device {} when one of them had most: {}",
                    held.pid,
                    held.device,
                    parts(held)
                )
            };
            let named: String = several.iter().take(NAMED).map(of).collect();
            format!("PyTorch's {} allocators reserved at most {all} together.{named}", several.len())
        }
    };
    if let Some(oom) = memory.review.history.ooms.first() {
        let count = memory.review.history.ooms.len();
        words += &format!(
            " {count} {} failed for lack of memory; the first asked for {} ({}).",
            if count == 1 { "request" } else { "requests" },
            size(oom.requested_bytes as i64),
            oom.verdict.replace('_', " ")
        );
    }
    for leak in super::leaks::found(memory) {
        words += &format!(" Process {}: {leak}.", leak.growth.pid);
    }
    words
}

/// Names the findings after the first one, with their costs; `None` if there are none.
fn further(findings: &Findings) -> Option<String> {
    let others = findings.findings.iter().skip(1);
    let named = others.clone().take(NAMED).map(|finding| format!("{} ({})", finding.title, cost(finding)));
    let named: Vec<String> = named.collect();
    let more = match others.count().saturating_sub(NAMED) {
        0 => String::new(),
        count => format!(" And {count} more."),
    };
    (!named.is_empty()).then(|| format!("{}{more}", named.join(" ")))
}

/// Builds the first lines.
pub(crate) fn build(report: &Report) -> Headline {
    let chains = &report.chains;
    let answer = |question, text, links| Answer { question, text, links };
    let mut answers = Vec::new();
    if let Some(others) = further(&report.findings) {
        answers.push(answer("Also", others, vec![Link::to_section("findings", "all findings")]));
    }
    if let Some(process) = report.run_time.first() {
        let others = match report.run_time.len() - 1 {
            0 => String::new(),
            1 => " One more process made calls.".to_owned(),
            count => format!(" {count} more processes made calls."),
        };
        let text = format!("{}{others}", super::run_time::sentence(process));
        answers.push(answer("Time", text, vec![Link::to_section("run-time", "all of it")]));
    }
    if let Some(text) = super::kernels::sentence(report) {
        answers.push(answer("GPU", text, vec![Link::to_section("kernels", "all kernels")]));
    }
    if chains.overall_slow_count == 0 {
        let text = "No slow call could be judged in this run.".to_owned();
        answers.push(answer("Slow", text, vec![Link::to_section("functions", "functions")]));
    } else {
        answers.push(answer("Slow", slow(chains), vec![Link::to_section("chains", "the slowest calls")]));
        let mut links = vec![Link::to_section("causes", "all causes")];
        if !chains.culprits.is_empty() {
            links.push(Link::to_section("culprits", "which tasks"));
        }
        answers.push(answer("Why", why(chains), links));
        let links = vec![Link::to_section("causes", "what rules them out")];
        let links = if chains.alibis.is_empty() { Vec::new() } else { links };
        answers.push(answer("Not a factor", ruled_out(chains), links));
        let text = match report.has_schedule {
            true => scheduler(chains),
            false => "Nothing of the scheduler is on record: its part is not known.".to_owned(),
        };
        answers.push(answer("Scheduler", text, vec![Link::to_section("causes", "its part")]));
    }
    let links = vec![Link::to_section("memory", "where it was")];
    answers.push(answer("Memory", memory(report.memory.as_ref()), links));
    let steps = super::next_steps::all(report);
    answers.push(answer(
        "To do",
        steps.join("\n"),
        vec![Link::to_section("provenance", "what was not measured")],
    ));
    let (main, tone) = super::findings::main_sentence(&report.findings);
    Headline { main, sentences: Vec::new(), answers, tone }
}
