//! Time between launches, in which the GPU got no new work, by what the host did.

use trace_schema::{Kind, Nanos};

use super::{percent, time};
use crate::{
    questions::host_gaps::{Gap, is_launch},
    report::{
        data::Report,
        document::{Block, Part, Row, Section, Table, number, word},
    },
};

pub(super) fn build(report: &Report) -> Option<Section> {
    let gaps = &report.launch_gaps;
    let section = |blocks| {
        Some(Section {
            id: "gaps",
            short: "Launch gaps",
            question: "What did the host do between launches?".to_owned(),
            blocks,
        })
    };
    if gaps.gaps_count == 0 {
        let why = match gaps.stored_launches {
            Some((rows, made)) => {
                format!(
                    "{rows} of at least {made} launches are stored, and any of the others may lie between two of them"
                )
            }
            None if report.info.provenance.is_partial(Kind::Call, is_launch) => {
                "not all launches are stored, and how many there were is not known: any number may lie between two of them".to_owned()
            }
            None => "no thread has two launches on record".to_owned(),
        };
        return section(vec![Block::Note(format!("Inconclusive: {why}."))]);
    }
    let total = gaps.total_ns.max(1) as f64;
    let part = |(name, meaning, ns): &(&str, &'static str, i64)| {
        Part::of_time(name, name, meaning, *ns as f64, *ns as f64 / total)
    };
    let parts: Vec<Part> = gaps.parts().iter().filter(|(_, _, ns)| *ns > 0).map(part).collect();
    let longest = |gap: &Gap| -> Row {
        vec![
            Nanos(gap.dur_ns).into(),
            gap.next_op.as_str().into(),
            format!("{}/{}", gap.pid, gap.tid).into(),
            gap.ts_ns.into(),
            gap.phase.clone().unwrap_or_default().into(),
            gap.main.into(),
            percent(gap.main_ratio).into(),
        ]
        .into()
    };
    let longest_columns = [
        number("Gap"),
        word("Until"),
        number("Thread"),
        number("At (ns)"),
        word("Phase"),
        word("Mostly"),
        number("Share"),
    ];
    let sql = "SELECT * FROM launch_gaps ORDER BY dur DESC";
    let causes = Table::of_parts("Host was", &parts, sql);
    let total_time = time(gaps.total_ns as f64);
    let sum = match gaps.threads_count {
        1 => format!("{total_time} in all"),
        threads => format!("{total_time} summed over {threads} threads, whose gaps may overlap"),
    };
    section(vec![
        Block::Note(format!(
            "{} times between two launches of a thread, {sum}. The GPU may still have had work: what is not a wait for it is time in which the host gave it none.",
            gaps.gaps_count
        )),
        Block::Parts(parts),
        Block::Table(causes),
        Block::Table(
            Table::new(&longest_columns, gaps.longest.iter().map(longest).collect(), sql)
                .caption("The longest")
                .of(gaps.gaps_count as usize),
        ),
    ])
}
