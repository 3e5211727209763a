//! What PyTorch's allocator would have reserved with other settings.

use trace_schema::{Bytes, Nanos};

use crate::{
    questions::what_if::{Explained, Outcome, WhatIf},
    report::document::{Block, Document, Table, number, whole, word},
};

fn bytes(value: u64) -> String {
    Bytes(value as i64).to_string()
}

/// Returns a size in bytes, or the range that it is in.
fn range(min: u64, max: u64) -> String {
    match [bytes(min), bytes(max)] {
        [least, _] if min == max => least,
        [least, most] if least == most => format!("{least}, or up to {} more", bytes(max - min)),
        [least, most] => format!("{least} to {most}"),
    }
}

fn count(value: Option<u64>) -> String {
    value.map_or_else(|| "varies".to_owned(), |value| value.to_string())
}

/// Returns the recorded peak minus the simulated one, or the range that it is in; `None` if a replay ended early.
fn saved(outcome: &Outcome, recorded_bytes: u64) -> Option<String> {
    let saved = |peak: u64| Bytes(recorded_bytes as i64 - peak as i64);
    let (least, most) = (saved(outcome.peak_reserved_max_bytes), saved(outcome.peak_reserved_min_bytes));
    (outcome.ended_replays_count == 0)
        .then(|| if least.0 == most.0 { least.to_string() } else { format!("{least} to {most}") })
}

fn ended(outcome: &Outcome, capacity_bytes: Option<u64>) -> String {
    let requested = bytes(outcome.ended_requested_bytes.unwrap_or_default());
    let limit = outcome.limit_bytes.filter(|limit| capacity_bytes.is_none_or(|capacity| *limit <= capacity));
    match (outcome.serves_since_start_ns, outcome.fails_since_start_ns) {
        (Some(ts), _) => {
            format!(": serves the {requested} that failed at {}; the rest is not known", Nanos(ts))
        }
        (_, Some(ts)) => {
            let reason = match limit {
                Some(limit) => format!("because per_process_memory_fraction allows {}", bytes(limit)),
                None => "if there was no more room".to_owned(),
            };
            format!(": out of memory at {}, for {requested}, {reason}", Nanos(ts))
        }
        _ if outcome.ended_replays_count > 0 => format!(
            ": in {} of {} replays a request has another outcome than on record",
            outcome.ended_replays_count, outcome.replays_count
        ),
        _ => String::new(),
    }
}

fn outcomes(found: &WhatIf) -> Table {
    let record = [
        bytes(found.peak_reserved_bytes),
        String::new(),
        bytes(found.end_reserved_bytes),
        found.asked_count.to_string(),
        found.given_back_count.to_string(),
        "(the record)".to_owned(),
    ];
    let rows = found.outcomes.iter().map(|outcome| {
        let saved = match saved(outcome, found.peak_reserved_bytes) {
            Some(saved) if outcome.is_known => saved,
            Some(_) => "inconclusive".to_owned(),
            None => "-".to_owned(),
        };
        [
            range(outcome.peak_reserved_min_bytes, outcome.peak_reserved_max_bytes),
            saved,
            range(outcome.end_reserved_min_bytes, outcome.end_reserved_max_bytes),
            count(outcome.asked_count),
            count(outcome.given_back_count),
            format!("{}{}", outcome.settings, ended(outcome, found.capacity_bytes)),
        ]
    });
    let columns = [
        number("peak reserved"),
        number("saved"),
        number("at the end"),
        number("cudaMalloc"),
        number("cudaFree"),
        whole("settings"),
    ];
    Table::texts(&columns, std::iter::once(record).chain(rows))
}

fn of_allocator(found: &WhatIf) -> Vec<Block> {
    let mut blocks = vec![Block::Heading(format!(
        "process {}, device {}: {} requests served, {} failed; peak reserved {}",
        found.pid,
        found.device,
        found.requests_count,
        found.failed_count,
        bytes(found.peak_reserved_bytes)
    ))];
    let mut facts = Vec::new();
    if found.control_equal_count == found.requests_count {
        facts.push("control: with the same settings, and the recorded addresses and releases, the rules reserve what the record says after every request".to_owned());
    }
    if let Some(capacity) = found.capacity_bytes {
        let capacity = bytes(capacity);
        facts.push(format!(
            "room on the device: {capacity}, according to the first request that failed, or --capacity"
        ));
    }
    blocks.push(Block::List(facts));
    blocks.push(Block::Table(outcomes(found)));
    blocks.push(Block::Warnings(found.notes.clone()));
    blocks
}

/// Arranges the outcomes of each allocator.
pub fn document(found: &[WhatIf]) -> Document {
    let none =
        || Block::Note("no request of PyTorch's allocator is on record: see `analyze info`".to_owned());
    let blocks: Vec<Block> = found.iter().flat_map(of_allocator).collect();
    Document::answer(if blocks.is_empty() { vec![none()] } else { blocks })
}

fn of_requests(found: &Explained) -> Vec<Block> {
    let compared = found.recorded_count.min(found.predicted_count);
    let mut facts = vec![format!(
        "{} of {compared} cudaMalloc, in order, have the sizes that PyTorch's allocator asks for to serve the {} requests",
        found.equal_count, found.requests_count
    )];
    let title = Block::Heading(format!("process {}", found.pid));
    if found.equal_count < compared {
        facts.push("inconclusive: the process asked for something else, or in another order, or has other settings (--conf)".to_owned());
        return vec![title, Block::List(facts)];
    }
    match found.recorded_count.checked_sub(found.predicted_count) {
        Some(0) => {}
        Some(more) => facts.push(format!("{more} more cudaMalloc are on record, for other requests")),
        None => facts.push(format!(
            "{} more segments would be needed than are on record",
            found.predicted_count - found.recorded_count
        )),
    }
    facts.push("inferred: no event of the allocator says where these blocks are".to_owned());
    facts.push(format!(
        "reserved {} = allocated {} + inactive split {} + free segments {}",
        bytes(found.reserved_bytes),
        bytes(found.allocated_bytes),
        bytes(found.reserved_bytes - found.allocated_bytes - found.releasable_bytes),
        bytes(found.releasable_bytes)
    ));
    facts.push(format!("reclaimable by empty_cache(): {}", bytes(found.releasable_bytes)));
    let rows = found
        .rests
        .iter()
        .map(|rest| [format!("{} ×", rest.count), bytes(rest.size_bytes), rest.pinned_by.join(", ")]);
    let table = Table::texts(&[number("free"), number("size"), word("beside")], rows);
    vec![title, Block::List(facts), Block::Table(table)]
}

/// Arranges how well requests that are known from elsewhere explain the calls on record.
pub fn explained(found: &[Explained]) -> Document {
    let none = || Block::Note("no cudaMalloc is on record: see `analyze info`".to_owned());
    let blocks: Vec<Block> = found.iter().flat_map(of_requests).collect();
    Document::answer(if blocks.is_empty() { vec![none()] } else { blocks })
}
