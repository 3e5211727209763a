//! Why slow calls were slow, function by function.

use trace_schema::Nanos;

use crate::{
    questions::chains::{Chains, Example, Link, Verdict},
    report::{
        document::{Block, Document, Table, number, whole, word},
        section::{percentile, time},
    },
};

/// Number of links shown of one chain: the longest.
const LINKS: usize = 12;
/// Indents the links of other threads.
const INDENT: &str = "\u{a0}\u{a0}";

fn functions(answer: &Chains) -> Table {
    let row = |verdict: &Verdict| {
        let of_calls = |q: f64, ns: f64| percentile(q, ns, verdict.calls_count as i64);
        [
            verdict.op.clone(),
            verdict.calls_count.to_string(),
            of_calls(0.5, verdict.p50_ns),
            of_calls(0.99, verdict.p99_ns),
            of_calls(0.99, verdict.p99_without_scheduler_ns),
            verdict.slow_count.to_string(),
            verdict.overlapping_count.to_string(),
            time(verdict.excess_ns),
        ]
    };
    let columns = [
        word("op"),
        number("calls"),
        number("p50"),
        number("p99"),
        number("p99 w/o sched"),
        number("slow"),
        number("off-CPU"),
        number("excess"),
    ];
    Table::texts(&columns, answer.verdicts.iter().map(row))
}

fn sentences(answer: &Chains) -> Table {
    let mut facts = Vec::new();
    for verdict in &answer.verdicts {
        facts.push((verdict.op.as_str(), verdict.sentence.clone()));
        if let Some(line) = &verdict.size_line {
            let is_set = verdict.class == Some(trace_schema::Class::Set.name());
            facts.push((
                "",
                format!(
                    "{} costs {:.1} µs + {:.4} ns a byte (R² {:.4})",
                    if is_set { "setting" } else { "a copy" },
                    line.fixed_ns / 1e3,
                    line.ns_per_byte,
                    line.r_squared
                ),
            ));
        }
    }
    Table::facts(facts)
}

fn culprits(answer: &Chains) -> Table {
    let rows = answer.culprits.iter().map(|culprit| {
        let is_task = culprit.pid != 0;
        [
            format!("{:.2} %", 100.0 * culprit.share_ratio),
            culprit.cause.label().to_owned(),
            if is_task { culprit.comm.clone() } else { "an interrupt or timer".to_owned() },
            culprit.pid.to_string(),
            Nanos(culprit.held_ns).to_string(),
            Nanos(culprit.run_ns).to_string(),
        ]
    });
    let columns = [
        number("share"),
        word("of the cause"),
        word("task"),
        number("pid"),
        number("in slow calls"),
        number("in the whole run"),
    ];
    Table::texts(&columns, rows)
}

/// Returns the state of a link's thread, and which task ended it or had the CPU.
fn state(link: &Link) -> String {
    let task = match (&link.task_comm, link.task_pid) {
        (_, Some(0)) if link.state == "blocked" => ", until an interrupt or timer".to_owned(),
        (Some(comm), Some(pid)) if link.state == "blocked" => format!(", woken by {comm} (pid {pid})"),
        (Some(comm), Some(pid)) if link.state == "stopped" => format!(", continued by {comm} (pid {pid})"),
        (Some(comm), Some(pid)) => format!(", while {comm} (pid {pid}) had the CPU"),
        _ => String::new(),
    };
    format!("{}thread {} {}{task}", INDENT.repeat(link.depth), link.tid, link.state)
}

/// The slowest top-level calls with their chains, link by link.
fn slowest(answer: &Chains, count: usize) -> Vec<Block> {
    let of = |verdict| std::iter::repeat(verdict);
    let mut examples: Vec<(&Verdict, &Example)> =
        answer.verdicts.iter().flat_map(|verdict| of(verdict).zip(&verdict.examples)).collect();
    examples.retain(|(_, example)| example.depth == 0 && !example.chain.is_empty());
    examples.sort_by_key(|(_, example)| std::cmp::Reverse(example.dur_ns));
    let mut blocks = Vec::new();
    for (verdict, example) in examples.into_iter().take(count) {
        blocks.push(Block::Heading(format!(
            "{} at {} on thread {}: {}, usually {}; cause {}, root cause {}",
            verdict.op,
            example.ts_ns,
            example.tid,
            Nanos(example.dur_ns),
            time(example.baseline_ns),
            example.verdict.label(),
            example.root.label()
        )));
        let mut shown: Vec<&Link> = example.chain.iter().collect();
        shown.sort_by_key(|link| (std::cmp::Reverse(link.dur_ns), link.ts_ns));
        shown.truncate(LINKS);
        shown.sort_by_key(|link| link.ts_ns);
        let rows = shown.into_iter().map(|link| {
            [format!("+{}", Nanos(link.ts_ns - example.ts_ns)), Nanos(link.dur_ns).to_string(), state(link)]
        });
        let table = Table::texts(&[number("after"), number("for"), whole("state")], rows);
        blocks.push(Block::Table(table.of(example.chain.len())));
    }
    blocks
}

/// Arranges the answer with the chains of the `count` slowest calls.
pub fn document(answer: &Chains, count: usize) -> Document {
    let and = match answer.params.slow_by_ns {
        0 => String::new(),
        ns => format!(", and {} more", Nanos(ns)),
    };
    let factor = answer.params.slow_factor;
    let mut blocks = vec![
        Block::Note(format!("Slow: more than {factor} × what calls of its group usually take{and}.")),
        Block::Table(functions(answer)),
        Block::Table(sentences(answer)),
        Block::Heading(format!(
            "All top-level slow calls: {}, excess latency {}",
            answer.overall_slow_count,
            time(answer.overall_excess_ns)
        )),
    ];
    let shares = answer.overall.iter().map(|share| {
        let percent = format!("{:.2} %", 100.0 * share.share_ratio);
        [percent, share.cause.label().to_owned(), time(share.total_ns)]
    });
    if !answer.overall.is_empty() {
        blocks.push(Block::Table(Table::texts(&[number("share"), whole("cause"), number("excess")], shares)));
    }
    if !answer.culprits.is_empty() {
        let waiting = Nanos(answer.waiting_in_slow_ns);
        blocks.push(Block::Heading(format!(
            "Root causes of slow calls, with their shares of each cause (waiting for a CPU: {waiting})"
        )));
        blocks.push(Block::Table(culprits(answer)));
    }
    if !answer.syscalls.is_empty() {
        let rows = answer.syscalls.iter().map(|syscall| {
            [syscall.name.to_string(), Nanos(syscall.slow_ns).to_string(), Nanos(syscall.run_ns).to_string()]
        });
        let columns = [word("system call"), number("in slow calls"), number("in the whole run")];
        blocks.push(Block::Heading("Blocked in system calls".to_owned()));
        blocks.push(Block::Table(Table::texts(&columns, rows)));
    }
    if !answer.alibis.is_empty() {
        let facts = answer.alibis.iter().map(|suspect| (suspect.suspect.as_str(), suspect.figure.clone()));
        blocks.push(Block::Heading("Not a factor".to_owned()));
        blocks.push(Block::Table(Table::facts(facts.collect())));
    }
    blocks.extend(slowest(answer, count));
    blocks.push(Block::Warnings(answer.warnings.clone()));
    Document::answer(blocks)
}
