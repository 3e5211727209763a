//! Where the memory was: over time, at the peak, why it was reserved and retained, and whether it leaks.

use trace_schema::Nanos;

use super::{if_known, size};
use crate::{
    questions::memory::{
        advice::Advice,
        history_report::{CauseSum, OomReport, ReleaseReport},
        overview::Overview,
        state::{Device, Held},
    },
    report::{
        chart,
        data::Report,
        document::{Block, Figure, Row, Section, Table, number, whole, word},
        memory_svg,
    },
};

/// Number of rows of a table.
const SHOWN: usize = 10;

/// Meanings of the curve's colours.
fn legend(ooms: usize) -> Vec<(&'static str, String)> {
    let mut legend: Vec<(&'static str, String)> = [
        ("in-use", "allocated"),
        ("pinned", "inactive split"),
        ("releasable", "reclaimable by empty_cache()"),
        ("private", "private pools"),
        ("not-known", "not known"),
    ]
    .map(|(class, words)| (class, words.to_owned()))
    .to_vec();
    if ooms > 0 {
        legend.push(("oom", format!("out of memory ({ooms})")));
    }
    legend
}

fn account(lines: Vec<(String, i64)>, caption: String, sql: &str) -> Table {
    let rows =
        lines.into_iter().map(|(what, bytes)| Row::from(vec![what.into(), bytes.into(), size(bytes).into()]));
    Table::new(&[word("What"), number("Bytes"), number("Size")], rows.collect(), sql).caption(caption)
}

fn of_allocator(held: &Held) -> Table {
    let mut lines: Vec<(String, i64)> = [
        ("allocated", held.allocated_bytes),
        ("pending free: other streams may still use it", held.pending_bytes),
        ("reclaimable by empty_cache()", held.releasable_bytes),
        ("free in private pools of CUDA graphs", held.private_releasable_bytes),
        ("inactive split: held by live blocks", held.pinned_bytes),
        ("not known", held.unknown_bytes),
    ]
    .map(|(what, bytes)| (what.to_owned(), bytes))
    .to_vec();
    lines.retain(|(_, bytes)| *bytes != 0);
    lines.extend(held.reserved_bytes.map(|bytes| ("reserved".to_owned(), bytes)));
    if held.outside_bytes != 0 {
        lines.push((
            "in addition, allocated in segments that are not on record".to_owned(),
            held.outside_bytes,
        ));
    }
    let caption = format!("Process {}, device {}", held.pid, held.device);
    account(lines, caption, "SELECT * FROM memory_curve ORDER BY reserved_bytes DESC LIMIT 1")
}

fn of_device(device: &Device) -> Table {
    let mut lines: Vec<(String, i64)> = device
        .shares
        .iter()
        .map(|share| {
            let of = share.pid.map_or_else(String::new, |pid| format!("process {pid}: "));
            let library = share.library.as_deref().unwrap_or_default();
            (format!("{of}{} {library}", share.part.replace('_', " ")), share.size_bytes)
        })
        .collect();
    lines.push(("used".to_owned(), device.used_bytes));
    let side = if device.reading_age_ns < 0 { "after" } else { "before" };
    let read = Nanos(device.reading_age_ns.abs());
    let caption = format!("GPU {}, read {read} {side}", device.device);
    account(lines, caption, "SELECT * FROM memory_ledger ORDER BY ts").folded()
}

fn failures(ooms: &[OomReport]) -> Table {
    let row = |oom: &OomReport| -> Row {
        let free = size(oom.device_free_bytes as i64);
        let limit = if oom.is_limited { ", a limit forbade more" } else { "" };
        let helps = match (oom.is_expandable, oom.expandable_helps.or(oom.expandable_serves)) {
            (true, _) => "were on",
            (_, Some(true)) => "would have helped",
            (_, Some(false)) => "would not have helped",
            (_, None) => "not known",
        };
        vec![
            Nanos(oom.since_start_ns).into(),
            size(oom.requested_bytes as i64).into(),
            oom.verdict.into(),
            size(oom.pool_free_bytes as i64).into(),
            size(oom.largest_free_bytes as i64).into(),
            format!("{free}{limit}").into(),
            helps.into(),
        ]
        .into()
    };
    let columns = [
        number("At"),
        number("Asked for"),
        whole("Verdict"),
        number("Free in its pool"),
        number("Largest block"),
        number("Free on the device"),
        word("Expandable segments"),
    ];
    let rows = ooms.iter().take(SHOWN).map(row).collect();
    Table::new(&columns, rows, "SELECT * FROM memory_ooms").of(ooms.len())
}

fn causes(sums: &[CauseSum]) -> Table {
    let row = |sum: &CauseSum| -> Row {
        let what = if sum.is_gain { "reserved" } else { "released" };
        let bytes = size(sum.size_bytes as i64);
        vec![sum.pid.into(), what.into(), sum.cause.into(), sum.segments_count.into(), bytes.into()].into()
    };
    let columns = [number("Process"), word("Memory"), word("Cause"), number("Times"), number("Bytes")];
    let sql = "SELECT action, cause, count(*), sum(size_bytes) FROM memory_requests GROUP BY action, cause";
    Table::new(&columns, sums.iter().map(row).collect(), sql)
}

/// Describes why memory was released to the driver.
fn cause(name: &str) -> &str {
    match name {
        "make_room" => "PyTorch made room for a request",
        "empty_cache" => "the program called empty_cache",
        "ipc_collect" => "the program called ipc_collect",
        "not_known" => "not known",
        other => other,
    }
}

fn releases(all: &[ReleaseReport]) -> Table {
    let freed = |bytes: Option<u64>| if_known(bytes.is_some(), size(bytes.unwrap_or_default() as i64));
    let row = |release: &ReleaseReport| -> Row {
        vec![
            Nanos(release.since_start_ns).into(),
            release.pid.into(),
            cause(release.cause).into(),
            size(release.given_back_bytes as i64).into(),
            freed(release.freed_before_bytes).into(),
            if release.cause == "ipc_collect" { freed(release.ipc_freed_bytes) } else { String::new() }
                .into(),
            size(release.pinned_bytes as i64).into(),
            size(release.in_use_bytes).into(),
        ]
        .into()
    };
    let columns = [
        number("At"),
        number("Process"),
        word("Why"),
        number("Released"),
        number("Freed before"),
        number("Collected"),
        number("Stayed: inactive split"),
        number("Stayed: allocated"),
    ];
    let rows = all.iter().take(SHOWN).map(row).collect();
    Table::new(&columns, rows, "SELECT * FROM memory_releases").of(all.len())
}

fn figures(memory: &Overview) -> [Figure; 3] {
    let (review, map, curve) = (&memory.review, &memory.map, &memory.curve);
    let start_ns = review.peak.ts_ns - review.peak.since_start_ns;
    let (first, last) = (curve.points.first(), curve.points.last());
    let (first, last) = (first.map_or(0, |point| point.ts_ns), last.map_or(1, |point| point.ts_ns));
    let top = curve.peak_reserved_bytes.max(1) as f64;
    let figure = |name: &str, caption: String, svg| Figure {
        name: name.to_owned(),
        caption,
        svg,
        legend: Vec::new(),
        spark: Vec::new(),
        is_folded: true,
    };
    let over_time = Figure {
        legend: legend(curve.oom_ts_ns.len()),
        spark: curve.points.iter().map(|point| point.reserved_bytes as f64 / top).collect(),
        is_folded: false,
        ..figure(
            "memory",
            format!(
                "Memory reserved by PyTorch's allocators over time: peak {}, {} after recording began; at most {} were allocated. {} allocator events",
                size(curve.peak_reserved_bytes),
                Nanos(review.peak.since_start_ns),
                size(curve.peak_in_use_bytes),
                curve.events_count
            ),
            chart::memory::draw(curve, start_ns),
        )
    };
    let addresses = Figure {
        legend: legend(0),
        ..figure(
            "memory-addresses",
            format!(
                "Addresses at the peak: {} of {} segments, the largest",
                map.segments.len(),
                map.segments_count
            ),
            memory_svg::addresses(map),
        )
    };
    let lives = Figure {
        legend: [("in-use", "allocated"), ("kept", "never freed")]
            .map(|(class, words)| (class, words.to_owned()))
            .to_vec(),
        ..figure(
            "memory-lives",
            format!(
                "Lives of blocks: {} of {}, those with most bytes for longest",
                map.lives.len(),
                map.lives_count
            ),
            memory_svg::lives(map, (first, last), start_ns),
        )
    };
    [over_time, addresses, lives]
}

/// Returns how much memory advice would free; `None` if that is none, or not known.
pub(in crate::report) fn amount(advice: &Advice) -> Option<String> {
    match (advice.rule, advice.size_bytes) {
        (_, ..=0) => None,
        // The simulator's figure.
        ("expandable_segments", bytes) => Some(size(bytes)),
        (_, bytes) => Some(format!("at most {}", size(bytes))),
    }
}

/// Builds the section, which says so if no allocator event was recorded (`None`).
pub(super) fn build(report: &Report) -> Option<Section> {
    let memory = report.memory.as_ref();
    let mut blocks = Vec::new();
    match memory {
        None => blocks.push(Block::Note(
            "Not known: no event of PyTorch's allocator is on record. `analyze memory` shows what the calls of the driver say.".to_owned(),
        )),
        Some(memory) => {
            let review = &memory.review;
            let [over_time, addresses, lives] = figures(memory);
            blocks.push(Block::Figure(over_time));
            if !review.advice.is_empty() {
                let shown = |one: &Advice| {
                    let amount = amount(one).map_or_else(String::new, |amount| format!(" ({amount})"));
                    format!("{}{amount}: {}", one.rule, one.text)
                };
                let advice = review.advice.iter().map(shown);
                blocks.push(Block::Heading("What would use less".to_owned()));
                blocks.push(Block::List(advice.collect()));
            }
            if !review.history.ooms.is_empty() {
                blocks.push(Block::Heading("Requests that failed".to_owned()));
                blocks.push(Block::Table(failures(&review.history.ooms)));
            }
            blocks.push(Block::Heading("At the peak".to_owned()));
            blocks.extend(review.peak.allocators.iter().map(of_allocator).map(Block::Table));
            for device in &review.peak.devices {
                blocks.push(Block::Figure(Figure {
                    name: format!("memory-gpu-{}", device.device),
                    caption: format!("What uses the memory of GPU {}", device.device),
                    svg: memory_svg::ledger(device),
                    legend: Vec::new(),
                    spark: Vec::new(),
                    is_folded: false,
                }));
                blocks.push(Block::Table(of_device(device)));
            }
            blocks.push(Block::Heading("Does it leak?".to_owned()));
            blocks.push(Block::Table(super::leaks::table(memory)));
            blocks.push(Block::Heading("Why memory was reserved and released".to_owned()));
            blocks.push(Block::Table(causes(&review.history.causes)));
            if !review.history.releases.is_empty() {
                blocks.push(Block::Table(releases(&review.history.releases).caption("What was released, and what stayed")));
                let whys = review.history.why_not_known();
                blocks.extend(whys.into_iter().map(|why| Block::Note(format!("Not known: {why}."))));
            }
            blocks.push(Block::Figure(addresses));
            blocks.push(Block::Figure(lives));
        }
    }
    let question = "Where was the GPU's memory, and why?".to_owned();
    Some(Section { id: "memory", short: "Memory", question, blocks })
}
