//! Timelines: both formats have what the views have.

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::support::{content, fields, number, text};
use crate::support::{numbers, path, refused, stdout, testdata};

pub(crate) fn exported(format: &str, run: &str, directory: &Path, name: &str) -> PathBuf {
    let out = directory.join(name);
    stdout(&["export", format, run, "--out", out.to_str().unwrap()]);
    out
}

/// What a reader of a timeline sums up: slices and their time by category; flows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    slices: HashMap<String, (i64, i64)>,
    open_count: usize,
    begun_flows: Vec<u64>,
    ended_flows: Vec<u64>,
}

impl Sums {
    fn add(&mut self, category: &str, dur: i64) {
        let sum = self.slices.entry(category.to_owned()).or_default();
        *sum = (sum.0 + 1, sum.1 + dur);
    }

    fn of(&self, categories: &[&str]) -> [i64; 2] {
        let found = categories.iter().filter_map(|category| self.slices.get(*category));
        found.fold([0, 0], |sum, (count, dur)| [sum[0] + count, sum[1] + dur])
    }
}

fn perfetto_sums(trace: &[u8]) -> Sums {
    let mut sums = Sums::default();
    let mut categories: HashMap<u64, String> = HashMap::new();
    let mut open: HashMap<u64, Vec<(u64, String)>> = HashMap::new();
    for packet in fields(trace) {
        let packet = fields(packet.content);
        if let Some(data) = content(&packet, 12) {
            for entry in fields(data).into_iter().filter(|field| field.number == 1) {
                let entry = fields(entry.content);
                assert!(categories.insert(number(&entry, 1).unwrap(), text(&entry, 2).unwrap()).is_none());
            }
        }
        let Some(event) = content(&packet, 11) else { continue };
        let (event, ts) = (fields(event), number(&packet, 8).unwrap());
        let track = number(&event, 11).unwrap();
        match number(&event, 9).unwrap() {
            1 => {
                let category = &categories[&number(&event, 3).unwrap()];
                open.entry(track).or_default().push((ts, category.clone()));
                sums.begun_flows.extend(event.iter().filter(|f| f.number == 47).map(|f| f.value));
                sums.ended_flows.extend(event.iter().filter(|f| f.number == 48).map(|f| f.value));
            }
            2 => {
                let (began, category) = open.get_mut(&track).unwrap().pop().unwrap();
                sums.add(&category, (ts - began) as i64);
            }
            kind => assert!(kind == 3 || kind == 4),
        }
    }
    for (_, category) in open.into_values().flatten() {
        sums.add(&category, 0);
        sums.open_count += 1;
    }
    sums.begun_flows.sort_unstable();
    sums.ended_flows.sort_unstable();
    sums
}

fn chrome_sums(trace: &Value) -> Sums {
    let mut sums = Sums::default();
    let ns = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
    let flow = |event: &Value| {
        u64::from_str_radix(event["id"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    for event in trace["traceEvents"].as_array().unwrap() {
        match event["ph"].as_str().unwrap() {
            "X" => sums.add(event["cat"].as_str().unwrap(), ns(&event["dur"])),
            "B" => {
                sums.add(event["cat"].as_str().unwrap(), 0);
                sums.open_count += 1;
            }
            "s" => sums.begun_flows.push(flow(event)),
            "f" => sums.ended_flows.push(flow(event)),
            other => assert!(["M", "i", "C"].contains(&other), "{other}"),
        }
    }
    sums.begun_flows.sort_unstable();
    sums.ended_flows.sort_unstable();
    sums
}

/// Both formats of a run's timeline; they must say the same.
fn sums(run: &str, directory: &Path) -> Sums {
    let perfetto = exported("perfetto", run, directory, "a.pftrace");
    let perfetto = perfetto_sums(&fs::read(perfetto).unwrap());
    let chrome = exported("chrome", run, directory, "a.json.gz");
    let mut json = String::new();
    flate2::read::GzDecoder::new(fs::File::open(chrome).unwrap()).read_to_string(&mut json).unwrap();
    assert_eq!(perfetto, chrome_sums(&serde_json::from_str(&json).unwrap()), "{run}");
    assert_eq!(perfetto.begun_flows, perfetto.ended_flows, "{run}: each flow arrives");
    let open = "SELECT count(*) FROM events WHERE dur IS NULL AND (kind IN ('call', 'off_cpu', 'device') OR op = 'range')";
    assert_eq!(perfetto.open_count as i64, numbers(run, open)[0], "{run}");
    perfetto
}

/// Slices of every category are the rows of their view, to the nanosecond.
#[test]
fn timelines_hold_what_the_views_hold() {
    for name in ["h200/nccl", "h200/shared", "memory/process"] {
        let directory = tempfile::tempdir().unwrap();
        let run = testdata(&format!("{name}.parquet"));
        let sums = sums(&run, directory.path());
        let views = [
            ("SELECT count(*), coalesce(sum(dur), 0) FROM ops", &["runtime", "driver", "nccl", "call"][..]),
            ("SELECT count(*), coalesce(sum(dur), 0) FROM off_cpu", &["off_cpu"]),
            ("SELECT count(*), coalesce(sum(dur), 0) FROM marks WHERE op = 'range'", &["mark"]),
            ("SELECT count(*), coalesce(sum(dur), 0) FROM chain_links WHERE task_tid > 0", &["chain"]),
        ];
        for (query, categories) in views {
            assert_eq!(numbers(&run, query), sums.of(categories), "{name}: {query}");
        }
        assert_eq!(sums.ended_flows.len() as i64, sums.of(&["chain"])[0]);
    }
}

/// An imported profile has work of GPUs, with a flow from its call, and operators.
#[test]
fn imported_timelines_hold_the_work_of_gpus() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("k.parquet");
    let run = run.to_str().unwrap();
    stdout(&["import", &testdata("kineto/small.json.gz"), "--out", run]);
    let sums = sums(run, directory.path());
    let work = numbers(run, "SELECT count(*), sum(dur), count(call_ts) FROM device_work");
    assert!(work[2] > 0);
    assert_eq!(sums.of(&["gpu"]), work[..2]);
    assert_eq!(sums.ended_flows.len() as i64, work[2]);
    let host = "SELECT count(*), sum(dur) FROM events WHERE kind = 'host' AND dur IS NOT NULL";
    assert_eq!(numbers(run, host), sums.of(&["host"]));
}

#[test]
fn a_timeline_has_the_same_bytes_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let run = testdata("h200/compile.parquet");
    for format in ["perfetto", "chrome"] {
        let export = |time: &str| {
            fs::read(exported(format, &run, directory.path(), &format!("{format}-{time}"))).unwrap()
        };
        assert!(export("first") == export("second"), "{format}");
    }
}

#[test]
fn an_export_replaces_nothing_unasked_and_leaves_nothing_half_done() {
    let directory = tempfile::tempdir().unwrap();
    let run = testdata("memory/pause.parquet");
    let out = exported("perfetto", &run, directory.path(), "a.pftrace");
    assert!(refused(&["export", "perfetto", &run, "--out", path(&out)]).contains("--force"));
    let copy = directory.path().join("copy.parquet");
    fs::copy(&run, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    refused(&["export", "chrome", copy, "--out", copy, "--force"]);
    assert_eq!(fs::read(copy).unwrap(), fs::read(&run).unwrap(), "an input is never written to");
    // A run whose pages are damaged, behind a footer that is not.
    let mut bytes = fs::read(&run).unwrap();
    let half = bytes.len() / 2;
    bytes[100..half].fill(0xff);
    let broken = directory.path().join("broken.parquet");
    fs::write(&broken, bytes).unwrap();
    let out = directory.path().join("b.json");
    refused(&["export", "chrome", path(&broken), "--out", path(&out)]);
    assert!(!out.exists());
}
