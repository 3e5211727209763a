//! Sums by call stack, as flame graphs and profiles show them.

use std::{collections::HashMap, fs, io::Read};

use super::support::{content, fields, number, packed};
use crate::support::{json, numbers, path, refused, stdout, testdata};

fn folded_sum(run: &str, what: &str, flags: &[&str]) -> i64 {
    let mut args = vec!["export", "folded", run, "--what", what];
    args.extend(flags);
    let text = stdout(&args);
    let of = |line: &str| -> i64 { line.rsplit_once(' ').unwrap().1.parse().unwrap() };
    text.lines().map(of).sum()
}

/// What flame graphs show sums to what the views say.
#[test]
fn folded_stacks_sum_to_what_the_views_say() {
    let run = testdata("h200/nccl.parquet");
    let on_cpu = numbers(&run, "SELECT sum(on_cpu_ns) FROM op_time WHERE depth = 0");
    assert_eq!(folded_sum(&run, "on-cpu-calls", &[]), on_cpu[0]);
    assert_eq!(folded_sum(&run, "off-cpu", &[]), numbers(&run, "SELECT sum(dur) FROM off_cpu")[0]);
    for (name, at) in [("generate", "peak"), ("expandable", "peak")] {
        let run = testdata(&format!("memory/{name}.parquet"));
        let moment = json(&["memory", &run, "--at", at, "--json"]);
        let sum = |names: &[&str]| -> i64 {
            let held = moment["moment"]["allocators"].as_array().unwrap();
            held.iter().flat_map(|held| names.iter().map(|name| held[*name].as_i64().unwrap())).sum()
        };
        let allocated = sum(&["allocated_bytes", "outside_bytes"]);
        assert!(allocated > 0);
        assert_eq!(folded_sum(&run, "allocated-bytes", &["--at", at]), allocated);
        assert_eq!(folded_sum(&run, "pinned-bytes", &["--at", at]), sum(&["pinned_bytes"]));
    }
}

#[test]
fn a_flame_graph_names_functions() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("a.svg");
    let run = testdata("memory/generate.parquet");
    let shown =
        stdout(&["export", "folded", &run, "--what", "allocated-bytes", "--svg", svg.to_str().unwrap()]);
    assert_eq!(shown, "");
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("<svg") && svg.contains("at::"), "{}", &svg[..200]);
    let none = refused(&[
        "export",
        "folded",
        &testdata("memory/pause.parquet"),
        "--what",
        "pinned-bytes",
        "--at",
        "0s",
    ]);
    assert!(none.contains("no memory pinned"), "{none}");
}

/// A run without a record of the scheduler does not say how long its calls had a CPU.
#[test]
fn time_on_cpu_is_not_guessed() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("k.parquet");
    stdout(&["import", &testdata("kineto/small.json.gz"), "--out", path(&run)]);
    let why = refused(&["export", "folded", path(&run), "--what", "on-cpu-calls"]);
    assert!(why.contains("calls of processes without a record of the scheduler"), "{why}");
    assert!(why.contains("no call that is known to have had a CPU"), "{why}");
}

/// Every field of a profile, by `profile.proto`: names of its messages' fields with their wire types.
const PROFILE: [(u64, u64); 8] = [(1, 2), (2, 2), (4, 2), (5, 2), (6, 2), (9, 0), (10, 0), (13, 2)];

#[test]
fn a_profile_has_what_the_folded_stacks_have() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("a.pb.gz");
    let run = testdata("memory/generate.parquet");
    stdout(&["export", "pprof", &run, "--out", path(&out)]);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(&out).unwrap()).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let all = |number: u64| profile.iter().filter(move |field| field.number == number);
    assert!(profile.iter().all(|field| PROFILE.contains(&(field.number, field.wire))));
    let strings: Vec<String> =
        all(6).map(|field| String::from_utf8(field.content.to_vec()).unwrap()).collect();
    assert_eq!(strings[0], "", "as the format wants it");
    let string = |place: u64| strings[place as usize].as_str();
    let types: Vec<(&str, &str)> = all(1)
        .map(|ty| fields(ty.content))
        .map(|ty| (string(number(&ty, 1).unwrap()), string(number(&ty, 2).unwrap())))
        .collect();
    let expected = [
        ("on_cpu_ns", "nanoseconds"),
        ("off_cpu_ns", "nanoseconds"),
        ("allocated_bytes", "bytes"),
        ("pinned_bytes", "bytes"),
    ];
    assert_eq!(types, expected);
    let functions: HashMap<u64, &str> = all(5)
        .map(|function| fields(function.content))
        .map(|function| (number(&function, 1).unwrap(), string(number(&function, 2).unwrap())))
        .collect();
    let locations: HashMap<u64, &str> = all(4)
        .map(|location| fields(location.content))
        .map(|location| {
            let line = fields(content(&location, 4).unwrap());
            (number(&location, 1).unwrap(), functions[&number(&line, 1).unwrap()])
        })
        .collect();
    assert!(functions.len() == locations.len() && !locations.contains_key(&0), "0 is no location");
    let mut stacks: [Vec<String>; 4] = Default::default();
    for sample in all(2) {
        let sample = fields(sample.content);
        let frames: Vec<&str> =
            packed(content(&sample, 1).unwrap()).iter().rev().map(|location| locations[location]).collect();
        let values = packed(content(&sample, 2).unwrap());
        assert_eq!(values.len(), 4);
        assert_eq!(values.iter().filter(|value| **value > 0).count(), 1);
        let place = values.iter().position(|value| *value > 0).unwrap();
        stacks[place].push(format!("{} {}", frames.join(";"), values[place]));
    }
    for (what, stacks) in ["on-cpu-calls", "off-cpu", "allocated-bytes", "pinned-bytes"].iter().zip(stacks) {
        let folded = stdout(&["export", "folded", &run, "--what", what]);
        assert_eq!(stacks, folded.lines().collect::<Vec<_>>(), "{what}");
    }
    let start = numbers(&run, "SELECT min(ts), max(ts) FROM events");
    assert!(number(&profile, 10).unwrap() as i64 > start[1] - start[0] - 1_000_000_000);
    assert!(number(&profile, 9).unwrap() > 1_700_000_000_000_000_000, "when it was recorded");
    let comments: Vec<&str> = packed(content(&profile, 13).unwrap()).into_iter().map(string).collect();
    assert!(comments.iter().any(|comment| comment.contains("events were lost")), "{comments:?}");
}
