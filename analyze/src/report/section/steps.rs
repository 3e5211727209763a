//! Steps of each process: the typical one, the slowest, warm-up and drift.

use super::{percent, time};
use crate::{
    questions::steps::{Drift, PartTime, ProcessSteps, SIGNIFICANT},
    report::{
        data::Report,
        document::{Block, Row, Section, Table, number, word},
    },
};

/// Largest number of processes that are shown.
const SHOWN: usize = 8;
/// Largest number of parts of a difference that are named.
const NAMED: usize = 3;

/// Formats a time with its sign.
fn more(ns: i64) -> String {
    let sign = if ns < 0 { "−" } else { "+" };
    format!("{sign}{}", time(ns.unsigned_abs() as f64))
}

/// Names the largest parts, each with its time in the words of `amount`.
fn named(parts: &[PartTime], amount: impl Fn(i64) -> String) -> String {
    let named = parts.iter().take(NAMED);
    let words = named.map(|part| format!("{} {}", part.part.replace('_', " "), amount(part.time_ns)));
    words.collect::<Vec<_>>().join(", ")
}

/// Says how the steps were found.
fn how(process: &ProcessSteps) -> String {
    let launches = process.typical.launches_count;
    match process.found_by.as_str() {
        "marks" => format!("from one mark `{}` to the next", process.name),
        "graph" => format!("from one regular call of {} to the next", process.name),
        _ => format!("between calls of {}, which recur after {launches} launches", process.name),
    }
}

/// Says what is known of drift.
fn drift(drift: Option<&Drift>) -> String {
    let Some(drift) = drift else { return "They are too few to see a drift.".to_owned() };
    if !drift.is_significant {
        return "No drift is seen: later steps do not differ from earlier ones by more than chance."
            .to_owned();
    }
    let change = drift.last_ns - drift.first_ns;
    // What falls below the numbers that are printed is no zero.
    let p_value =
        if drift.p_value < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", drift.p_value) };
    format!(
        "Steps drift: a typical one takes {} in the first third and {} in the last ({p_value}): {} ({}).",
        time(drift.first_ns as f64),
        time(drift.last_ns as f64),
        more(change),
        named(&drift.differences, more)
    )
}

/// Describes the steps of a process.
fn sentences(process: &ProcessSteps) -> String {
    let steady_count = process.steps_count - process.warm_up_count;
    let typical = &process.typical;
    let warm_up = match process.warm_up_count {
        0 => "No warm-up is seen.".to_owned(),
        count => format!(
            "The first {count} are warm-up and took {}, {} above as many typical ones.",
            time(process.warm_up_ns as f64),
            time(process.warm_up_more_ns as f64)
        ),
    };
    let between = match process.between_ns {
        0 => String::new(),
        ns => format!(" {} between the first step and the last lies in none.", time(ns as f64)),
    };
    format!(
        "Process {} made {} steps ({}). {warm_up} A typical one of the other {steady_count} takes {}; 5 % take less than {} and 5 % more than {}. {}{between}",
        process.pid,
        process.steps_count,
        how(process),
        time(typical.dur_ns as f64),
        time(process.p5_ns),
        time(process.p95_ns),
        drift(process.drift.as_ref()),
    )
}

/// Builds the section; `None` if no steps were found.
pub(super) fn build(report: &Report) -> Option<Section> {
    let mut blocks = Vec::new();
    for process in report.steps.iter().take(SHOWN) {
        let typical = &process.typical;
        let share = |ns: i64| percent(ns as f64 / typical.dur_ns.max(1) as f64);
        let mut rows: Vec<Row> = vec![
            vec![
                format!("typical ({})", typical.step).into(),
                time(typical.dur_ns as f64).into(),
                "–".into(),
                named(&typical.parts, share).into(),
            ]
            .into(),
        ];
        rows.extend(process.slowest.iter().map(|slow| -> Row {
            vec![
                slow.step.step.into(),
                time(slow.step.dur_ns as f64).into(),
                more(slow.more_ns).into(),
                named(&slow.differences, more).into(),
            ]
            .into()
        }));
        let columns = [
            word("Step"),
            number("Time"),
            number("Above typical"),
            word("What it, or the difference, is made of"),
        ];
        let sql = format!("SELECT * FROM steps WHERE pid = {} ORDER BY dur_ns DESC", process.pid);
        blocks.push(Block::Note(sentences(process)));
        blocks.push(Block::Table(
            Table::new(&columns, rows, &sql)
                .of(process.steps_count)
                .caption(format!("Process {}, the slowest steps after warm-up", process.pid)),
        ));
    }
    if blocks.is_empty() {
        return None;
    }
    blocks.push(Block::Note(format!(
        "The typical step is the one of median duration. The parts of a step sum to its duration, so that differences are complete. A drift is named if its p-value is at most {SIGNIFICANT}.",
    )));
    Some(Section {
        id: "steps",
        short: "Steps",
        question: "How long does a step take, and what makes some slower?".to_owned(),
        blocks,
    })
}
