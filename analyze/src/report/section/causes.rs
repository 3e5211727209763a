//! Excess latency of all slow calls by cause, and what was not a factor.

use super::{chains::linked, percent, time};
use crate::report::{
    data::Report,
    document::{Block, Cell, Part, Row, Section, Table, Tone, number, word},
};

const QUESTION: &str = "What caused the excess latency of slow calls?";

pub(super) fn build(report: &Report) -> Option<Section> {
    let chains = &report.chains;
    let parts = Part::of_shares(&chains.overall);
    if parts.is_empty() {
        let blocks = vec![Block::Note("No slow call could be judged.".to_owned())];
        return Some(Section { id: "causes", short: "Causes", question: QUESTION.to_owned(), blocks });
    }
    let sql = "SELECT verdict, count(*) AS calls_count, sum(excess_ns) AS excess_ns FROM slow_calls WHERE depth = 0 GROUP BY verdict ORDER BY 3 DESC";
    let links = chains
        .overall
        .iter()
        .map(|share| linked(chains, |_, call| [call.verdict, call.root].contains(&share.cause)))
        .collect::<Vec<_>>();
    let has_links = links.iter().any(|links| !links.is_empty());
    let note = format!(
        "A call is slow above {} times its function's median. Nested calls are counted in the call around them. The parts sum to the whole.{}",
        chains.params.slow_factor,
        if has_links {
            " Mainly in: the numbers of the slowest calls of which it is the main cause."
        } else {
            ""
        }
    );
    let mut table = Table::of_parts("Cause", &parts, sql);
    if has_links {
        table = table.with(word("Mainly in"), links.into_iter().map(|links| Cell::of_links(links, "–")));
    }
    let mut blocks = vec![Block::Note(note), Block::Parts(parts), Block::Table(table)];
    if !chains.alibis.is_empty() {
        let row = |ruled_out: &crate::questions::ruled_out::RuledOut| -> Row {
            let suspect = Cell { tone: Tone::Good, ..Cell::from(&ruled_out.suspect) };
            vec![
                suspect,
                time(ruled_out.total_ns).into(),
                percent(ruled_out.share_ratio).into(),
                (&ruled_out.figure).into(),
            ]
            .into()
        };
        blocks.push(Block::Heading("Not a factor".to_owned()));
        blocks.push(Block::Table(Table::new(
            &[word("Cause"), number("Time"), number("Share"), word("What rules it out")],
            chains.alibis.iter().map(row).collect(),
            "SELECT * FROM slow_calls WHERE depth = 0 ORDER BY excess_ns DESC",
        )));
    }
    Some(Section { id: "causes", short: "Causes", question: QUESTION.to_owned(), blocks })
}
