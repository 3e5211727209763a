//! What released GPU memory, how much, and what stayed reserved.

use std::collections::BTreeMap;

use trace_schema::Nanos;

use crate::{
    questions::memory::history_report::{ExitReport, HistoryReport, PauseReport, PhaseReport, ReleaseReport},
    report::{
        document::{Block, Document, Table, number, whole, word},
        section::{if_known, percentile, size},
    },
};

fn time(ns: i64) -> String {
    Nanos(ns).to_string()
}

/// Returns the `top` rows of most weight, in their order.
fn most<T>(rows: &[T], top: usize, weight: impl Fn(&T) -> i64) -> Vec<&T> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|place| std::cmp::Reverse(weight(&rows[*place])));
    places.truncate(top);
    places.sort_unstable();
    places.into_iter().map(|place| &rows[place]).collect()
}

fn title(what: &str, all: usize) -> Block {
    Block::Heading(format!("{what}: {all}"))
}

/// Lists what stayed reserved after a release, and why.
fn stayed(release: &ReleaseReport) -> String {
    let parts = [
        (release.in_use_bytes - release.exported_bytes, "allocated"),
        (release.exported_bytes, "allocated in segments shared with other processes"),
        (release.pinned_bytes as i64, "inactive split"),
        (release.private_bytes, "private pools"),
        (release.releasable_bytes, "reclaimable"),
        (release.unknown_bytes, "not known"),
    ];
    let parts = parts.iter().filter(|(bytes, _)| *bytes != 0);
    parts.map(|(bytes, why)| format!("{} {why}", size(*bytes))).collect::<Vec<_>>().join(" + ")
}

fn releases(history: &HistoryReport, top: usize) -> Vec<Block> {
    let all = &history.releases;
    let freed_bytes = |release: &ReleaseReport| release.ipc_freed_bytes.unwrap_or_default();
    let shown = most(all, top, |release| (release.given_back_bytes + freed_bytes(release)) as i64);
    let optional = |ns: Option<i64>| ns.map_or_else(String::new, time);
    let freed = |bytes: Option<u64>| if_known(bytes.is_some(), size(bytes.unwrap_or_default() as i64));
    let rows = shown.into_iter().map(|release| {
        [
            time(release.since_start_ns),
            release.cause.to_owned(),
            release.pid.to_string(),
            freed(release.freed_before_bytes),
            size(release.before_bytes),
            size(release.given_back_bytes as i64),
            if release.cause == "ipc_collect" { freed(release.ipc_freed_bytes) } else { String::new() },
            time(release.dur_ns),
            release.calls_count.map_or_else(String::new, |count| count.to_string()),
            release
                .call_p50_ns
                .zip(release.calls_count)
                .map_or_else(String::new, |(ns, count)| percentile(0.5, ns as f64, count as i64)),
            optional(release.call_max_ns),
            stayed(release),
        ]
    });
    let columns = [
        number("at"),
        whole("cause"),
        number("process"),
        number("freed before"),
        number("before"),
        number("released"),
        number("collected"),
        number("took"),
        number("calls"),
        number("p50"),
        number("max"),
        word("stayed"),
    ];
    let mut blocks =
        vec![title("releases", all.len()), Block::Table(Table::texts(&columns, rows).of(all.len()))];
    // A release of several devices has the handles of its thread once for each.
    let closed = all.iter().filter_map(|release| {
        Some(((release.pid, release.tid, release.ts_ns), release.closed_handles_count?))
    });
    let closed: u64 = closed.collect::<BTreeMap<_, _>>().into_values().sum();
    if closed > 0 {
        blocks.push(Block::Note(format!(
            "CUDA IPC handles closed before these releases: {closed}; the memory behind them is other processes', and the record does not have its bytes"
        )));
    }
    blocks.extend(history.why_not_known().into_iter().map(|why| Block::Note(format!("not_known: {why}"))));
    if let Some(last) = all.iter().rfind(|release| !release.others.is_empty()) {
        let line = |share: &crate::questions::memory::state::Share| {
            let process = share.pid.map(|pid| format!("process {pid}: ")).unwrap_or_default();
            format!("{} {process}{}", size(share.size_bytes), share.library.as_deref().unwrap_or(share.part))
        };
        blocks.push(Block::Heading("after the last of them, also in use on the device".to_owned()));
        blocks.push(Block::List(last.others.iter().map(line).collect()));
    }
    blocks
}

fn pauses(all: &[PauseReport], top: usize) -> Table {
    let rows = most(all, top, |pause| pause.size_bytes).into_iter().map(|pause| {
        let note = match (pause.action.as_str(), pause.missing_count) {
            ("resume", 0) => "all addresses as before".to_owned(),
            ("resume", count) => {
                format!("{} in {count} parts not restored", size(pause.missing_bytes))
            }
            _ => String::new(),
        };
        [
            time(pause.since_start_ns),
            pause.action.clone(),
            pause.pid.to_string(),
            pause.library.clone(),
            size(pause.before_bytes),
            size(pause.size_bytes),
            size(pause.after_bytes),
            time(pause.dur_ns),
            pause.calls_count.to_string(),
            percentile(0.5, pause.call_p50_ns as f64, pause.calls_count),
            time(pause.call_max_ns),
            note,
        ]
    });
    let columns = [
        number("at"),
        whole(""),
        number("process"),
        word("library"),
        number("before"),
        number("moved"),
        number("after"),
        number("took"),
        number("calls"),
        number("p50"),
        number("max"),
        word(""),
    ];
    Table::texts(&columns, rows).of(all.len())
}

fn exits(all: &[ExitReport], top: usize) -> Table {
    let rows = most(all, top, |exit| exit.size_bytes).into_iter().map(|exit| {
        [time(exit.since_start_ns), exit.pid.to_string(), exit.library.clone(), size(exit.size_bytes)]
    });
    let columns = [number("at"), number("process"), word("library"), number("released")];
    Table::texts(&columns, rows).of(all.len())
}

fn phases(all: &[PhaseReport], top: usize) -> Table {
    let change = |phase: &PhaseReport| {
        let change = |before: Option<i64>, after: Option<i64>| Some((after? - before?).abs());
        change(phase.reserved_before_bytes, phase.reserved_after_bytes).unwrap_or_default()
            + change(phase.active_before_bytes, phase.active_after_bytes).unwrap_or_default()
    };
    let size = |bytes: Option<i64>| bytes.map_or_else(|| "–".to_owned(), size);
    let rows = most(all, top, change).into_iter().map(|phase| {
        [
            phase.name.clone(),
            phase.pid.to_string(),
            time(phase.dur_ns),
            size(phase.reserved_before_bytes),
            size(phase.reserved_after_bytes),
            size(phase.active_before_bytes),
            size(phase.active_after_bytes),
        ]
    });
    let columns = [
        word("phase"),
        number("process"),
        number("took"),
        number("reserved"),
        number("then"),
        number("active"),
        number("then"),
    ];
    Table::texts(&columns, rows).of(all.len())
}

/// Arranges the `top` rows of each table that released or moved most.
pub fn document(history: &HistoryReport, top: usize) -> Document {
    let mut blocks = Vec::new();
    if history.releases.is_empty() {
        blocks.push(Block::Note(
            "no memory was to be released, or no allocator of PyTorch was probed: see `analyze info`"
                .to_owned(),
        ));
    } else {
        blocks.extend(releases(history, top));
    }
    let mut add = |what: &str, count: usize, table: Table| {
        if count > 0 {
            blocks.extend([title(what, count), Block::Table(table)]);
        }
    };
    add("pauses and resumes", history.pauses.len(), pauses(&history.pauses, top));
    add("released by the end of a process", history.exits.len(), exits(&history.exits, top));
    add("phases", history.phases.len(), phases(&history.phases, top));
    Document::answer(blocks)
}
