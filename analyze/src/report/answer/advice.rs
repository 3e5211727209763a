//! Why memory was reserved and released over a run, and what would use less.

use crate::{
    questions::memory::advice::Review,
    report::{
        document::{Block, Document, Table, number, whole},
        section::{amount, size},
    },
};

/// Arranges the review.
pub fn document(review: &Review) -> Document {
    let rows = review.history.causes.iter().map(|sum| {
        [
            sum.pid.to_string(),
            sum.device.to_string(),
            if sum.is_gain { "reserved" } else { "released" }.to_owned(),
            sum.cause.to_owned(),
            sum.segments_count.to_string(),
            size(sum.size_bytes as i64),
        ]
    });
    let columns =
        [number("process"), number("device"), whole(""), whole("cause"), number("times"), number("bytes")];
    let advice = review.advice.iter().map(|advice| {
        let amount = amount(advice).unwrap_or_else(|| "-".to_owned());
        let process = advice.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
        format!("{} ({amount}{process}): {}", advice.rule, advice.text)
    });
    let mut blocks = vec![
        Block::Heading("segments reserved and released, by cause (see the view memory_requests)".to_owned()),
        Block::Table(Table::texts(&columns, rows)),
        Block::Heading("advice".to_owned()),
    ];
    let reserved = review.peak.allocators.iter().any(|held| held.reserved_bytes.is_some());
    blocks.push(if review.advice.is_empty() && !reserved {
        Block::Note("inconclusive: what PyTorch's allocator reserved is not on record".to_owned())
    } else if review.advice.is_empty() {
        Block::Note("none: nothing that the run shows would free a twentieth of the peak".to_owned())
    } else {
        Block::List(advice.collect())
    });
    Document::answer(blocks)
}
