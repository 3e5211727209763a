//! The slowest calls with their chains: what the call's own thread did, which task had the CPU, which thread
//! woke it, and what delayed that thread.

use analyze_engine::session::string_literal;
use trace_schema::Nanos;

use super::{percent, size, time};
use crate::{
    questions::chains::{Chains, Example, Link, Verdict},
    report::{
        data::Report,
        document::{Block, Call, Figure, Link as To, Part, Section},
        time_svg,
    },
};

/// Number of calls shown.
const SLOWEST: usize = 12;
/// Number of chain links described in words per call.
const LINKS: usize = 10;

/// Largest number of links to slow calls in one cell.
const LINKED: usize = 6;

/// Returns the slow calls that the report shows, each with its number: the longest top-level calls. Nested
/// calls are left out, because the time of a nested call is part of the call around it.
pub(super) fn shown(chains: &Chains) -> Vec<(usize, &Verdict, &Example)> {
    let of = |verdict| std::iter::repeat(verdict);
    let mut all: Vec<(&Verdict, &Example)> =
        chains.verdicts.iter().flat_map(|verdict| of(verdict).zip(&verdict.examples)).collect();
    all.retain(|(_, example)| example.depth == 0);
    all.sort_by_key(|(_, example)| (std::cmp::Reverse(example.dur_ns), example.ts_ns, example.tid));
    all.into_iter()
        .take(SLOWEST)
        .enumerate()
        .map(|(at, (verdict, example))| (at + 1, verdict, example))
        .collect()
}

/// Creates links to the shown calls for which `is_meant` holds.
pub(super) fn linked(chains: &Chains, is_meant: impl Fn(&Verdict, &Example) -> bool) -> Vec<To> {
    let meant = shown(chains).into_iter().filter(|(_, verdict, call)| is_meant(verdict, call));
    meant.map(|(number, ..)| To::to_chain(number)).take(LINKED).collect()
}

fn words(link: &Link, call: &Example) -> String {
    let whose = if (link.pid, link.tid) == (call.pid, call.tid) {
        String::new()
    } else {
        format!("thread {}/{}: ", link.pid, link.tid)
    };
    let by = match (&link.task_comm, link.task_pid) {
        (Some(comm), Some(pid)) if link.depth == 0 || link.cause.is_some() => format!(" ({comm}, pid {pid})"),
        _ => String::new(),
    };
    format!(
        "{} after it began, {whose}{} {}{by}",
        Nanos(link.ts_ns - call.ts_ns),
        Nanos(link.dur_ns),
        link.state
    )
}

fn call(number: usize, verdict: &Verdict, example: &Example) -> Call {
    let facts = [
        Some(format!("thread {}/{}", example.pid, example.tid)),
        Some(format!("at {} ns", example.ts_ns)),
        Some(format!("usually {}", time(example.baseline_ns))),
        example.size_bytes.map(size),
        example.first_call.then(|| "first launch of its kernel".to_owned()),
        example.child_op.as_ref().map(|child| format!("contains {child}")),
        (example.root != example.verdict).then(|| format!("root cause: {}", example.root.label())),
    ];
    let mut off: Vec<&Link> = example.chain.iter().filter(|link| link.cause.is_some()).collect();
    off.sort_by_key(|link| std::cmp::Reverse(link.dur_ns));
    let count = off.len();
    off.truncate(LINKS);
    off.sort_by_key(|link| (link.ts_ns, link.depth));
    let mut links: Vec<String> = off.into_iter().map(|link| words(link, example)).collect();
    if count > LINKS {
        links.push(format!("{LINKS} of {count} shown, the longest"));
    }
    let chain = if example.chain.is_empty() {
        None
    } else {
        Some(Figure {
            name: format!("chain-{number}"),
            caption: format!("Chain {number}: {} from end to end", verdict.op),
            svg: time_svg::chain(example),
            legend: Vec::new(),
            spark: Vec::new(),
            is_folded: false,
        })
    };
    Call {
        number,
        op: verdict.op.clone(),
        dur: Nanos(example.dur_ns).to_string(),
        facts: facts.into_iter().flatten().collect::<Vec<_>>().join(", "),
        parts: Part::of_shares(&example.parts),
        chain,
        links,
        sql: format!(
            "SELECT * FROM op_time WHERE pid = {} AND tid = {} AND ts = {} AND depth = 0 AND op = {}",
            example.pid,
            example.tid,
            example.ts_ns,
            string_literal(&verdict.op)
        ),
    }
}

pub(super) fn build(report: &Report) -> Option<Section> {
    let chains = &report.chains;
    let calls: Vec<Call> =
        shown(chains).into_iter().map(|(number, verdict, example)| call(number, verdict, example)).collect();
    let count = calls.len();
    let total: usize = chains.verdicts.iter().map(|verdict| verdict.slow_count).sum();
    let blocks = if calls.is_empty() {
        vec![Block::Note("No slow call.".to_owned())]
    } else {
        let behind = percent(chains.scheduler_behind_ratio);
        vec![
            Block::Note(
                "Blue: on CPU. Red: runnable, while the named task had the CPU. Violet: asleep. Below a call's own thread, the threads that it waited for, directly or not."
                    .to_owned(),
            ),
            Block::Calls(calls),
            Block::Note(format!(
                "{count} of {total} slow calls (nested ones counted) shown, the longest. Threads without a CPU that slow calls waited for: {behind} of the excess latency. SQL: SELECT * FROM chain_links ORDER BY call_ts, ts"
            )),
        ]
    };
    Some(Section {
        id: "chains",
        short: "Slowest calls",
        question: "What happened in the slowest calls?".to_owned(),
        blocks,
    })
}
