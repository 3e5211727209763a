//! Why requests for GPU memory failed.

use trace_schema::Nanos;

use super::memory;
use crate::{
    questions::memory::history_report::OomReport,
    report::{
        document::{Block, Document},
        section::size,
    },
};

fn bytes(value: u64) -> String {
    size(value as i64)
}

/// Number of other processes named.
const NAMED: usize = 3;

/// Describes what a process that did not make the request had.
fn other((pid, of_bytes): &(Option<u32>, i64)) -> String {
    match pid {
        Some(pid) => format!("process {pid} {}", size(*of_bytes)),
        None => format!("no process that the driver names {}", size(*of_bytes)),
    }
}

fn facts(oom: &OomReport) -> Vec<String> {
    let limit = match oom.is_limited {
        true => ": a limit of the process (set_per_process_memory_fraction) forbade a segment of this size",
        false => "",
    };
    let verdict = match oom.verdict {
        "fragmentation" => "fragmentation: enough was free, but not in one block".to_owned(),
        "other_stream" => {
            let free = bytes(oom.other_stream_bytes);
            format!("other_stream: another stream had a free block of {free}")
        }
        "limit" => "limit: the device had room, and the process may not use it".to_owned(),
        "neighbour" => "neighbour: other processes had most of the memory in use".to_owned(),
        _ => "capacity: more was in use than left room".to_owned(),
    };
    let mut facts = vec![
        format!("verdict: {verdict}"),
        format!(
            "requested {} ({} bytes); free in its pool and stream: {}, the largest block {}",
            bytes(oom.requested_bytes),
            oom.requested_bytes,
            bytes(oom.pool_free_bytes),
            bytes(oom.largest_free_bytes)
        ),
        format!(
            "the device had {} free, for a segment of {}{limit}",
            bytes(oom.device_free_bytes),
            bytes(oom.segment_bytes)
        ),
    ];
    if let Some(of) = &oom.occupancy {
        let named: Vec<String> = of.others.iter().take(NAMED).map(other).collect();
        let named = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
        let (own, others) = (size(of.own_bytes), size(of.others_bytes));
        facts.push(format!("of the device's memory the process had {own}, and others had {others}{named}"));
    }
    if let (Some(addr), Some(size), Some(count)) =
        (oom.hole_addr, oom.hole_in_use_bytes, oom.hole_in_use_count)
    {
        let size = bytes(size);
        facts.push(format!("there would have been room at {addr:#x} without {count} live blocks ({size})"));
    }
    if let (Some(segments), Some(size), Some(count)) =
        (oom.segments_count, oom.segments_in_use_bytes, oom.segments_in_use_count)
    {
        let size = bytes(size);
        facts.push(format!("or in {segments} whole segments without their {count} live blocks ({size})"));
    }
    let expandable = match (oom.is_expandable, oom.expandable_helps, oom.expandable_serves) {
        (true, ..) => "segments were expandable",
        (_, Some(true), _) => "expandable segments would have had room, wherever the blocks had been",
        (_, Some(false), _) => "expandable segments would have had no room either",
        (_, None, Some(true)) => {
            "expandable segments would have had room: `analyze what-if` serves the request with them"
        }
        (_, None, Some(false)) => {
            "expandable segments would have had no room either: `analyze what-if` cannot serve the request with them"
        }
        (_, None, None) => "expandable segments: not known, it depends on where the blocks would have been",
    };
    let reason = oom.expandable_reason.iter().map(|reason| format!("; {reason}")).collect::<String>();
    facts.push(format!("{expandable}{reason}"));
    facts
}

/// Arranges the requests that failed, with `top` segments of each moment.
pub fn document(ooms: &[OomReport], top: usize) -> Document {
    let count = match ooms.len() {
        0 => "no request failed, or no allocator of PyTorch was probed: see `analyze info`".to_owned(),
        1 => "1 request failed".to_owned(),
        count => format!("{count} requests failed"),
    };
    let mut blocks = vec![Block::Note(count)];
    for (number, oom) in ooms.iter().enumerate() {
        blocks.push(Block::Heading(format!(
            "#{}, {} after recording began: process {}, thread {}, device {}",
            number + 1,
            Nanos(oom.since_start_ns),
            oom.pid,
            oom.tid,
            oom.device
        )));
        blocks.push(Block::List(facts(oom)));
        match &oom.moment {
            Some(moment) => blocks.extend(memory::moment(moment, top)),
            None => blocks.push(Block::Note("(the whole moment: `analyze memory RUN --at TIME`)".to_owned())),
        }
    }
    Document::answer(blocks)
}
