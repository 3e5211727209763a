//! Where the memory of PyTorch's allocators is at an instant, by the terms of `torch.cuda.memory_stats`.

use std::cmp::Reverse;

use trace_schema::{Bytes, Nanos};

use crate::{
    questions::{
        driver_memory::Driver,
        memory::state::{Device, Held, Moment},
    },
    report::{
        document::{Block, Document, Table, number, whole, word},
        section::size,
    },
};
use analyze_memory::check::Difference;
use analyze_run::symbols;

/// Number of functions shown of a call stack, innermost first.
const FRAMES: usize = 4;

/// Largest number of sizes of driver allocations that are shown.
const SIZES: usize = 20;

/// A line of an account: what, bytes, size, meaning.
type Line = [String; 4];

/// Creates a line of an account.
pub(super) fn line(what: &str, bytes: i64, meaning: &str) -> Line {
    [what.to_owned(), bytes.to_string(), size(bytes), meaning.to_owned()]
}

/// Creates the table of an account.
pub(super) fn account(lines: impl IntoIterator<Item = Line>) -> Block {
    Block::Table(Table::texts(&[whole(""), number("bytes"), number(""), word("")], lines))
}

fn device(device: &Device) -> Vec<Block> {
    let mut lines = vec![line("used", device.used_bytes, "")];
    for (number, share) in device.shares.iter().enumerate() {
        let sign = if number == 0 { '=' } else { '+' };
        let process = share.pid.map(|pid| format!("process {pid}: ")).unwrap_or_default();
        let library = share.library.as_deref().unwrap_or_default();
        let (what, meaning) = match share.part {
            "allocator" => ("PyTorch's allocator", "reserved, see below"),
            "library" => (library, "allocated by its own calls of the driver"),
            "context" => ("context", "with loaded code, and what the driver rounds up"),
            "before_recording" => {
                ("before recording", "its context, and what it had allocated when recording began")
            }
            "process" => ("in all", "cannot be split"),
            "other_process" => ("in all", "not recorded"),
            _ => ("unknown", "not attributed to a process by the driver"),
        };
        lines.push(line(&format!("{sign} {process}{what}"), share.size_bytes, meaning));
    }
    let side = if device.reading_age_ns >= 0 { "before" } else { "after" };
    let mut read = format!("read {} {side}", Nanos(device.reading_age_ns.abs()));
    if device.used_bytes != device.read_bytes {
        let bytes = size(device.read_bytes);
        read += &format!(", when {bytes} was used: the difference is from the calls in between");
    }
    vec![Block::Heading(format!("GPU {}", device.device)), account(lines), Block::Note(read)]
}

fn driver(driver: &Driver) -> Vec<Block> {
    let mut by_bytes: Vec<(&i64, &u64)> = driver.sizes.iter().collect();
    if by_bytes.len() > SIZES {
        by_bytes.sort_by_key(|(bytes, count)| Reverse(i128::from(**bytes) * i128::from(**count)));
    }
    let shown = by_bytes.iter().take(SIZES);
    let mut sizes: Vec<String> =
        shown.map(|(bytes, count)| format!("{count} × {}", Bytes(**bytes))).collect();
    if by_bytes.len() > SIZES {
        sizes.push(format!("and {} other sizes", by_bytes.len() - SIZES));
    }
    let (least, recorded) = if driver.is_partial { ("at least ", "; on record") } else { ("", "") };
    let functions: Vec<&str> = driver.functions.iter().map(String::as_str).collect();
    let title = format!(
        "process {}: {least}{} {} calls allocated {least}{}{recorded}: {}",
        driver.pid,
        driver.allocs_count,
        functions.join(" and "),
        size(driver.alloc_bytes),
        sizes.join(", ")
    );
    let frees = driver.frees_count;
    let free = if driver.functions.iter().all(|op| op == "cudaMalloc") { "cudaFree" } else { "freeing" };
    let mut facts = vec![match driver.held_bytes {
        Some(held) => format!("after {frees} {free} calls, {} of it are left", Bytes(held)),
        None if driver.is_partial => format!(
            "at least {frees} {free} calls released some of it; how much is not known: only a part of the calls is on record"
        ),
        None => format!(
            "{frees} {free} calls released some of it; how much is not known: the source does not record their addresses"
        ),
    }];
    if driver.is_like_torch {
        facts.push(
            "inferred: PyTorch's allocator made these calls, because every size is one of its segment sizes"
                .to_owned(),
        );
    }
    facts.push(
        "not known: which blocks are in it, which of them are live, and which segments they hold".to_owned(),
    );
    vec![Block::Heading(title), Block::List(facts)]
}

fn held(held: &Held, top: usize) -> Vec<Block> {
    let reserved = match held.reserved_bytes {
        Some(bytes) => line("reserved", bytes, "from the driver (cudaMalloc)"),
        None => ["reserved", "", "not known", "the source does not record segments"].map(str::to_owned),
    };
    let parts = [
        ("= allocated", held.allocated_bytes, "live blocks"),
        ("+ pending free", held.pending_bytes, "freed; other streams may still use it"),
        ("+ reclaimable", held.releasable_bytes, "free segments, which empty_cache() releases"),
        ("+ private pools", held.private_releasable_bytes, "free segments, held for CUDA graphs"),
        ("+ inactive split", held.pinned_bytes, "free, in segments that live blocks hold"),
        ("+ not known", held.unknown_bytes, "events are missing"),
    ];
    let parts = parts.into_iter().filter(|(_, bytes, _)| *bytes != 0);
    let lines =
        std::iter::once(reserved).chain(parts.map(|(what, bytes, meaning)| line(what, bytes, meaning)));
    let mut blocks =
        vec![Block::Heading(format!("process {}, device {}", held.pid, held.device)), account(lines)];
    let mut facts = Vec::new();
    if held.reserved_bytes.is_some() {
        let largest = Bytes(held.largest_free_bytes as i64);
        facts.push(format!("{} segments; the largest free block has {largest}", held.segments_count));
    }
    if let Some(rounding) = held.rounding_bytes.filter(|bytes| *bytes > 0) {
        facts.push(format!("of the allocated bytes, {} were not requested (rounding)", size(rounding)));
    }
    if held.outside_bytes > 0 {
        let outside = size(held.outside_bytes);
        facts.push(format!("in addition, {outside} allocated in segments that are not on record"));
    }
    if held.is_inferred {
        facts.push(
            "inferred from usage reports and driver calls: pending frees count as free here".to_owned(),
        );
    }
    blocks.push(Block::List(facts));
    let mut warnings = Vec::new();
    if held.lost_count > 0 {
        warnings.push(format!(
            "{} of its events were lost: segments may have come or gone meanwhile",
            held.lost_count
        ));
    }
    warnings.extend(held.faults.iter().map(|(fault, count)| format!("{count} × {fault}")));
    warnings.extend(held.differences.iter().take(top).map(|difference| {
        let Difference { addr, said, replayed, .. } = difference;
        format!("at {addr:#x} the snapshot has {said}; its events make {replayed}")
    }));
    let settings = held.unknown_settings.iter();
    warnings.extend(settings.map(|setting| format!("setting not understood: {setting}")));
    if !warnings.is_empty() {
        blocks.push(Block::Warnings(warnings));
    }
    if !held.pinned.is_empty() {
        blocks.extend(splits(held, top));
    }
    blocks
}

/// The segments that live blocks hold, and these blocks.
fn splits(held: &Held, top: usize) -> Vec<Block> {
    let mut rows: Vec<[String; 6]> = Vec::new();
    for segment in held.pinned.iter().take(top) {
        let mut start = [
            format!("{:#x}", segment.addr),
            size(segment.size_bytes as i64),
            size(segment.pinned_bytes as i64),
        ];
        for pin in &segment.pins {
            let [addr, bytes, free] = std::mem::take(&mut start);
            let age = pin.age_ns.map_or_else(|| "not known".to_owned(), |age| Nanos(age).to_string());
            rows.push([addr, bytes, free, format!("{:#x}", pin.addr), size(pin.size_bytes as i64), age]);
        }
        let more = segment.in_use_count.saturating_sub(segment.pins.len());
        if more > 0 {
            let mut row: [String; 6] = Default::default();
            row[3] = format!("and {more} more");
            rows.push(row);
        }
    }
    let columns = [
        whole("segment"),
        number("size"),
        number("inactive split"),
        whole("held by block"),
        number("size"),
        number("age"),
    ];
    let title = format!("inactive split: {} of {} segments", held.pinned.len().min(top), held.pinned.len());
    let mut blocks = vec![Block::Heading(title), Block::Table(Table::texts(&columns, rows))];
    let largest = held.pinned.iter().take(top).filter_map(|segment| segment.pins.first());
    let origin = largest.filter_map(|pin| {
        let frames = symbols::innermost(pin.frames.as_deref()?, FRAMES);
        (!frames.is_empty()).then(|| format!("{:#x} was allocated by {frames}", pin.addr))
    });
    let origins: Vec<String> = origin.collect();
    if !origins.is_empty() {
        blocks.push(Block::List(origins));
    }
    blocks
}

/// Arranges devices, allocators and the driver's calls at an instant, with `top` segments of each allocator.
pub(super) fn moment(moment: &Moment, top: usize) -> Vec<Block> {
    let devices = moment.devices.iter().flat_map(device);
    let allocators = moment.allocators.iter().flat_map(|one| held(one, top));
    devices.chain(allocators).chain(moment.drivers.iter().flat_map(driver)).collect()
}

/// Arranges an instant with `top` segments of each allocator.
pub fn document(at: &Moment, warnings: Vec<String>, top: usize) -> Document {
    let title = format!("{} ({} after recording began)", at.label, Nanos(at.since_start_ns));
    let mut blocks = vec![Block::Note(title)];
    if at.allocators.is_empty() && at.drivers.is_empty() {
        blocks.push(Block::Note(
            "PyTorch's allocators had no memory by then, or none was probed: see `analyze info`".to_owned(),
        ));
    }
    blocks.extend(moment(at, top));
    blocks.push(Block::Warnings(warnings));
    Document::answer(blocks)
}
