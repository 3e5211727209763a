//! Compares the replay of runs recorded on an H200 with what PyTorch reported at every mark: reserved,
//! allocated, active, inactive-split and requested bytes, the number of segments, and every segment and block
//! with its address, size and state. `testdata/memory/RUN.state.json` holds the reports, which
//! `testdata/record/memory.py` requested.

use std::{collections::BTreeMap, fs, path::PathBuf};

use analyze::trace::Trace;
use analyze_memory::{
    allocator::Allocator,
    decode::Key,
    input::{Input, Listener, Replay},
    span::State,
};
use serde_json::Value;
use trace_schema::Lost;

use super::support::{testdata, truth};

/// Segments by address, as text.
type Held = BTreeMap<u64, String>;

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Returns what PyTorch reported. PyTorch keeps a stale requested size for free blocks, which is ignored.
fn said(mark: &Value, reports_only: bool) -> Held {
    let mut held = Held::new();
    for segment in mark["segments"].as_array().expect("segments") {
        let mut blocks = Vec::new();
        for block in segment[6].as_array().expect("blocks") {
            let state = block[3].as_str().expect("a state");
            let requested = if state == "inactive" || reports_only { 0 } else { number(&block[2]) };
            blocks.push((number(&block[0]), number(&block[1]), requested, state.to_owned()));
        }
        let expandable = segment[4].as_bool().expect("a truth");
        let about = if reports_only {
            format!("{} {expandable}", segment[1])
        } else {
            format!("{} {} {} {expandable} {}", segment[1], segment[2], segment[3], segment[5])
        };
        held.insert(number(&segment[0]), format!("{about} {:?}", of_reports(blocks, reports_only)));
    }
    held
}

/// A block: address, size, requested size, state.
type Block = (u64, u64, u64, String);

/// Keeps only allocated blocks if there are only usage reports, which tell nothing about the others.
fn of_reports(blocks: Vec<Block>, reports_only: bool) -> Vec<Block> {
    blocks.into_iter().filter(|block| !reports_only || block.3 == State::Active.name()).collect()
}

fn replayed(allocator: &Allocator, reports_only: bool) -> Held {
    let mut held = Held::new();
    for segment in allocator.segments() {
        let blocks = allocator.blocks_in(segment).map(|block| {
            let requested = block.requested_bytes.filter(|_| !reports_only).unwrap_or_default();
            (block.addr, block.size_bytes, requested, block.state.name().to_owned())
        });
        let blocks = of_reports(blocks.collect(), reports_only);
        let about = if reports_only {
            format!("{} {}", segment.size_bytes, segment.is_expandable)
        } else {
            let size = if segment.is_small { "small" } else { "large" };
            let (owner, id) = segment.pool;
            format!(
                "{} {} \"{size}\" {} [{owner},{id}]",
                segment.size_bytes, segment.stream, segment.is_expandable
            )
        };
        held.insert(segment.addr, format!("{about} {blocks:?}"));
    }
    held
}

struct Comparison {
    pid: u32,
    marks: Vec<Value>,
    compared: usize,
    blocks_count: usize,
    different: Vec<String>,
}

impl Listener for Comparison {
    fn instant(&mut self, run: u32, instant: usize, replay: &Replay) {
        let mark = &self.marks[instant];
        let reports_only = !replay.recorded_kinds(run, self.pid).events;
        let key = Key { run, pid: self.pid, device: 0 };
        let nothing = Allocator::default();
        let found = replay.allocators().find(|(of, _)| *of == key);
        let allocator = found.map_or(&nothing, |(_, allocator)| allocator);
        let totals = allocator.totals();
        let mut check = |what: &str, found: i64| {
            let said = mark["stats"][what].as_i64().expect("a statistic");
            if found != said {
                self.different.push(format!("{}: {what} is {said}, replayed {found}", mark["name"]));
            }
        };
        check("reserved_bytes.all.current", totals.reserved_bytes);
        check("allocated_bytes.all.current", totals.allocated_bytes);
        check("segment.all.current", totals.segments_count);
        if !reports_only {
            check("active_bytes.all.current", totals.active_bytes);
            check("inactive_split_bytes.all.current", totals.inactive_split_bytes);
            check("requested_bytes.all.current", totals.requested_bytes);
        }
        let (said, found) = (said(mark, reports_only), replayed(allocator, reports_only));
        for addr in said.keys().chain(found.keys()) {
            if said.get(addr) != found.get(addr) {
                self.different.push(format!(
                    "{}: {:?} / {:?}",
                    mark["name"],
                    said.get(addr),
                    found.get(addr)
                ));
            }
        }
        self.blocks_count += allocator.blocks().count();
        self.compared += 1;
    }
}

/// The process of a `RUN.state.json`, and the marks at which PyTorch reported its segments.
fn reports(name: &str) -> (u32, Vec<Value>) {
    let json = truth(&format!("memory/{name}"));
    let marks = json["marks"].as_array().expect("marks").iter().cloned();
    (number(&json["pid"]) as u32, marks.filter(|mark| mark.get("segments").is_some()).collect())
}

/// Opens a run of `testdata/memory`.
async fn open(run: &str) -> Trace {
    Trace::open(&[PathBuf::from(testdata(&format!("memory/{run}.parquet")))]).await.expect("a run")
}

/// Compares one run; returns the number of marks and blocks, and the differences.
async fn compare(name: &str) -> (usize, usize, Vec<String>) {
    let (pid, marks) = reports(name);
    let trace = open(name.trim_end_matches(".state.json").trim_end_matches(".child")).await;
    let instants = marks.iter().map(|mark| mark["ts_ns"].as_i64().expect("a time")).collect();
    let comparison = Comparison { pid, marks, compared: 0, blocks_count: 0, different: Vec::new() };
    let input = Input::new(trace.events(), trace.files());
    let (replay, comparison) = input.replay(vec![instants], comparison).await.expect("a replay");
    let mut comparison = comparison;
    for (key, allocator) in replay.allocators() {
        if !allocator.faults().is_empty() {
            comparison.different.push(format!("{key:?}: {:?}", allocator.faults()));
        }
    }
    assert_eq!(comparison.compared, comparison.marks.len(), "{name}");
    (comparison.compared, comparison.blocks_count, comparison.different)
}

#[tokio::test]
async fn every_mark_is_as_pytorch_said() {
    let (mut runs, mut marks, mut blocks) = (0, 0, 0);
    let mut different = Vec::new();
    for entry in fs::read_dir(testdata("memory")).expect("testdata/memory") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        // The neighbour process was not recorded: it only holds memory that nobody traced.
        if !name.ends_with(".state.json") || name == "neighbour.other.state.json" {
            continue;
        }
        let (of_marks, of_blocks, found) = compare(&name).await;
        different.extend(found.into_iter().map(|what| format!("{name}: {what}")));
        runs += 1;
        marks += of_marks;
        blocks += of_blocks;
    }
    println!("{runs} runs, {marks} marks, {blocks} blocks; {} differences", different.len());
    assert!(runs >= 18, "{runs} runs");
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Checks at every mark after a loss how much is known, and that PyTorch reported the same.
struct AfterLoss {
    marks: Vec<Value>,
    pid: u32,
    lost_from_ts: i64,
    known_count: usize,
    compared: usize,
    wrong: Vec<String>,
}

impl Listener for AfterLoss {
    fn instant(&mut self, run: u32, instant: usize, replay: &Replay) {
        let mark = &self.marks[instant];
        let key = Key { run, pid: self.pid, device: 0 };
        let Some((_, allocator)) = replay.allocators().find(|(of, _)| *of == key) else { return };
        let is_after = mark["ts_ns"].as_i64().expect("a time") >= self.lost_from_ts;
        if allocator.knowledge().lost_count != if is_after { 7 } else { 0 } {
            self.wrong.push(format!("{}: {} lost", mark["name"], allocator.knowledge().lost_count));
        }
        if !is_after {
            return;
        }
        let said = said(mark, false).into_values().collect::<Vec<_>>().join("\n");
        for block in allocator.blocks().filter(|block| block.is_active()) {
            let requested = block.requested_bytes.unwrap_or_default();
            let start = format!("({}, ", block.addr);
            let end = format!(", {requested}, {:?})", block.state.name());
            let there = said.split(&start).nth(1).and_then(|rest| rest.split_inclusive(')').next());
            if there.is_none_or(|text| !text.ends_with(&end)) {
                self.wrong.push(format!("{}: {block:?}: {there:?}", mark["name"]));
            }
            self.known_count += 1;
        }
        self.compared += 1;
    }
}

#[tokio::test]
async fn what_is_known_after_a_loss_is_as_pytorch_said() {
    let (pid, marks) = reports("plain.state.json");
    let times: Vec<i64> = marks.iter().map(|mark| mark["ts_ns"].as_i64().expect("a time")).collect();
    let trace = open("plain").await;
    let mut files = trace.files().to_vec();
    // The events are in the file, although a recorder that lost them would not have them.
    let (from_ns, to_ns) = (times[2], times[3]);
    let lost = |probe: &str| Lost { probe: probe.to_owned(), from_ns, to_ns, count: 7 };
    files[0].run.lost = vec![lost("_ZN3c104cuda12record_traceEv"), lost("cudaFree"), lost("run")];
    let listener =
        AfterLoss { marks, pid, lost_from_ts: from_ns, known_count: 0, compared: 0, wrong: Vec::new() };
    let input = Input::new(trace.events(), &files);
    let (replay, listener) = input.replay(vec![times], listener).await.expect("a replay");
    assert!(
        listener.compared > 5 && listener.known_count > 50,
        "{} {}",
        listener.compared,
        listener.known_count
    );
    assert!(listener.wrong.is_empty(), "{}", listener.wrong.join("\n"));
    assert!(replay.allocators().all(|(_, allocator)| allocator.faults().is_empty()));
}
