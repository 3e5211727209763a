//! Tasks that kept slow calls from running.

use trace_schema::Nanos;

use super::{chains::linked, percent};
use crate::report::{
    data::Report,
    document::{Block, Cell, Row, Section, Table, number, word},
};
use analyze_verdict::culprits::Culprit;

/// Builds the section; `None` if there is no such task.
pub(super) fn build(report: &Report) -> Option<Section> {
    let chains = &report.chains;
    let row = |culprit: &Culprit| -> Row {
        let links = linked(chains, |_, call| {
            call.chain.iter().any(|link| {
                link.cause == Some(culprit.cause)
                    && link.task_pid == Some(culprit.pid)
                    && (culprit.tid.is_none() || link.task_tid == culprit.tid)
            })
        });
        vec![
            (&culprit.comm).into(),
            culprit.pid.into(),
            culprit.cause.label().into(),
            Nanos(culprit.held_ns).into(),
            percent(culprit.share_ratio).into(),
            Nanos(culprit.run_ns).into(),
            Cell::of_links(links, "none of those shown"),
        ]
        .into()
    };
    let columns = [
        word("Task"),
        number("Process"),
        word("Cause"),
        number("For"),
        number("Share of that"),
        number("In all calls"),
        word("Chains"),
    ];
    let sql = "SELECT l.cause, l.task_pid, l.task_comm, sum(l.dur) AS total_ns FROM chain_links l JOIN slow_calls s ON s.run = l.run AND s.tid = l.call_tid AND s.ts = l.call_ts AND s.op = l.op WHERE s.depth = 0 AND l.cause IS NOT NULL GROUP BY l.cause, l.task_pid, l.task_comm ORDER BY total_ns DESC";
    let note = "Cause scheduler: the task had the CPU that the call, or a thread that the call waited for, could have used. Cause blocked: the call slept until the task woke it.";
    (!chains.culprits.is_empty()).then(|| Section {
        id: "culprits",
        short: "Culprits",
        question: "Who kept slow calls from running?".to_owned(),
        blocks: vec![
            Block::Note(note.to_owned()),
            Block::Table(Table::new(&columns, chains.culprits.iter().map(row).collect(), sql)),
        ],
    })
}
