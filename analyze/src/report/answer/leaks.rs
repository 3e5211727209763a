//! Whether the memory of PyTorch's allocator leaks, and from where; and that which others allocated from the driver.

use trace_schema::Bytes;

use super::memory::{account, line};
use crate::report::{
    document::{Block, Document, Row, Table, number, whole, word},
    section::{Leak, percent, size},
};
use analyze_memory::leaks::{
    account::{Account, LiveSite, Suspect},
    driver::DriverGrowth,
    growth::{Bin, Growth},
};
use analyze_run::symbols;

/// Number of functions shown of a call stack, innermost first.
const FRAMES: usize = 4;

fn of_account(of: &Account) -> Block {
    account([
        line("live at the end of the warm-up", of.before_bytes, ""),
        line("- freed since", of.given_back_bytes, ""),
        line("+ leaked", of.leaked_bytes, "retained, by sites that go on retaining"),
        line("+ one-off retention", of.kept_once_bytes, "retained, by sites that do not"),
        line("+ young", of.young_bytes, "not older than the age at which their site frees its blocks"),
        line("= live at the end of the last epoch", of.after_bytes, ""),
    ])
}

fn sites(all: &[Suspect], top: usize) -> Table {
    let row = |(number, site): (usize, &Suspect)| -> Row {
        let old = &site.old;
        let mut row: Row = vec![
            format!("#{}", number + 1).into(),
            if site.is_leak { "leak" } else { "once" }.into(),
            old.blocks_count.into(),
            size(old.blocks_bytes).into(),
            size(site.bytes_per_epoch.round() as i64).into(),
            format!("{:.0} %", site.share_ratio * 100.0).into(),
            format!("{}/{}", site.generations_count, site.possible_count).into(),
            format!("{}-{}", site.first_epoch, site.last_epoch).into(),
            site.horizon_epochs.into(),
            sizes(old.smallest_bytes, old.largest_bytes).into(),
            old.tid.map_or_else(|| "any".to_owned(), |tid| tid.to_string()).into(),
            old.stream.map_or_else(|| "any".to_owned(), |stream| format!("{stream:#x}")).into(),
        ]
        .into();
        let examples = site.examples.iter().map(|block| format!("{:#x}", block.addr));
        row.note = format!("blocks {}", examples.collect::<Vec<_>>().join(", "));
        if let Some(frames) = &old.frames {
            row.note += &format!("; allocated by {}", symbols::innermost(frames, FRAMES));
        }
        row
    };
    let columns = [
        whole("site"),
        whole(""),
        number("blocks"),
        number("retained"),
        number("per epoch"),
        number("share"),
        number("in epochs"),
        number("from-to"),
        number("horizon"),
        whole("bytes each"),
        whole("thread"),
        whole("stream"),
    ];
    let rows = all.iter().take(top).enumerate().map(row).collect();
    Table::new(&columns, rows, "").of(all.len())
}

/// Describes the size of some blocks.
fn sizes(smallest_bytes: u64, largest_bytes: u64) -> String {
    match smallest_bytes == largest_bytes {
        true => smallest_bytes.to_string(),
        false => format!("{smallest_bytes}-{largest_bytes}"),
    }
}

/// Lists what is live at the end of the run, which needs no verdict.
fn live(growth: &Growth, top: usize) -> Vec<Block> {
    if growth.live_sites.is_empty() {
        return Vec::new();
    }
    let row = |(number, site): (usize, &LiveSite)| -> Row {
        let share = site.blocks_bytes as f64 / growth.end_bytes.max(1) as f64;
        let mut row: Row = vec![
            format!("#{}", number + 1).into(),
            site.blocks_count.into(),
            size(site.blocks_bytes).into(),
            percent(share).into(),
            sizes(site.smallest_bytes, site.largest_bytes).into(),
        ]
        .into();
        row.note = match (&site.frames, site.tid, site.stream) {
            (Some(frames), ..) => format!("allocated by {}", symbols::innermost(frames, FRAMES)),
            (None, Some(tid), Some(stream)) => {
                format!("no call stack is on record: thread {tid}, stream {stream:#x}")
            }
            _ => "no call stack is on record".to_owned(),
        };
        row
    };
    let columns = [whole("site"), number("blocks"), number("live"), number("share"), whole("bytes each")];
    let rows = growth.live_sites.iter().take(top).enumerate().map(row).collect();
    let table = Table::new(&columns, rows, "").of(growth.live_sites.len());
    let title = format!("live at the end of the run, by site: {}", size(growth.end_bytes));
    vec![Block::Heading(title), Block::Table(table)]
}

fn histogram(what: &str, bins: &[Bin], name: impl Fn(u64) -> String) -> Vec<Block> {
    if bins.is_empty() {
        return Vec::new();
    }
    let row = |bin: &Bin| [format!("from {}", name(bin.from)), bin.count.to_string(), size(bin.bytes)];
    let table = Table::texts(&[word(""), number("blocks"), number("bytes")], bins.iter().map(row));
    let title = format!("live at the end, allocated after the warm-up, by {what}");
    vec![Block::Heading(title), Block::Table(table)]
}

fn of_growth(growth: &Growth, top: usize) -> Vec<Block> {
    let verdict = growth.verdict.name();
    let mut reasons = growth.reasons.clone();
    reasons.extend(Leak::of(growth).map(|leak| leak.to_string()));
    let mut blocks = vec![
        Block::Heading(format!("process {}, device {}: {verdict}", growth.pid, growth.device)),
        Block::List(reasons),
    ];
    blocks.extend(live(growth, top));
    if growth.epochs_count == 0 {
        return blocks;
    }
    blocks.push(Block::Heading(format!(
        "{} epochs ({}), the first {} of them warm-up",
        growth.epochs_count,
        growth.epochs.label(),
        growth.warm_up_count
    )));
    blocks.push(of_account(&growth.account));
    let mut trends = Vec::new();
    for (what, trend) in [("live", growth.live_trend), ("reserved", growth.reserved_trend)] {
        if let Some(trend) = trend {
            let bytes = |value: f64| Bytes(value.round() as i64);
            trends.push(format!(
                "{what} at the ends of epochs: {} per epoch (Theil-Sen; 95 % confidence interval {} to {})",
                bytes(trend.bytes_per_epoch),
                bytes(trend.low_bytes_per_epoch),
                bytes(trend.high_bytes_per_epoch)
            ));
        }
    }
    if !trends.is_empty() {
        blocks.push(Block::List(trends));
    }
    if !growth.sites.is_empty() {
        blocks.push(Block::Heading("retained by".to_owned()));
        blocks.push(Block::Table(sites(&growth.sites, top)));
    }
    blocks.extend(histogram("age (epochs)", &growth.ages, |age| age.to_string()));
    blocks.extend(histogram("size", &growth.sizes, |bytes| size(bytes as i64)));
    blocks
}

/// Arranges what a process allocated from the driver, other than segments of PyTorch's allocator.
fn of_driver(growth: &DriverGrowth, top: usize) -> Vec<Block> {
    let title = format!(
        "process {}, allocations from the driver by other allocators: {}",
        growth.pid,
        growth.verdict.name()
    );
    let mut facts = growth.reasons.clone();
    facts.push(format!("{} epochs: {}", growth.epochs.count(), growth.epochs.label()));
    let mut blocks = vec![Block::Heading(title), Block::List(facts), of_account(&growth.account)];
    if !growth.sites.is_empty() {
        blocks.push(Block::Heading("retained by".to_owned()));
        blocks.push(Block::Table(sites(&growth.sites, top)));
    }
    blocks
}

/// Arranges each allocator of PyTorch, and what processes allocated from the driver besides, with the `top` sites of each.
pub fn document(growth: &[Growth], drivers: &[DriverGrowth], warnings: Vec<String>, top: usize) -> Document {
    let mut blocks: Vec<Block> = growth.iter().flat_map(|growth| of_growth(growth, top)).collect();
    blocks.extend(drivers.iter().flat_map(|growth| of_driver(growth, top)));
    if blocks.is_empty() {
        blocks.push(Block::Note(
            "no allocator of PyTorch had events, or none was probed: see `analyze info`".to_owned(),
        ));
    }
    blocks.push(Block::Warnings(warnings));
    Document::answer(blocks)
}
