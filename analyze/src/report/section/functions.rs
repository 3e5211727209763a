//! All functions: how slow their calls were, and whether the scheduler was a cause.

use super::{FEW_NOTE, chains::linked, if_known, is_few, percentile, time};
use crate::{
    questions::chains::{Chains, Scheduler, Verdict},
    report::{
        chart::latency,
        data::Report,
        document::{Block, Cell, Column, Figure, Part, Row, Section, Table, Tone, number, whole, word},
    },
};
use analyze_verdict::groups::MIN_CALLS;

const COLUMNS: [Column; 9] = [
    word("Function"),
    number("Calls"),
    number("p50"),
    number("p99"),
    number("p99 without scheduler"),
    number("Slow"),
    number("… preempted or blocked"),
    number("Excess"),
    whole("Scheduler"),
];

/// Number of functions shown: those with the largest excess latency.
const SHOWN: usize = 60;

fn row(chains: &Chains, verdict: &Verdict, has_schedule: bool) -> Row {
    let is_judged = verdict.calls_count as u64 >= MIN_CALLS;
    let (scheduler, tone) = match verdict.scheduler {
        Scheduler::NotAFactor => ("not a factor", Tone::Good),
        Scheduler::Minor => ("minor factor", Tone::Open),
        Scheduler::MainCause => ("main cause", Tone::Bad),
        Scheduler::Behind => ("root cause", Tone::Bad),
        Scheduler::Inconclusive => ("–", Tone::Open),
    };
    let of_calls = |q: f64, ns: f64| percentile(q, ns, verdict.calls_count as i64);
    let mut row = Row::from(vec![
        (&verdict.op).into(),
        verdict.calls_count.into(),
        of_calls(0.5, verdict.p50_ns).into(),
        of_calls(0.99, verdict.p99_ns).into(),
        if_known(has_schedule, of_calls(0.99, verdict.p99_without_scheduler_ns)).into(),
        if_known(is_judged, verdict.slow_count).into(),
        if_known(is_judged && has_schedule, verdict.overlapping_count).into(),
        if_known(is_judged, time(verdict.excess_ns)).into(),
        Cell { tone, ..Cell::from(scheduler) },
    ]);
    if verdict.slow_count > 0 {
        row.parts = Part::of_shares(&verdict.shares);
        row.links = linked(chains, |of, _| of.op == verdict.op);
        row.note = if has_schedule {
            verdict.sentence.clone()
        } else {
            "nothing of the scheduler is on record: no cause follows from it".to_owned()
        };
        if let Some(line) = &verdict.size_line {
            let fixed = time(line.fixed_ns);
            row.note += &format!(
                "; bytes cost {:.4} ns each above {fixed} (R² {:.4})",
                line.ns_per_byte, line.r_squared
            );
        }
    }
    row
}

/// Draws the latency of the slow functions; `None` if no function was slow.
fn figure(chains: &Chains, has_schedule: bool) -> Option<Figure> {
    let slow: Vec<&Verdict> =
        chains.verdicts.iter().filter(|verdict| verdict.slow_count > 0).take(latency::SHOWN).collect();
    if slow.is_empty() {
        return None;
    }
    let mut legend =
        vec![("host", "p50".to_owned()), ("used", "p99".to_owned()), ("not-known", "p99.9".to_owned())];
    if has_schedule {
        legend.push(("scheduler", "part of p99 due to the scheduler".to_owned()));
    }
    let is_marked = slow.iter().any(|verdict| is_few(0.999, verdict.calls_count as i64));
    let note = if is_marked { format!(". {FEW_NOTE}") } else { String::new() };
    Some(Figure {
        name: "latency".to_owned(),
        caption: format!(
            "Latency of the slow functions with the most excess: p50, p99 and p99.9, on a logarithmic axis{note}"
        ),
        svg: latency::draw(&slow, has_schedule),
        legend,
        spark: Vec::new(),
        is_folded: false,
    })
}

pub(super) fn build(report: &Report) -> Option<Section> {
    let (chains, has_schedule) = (&report.chains, report.has_schedule);
    let rows: Vec<Row> =
        chains.verdicts.iter().take(SHOWN).map(|verdict| row(chains, verdict, has_schedule)).collect();
    let sql = "SELECT op, ts, dur, on_cpu_ns, preempted_ns, runnable_ns, blocked_ns, unknown_ns FROM op_time ORDER BY dur DESC";
    Some(Section {
        id: "functions",
        short: "Functions",
        question: "Which functions were slow, and did the scheduler cause it?".to_owned(),
        blocks: figure(chains, has_schedule)
            .map(Block::Figure)
            .into_iter()
            .chain([Block::Table(Table::new(&COLUMNS, rows, sql).of(chains.verdicts.len()))])
            .collect(),
    })
}
