//! `analyze what-if` on runs recorded on an H200, and on bad input.

use std::{fs, path::Path};

use serde_json::Value;

use super::support::{self, outcome, runs_in, stdout, testdata};

fn json(args: &[&str]) -> Vec<Value> {
    serde_json::from_value(support::json(args)).unwrap()
}

#[test]
fn the_control_reserves_what_every_record_says() {
    let mut requests = 0;
    for run in runs_in(&["memory", "leaks", "h200"]) {
        for found in json(&["what-if", &run, "--conf", "expandable_segments:True", "--json"]) {
            assert_eq!(found["control_equal_count"], found["requests_count"], "{run}");
            assert_eq!(found["control"]["peak_reserved_bytes"], found["peak_reserved_bytes"], "{run}");
            assert_eq!(found["control"]["end_reserved_bytes"], found["end_reserved_bytes"], "{run}");
            requests += found["requests_count"].as_i64().unwrap();
        }
    }
    assert!(requests > 400_000, "{requests}");
}

/// Segments alone, as calls of the driver show them, say nothing about what another setting would reserve.
#[test]
fn without_requests_nothing_is_claimed() {
    let light = testdata("align/aligned-light.parquet");
    assert_eq!(json(&["what-if", &light, "--json"]), Vec::<Value>::new());
    let text = stdout(&["what-if", &light]);
    assert!(text.contains("no request of PyTorch's allocator is on record"), "{text}");
}

/// One program ran with either setting: from each run, what does the other have? (Where other streams use blocks, the
/// GPU decides when they are free, which differs from run to run.)
#[test]
fn what_other_settings_come_to_is_what_they_came_to() {
    for name in ["examples", "graphs-memory"] {
        let plain = testdata(&format!("memory/{name}.parquet"));
        let expandable = testdata(&format!("memory/{name}-expandable.parquet"));
        for (from, to, conf) in [
            (&plain, &expandable, "expandable_segments:True"),
            (&expandable, &plain, "expandable_segments:False"),
        ] {
            let found = &json(&["what-if", from, "--conf", conf, "--json"])[0];
            let there = &json(&["what-if", to, "--conf", conf, "--json"])[0];
            let outcome = &found["outcomes"][0];
            for field in ["peak_reserved_bytes", "end_reserved_bytes"] {
                assert_eq!(outcome[field], there[field], "{name} {conf} {field}");
            }
            let saved = found["peak_reserved_bytes"].as_i64().unwrap()
                - there["peak_reserved_bytes"].as_i64().unwrap();
            assert_eq!((&outcome["saved_bytes"], &outcome["is_known"]), (&saved.into(), &true.into()));
        }
    }
}

/// One program ran as it is and changed in one way: from the first run, what do the others come to?
#[test]
fn what_changed_programs_come_to_is_what_they_came_to() {
    let run = |change: &str| testdata(&format!("memory/changed-{change}.parquet"));
    let all = &["peak_reserved_bytes", "asked_count", "end_reserved_bytes", "given_back_count"];
    for (change, words, fields) in [
        ("no_empty_cache", &["--no-empty-cache"][..], &all[..]),
        ("empty_cache_after", &["--empty-cache-after", "evaluate"], all),
        // The program releases its pool at the end.
        ("mem_pool", &["--mem-pool", "evaluate"], &all[..2]),
    ] {
        let recorded = &json(&["what-if", &run(change), "--json"])[0];
        let found = &json(&[&["what-if", &run("none"), "--json"], words].concat())[0];
        let outcome = &found["outcomes"][0];
        for field in fields {
            assert_eq!(outcome[field], recorded[field], "{change} {field}: {outcome}");
        }
        assert_eq!(outcome["is_known"], true, "{change}");
        assert_ne!(recorded["peak_reserved_bytes"], found["peak_reserved_bytes"], "{change}: no change");
    }
    let err = support::refused(&["what-if", &run("none"), "--mem-pool", "nowhere"]);
    assert!(err.contains("the run has no mark \"nowhere\""), "{err}");
}

#[test]
fn a_request_that_failed_is_served_by_expandable_segments() {
    let run = testdata("memory/crowded.parquet");
    let found = &json(&["what-if", &run, "--conf", "expandable_segments:True", "--json"])[0];
    let outcome = &found["outcomes"][0];
    assert!(outcome["serves_since_start_ns"].is_i64() && outcome["saved_bytes"].is_null(), "{outcome}");
    assert_eq!(outcome["ended_requested_bytes"], 1 << 30);
    let text = stdout(&["what-if", &run, "--conf", "expandable_segments:True"]);
    assert!(text.contains("serves the 1.00 GiB that failed"), "{text}");
    let short =
        &json(&["what-if", &run, "--conf", "expandable_segments:True", "--capacity", "1GiB", "--json"])[0];
    assert!(short["outcomes"][0]["fails_since_start_ns"].is_i64(), "{short}");
    assert!(short["notes"][0].as_str().unwrap().contains("the control has"), "{short}");
    assert!(short["notes"][1].as_str().unwrap().starts_with("inconclusive: the control fails"), "{short}");
    assert_eq!(short["outcomes"][0]["is_known"], false);
}

fn write(folder: &Path, text: &str) -> String {
    let path = folder.join("requests.csv");
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn requests_from_elsewhere_explain_the_segments_or_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = testdata("memory/neighbour.parquet");
    let query = "SELECT size_bytes FROM events WHERE kind = 'alloc' AND op = 'alloc' ORDER BY ts";
    let sizes = stdout(&["sql", &run, query, "--format", "csv"]);
    let lines: Vec<String> =
        sizes.lines().skip(1).enumerate().map(|(n, size)| format!("{size},block {n}\n")).collect();
    assert_eq!(lines.len(), 2);
    let requests = write(folder.path(), &lines.concat());
    let found = &json(&["what-if", &run, "--requests", &requests, "--json"])[0];
    assert_eq!((&found["equal_count"], &found["recorded_count"]), (&2.into(), &2.into()));
    assert_eq!(found["reserved_bytes"], 302 << 20);
    let text = stdout(&["what-if", &run, "--requests", &requests]);
    assert!(text.contains("2 of 2 cudaMalloc, in order") && text.contains("inferred"), "{text}");
    let other = write(folder.path(), "bytes\n500000000\n");
    let text = stdout(&["what-if", &run, "--requests", &other]);
    assert!(text.contains("0 of 1 cudaMalloc") && text.contains("inconclusive"), "{text}");
}

#[test]
fn settings_that_pytorch_or_the_simulation_does_not_know_are_refused() {
    let run = testdata("memory/examples.parquet");
    for (conf, entry, reason) in [
        (
            "expandable:True",
            "expandable:True",
            "PyTorch's allocator has no such setting; perhaps expandable_segments",
        ),
        ("max_split_size_mb:64,colour", "colour", "PyTorch's allocator has no such setting"),
        (
            "max_split_size_mb:10",
            "max_split_size_mb:10",
            "PyTorch demands a whole number of MiB, at least 20",
        ),
        (
            "max_split_size_mb:32,large_segment_size_mb:64",
            "max_split_size_mb:32",
            "PyTorch demands a whole number of MiB, at least 64",
        ),
        (
            "large_segment_size_mb:0",
            "large_segment_size_mb:0",
            "PyTorch demands a whole number of MiB, at least 11",
        ),
        (
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:3",
            "PyTorch demands a power of two, or a list",
        ),
        ("expandable_segments:1", "expandable_segments:1", "PyTorch demands True or False"),
        (
            "per_process_memory_fraction:1.5",
            "per_process_memory_fraction:1.5",
            "PyTorch demands a number from 0 to 1",
        ),
        ("backend:foo", "backend:foo", "PyTorch demands native or cudaMallocAsync"),
        (
            "throw_on_cudamalloc_oom:True",
            "throw_on_cudamalloc_oom:True",
            "PyTorch 2.11 has no such setting, it came with 2.12",
        ),
        (
            "backend:cudaMallocAsync",
            "backend:cudaMallocAsync",
            "not simulated: it replaces the allocator whose rules are followed",
        ),
        (
            "graph_capture_record_stream_reuse:True",
            "graph_capture_record_stream_reuse:True",
            "not simulated: it changes when a block that another stream used is free again during a capture",
        ),
        (
            "expandable_segments:True,garbage_collection_threshold:0.8",
            "garbage_collection_threshold:0.8",
            "PyTorch follows it only within a limit: per_process_memory_fraction below 1, or one that the program sets",
        ),
    ] {
        let err = support::refused(&["what-if", &run, "--conf", conf]);
        assert!(err.contains(&format!("{entry:?}: {reason}")), "{conf}: {err}");
    }
}

#[test]
fn settings_without_effect_are_named_and_change_nothing() {
    let run = testdata("memory/examples.parquet");
    let conf = "release_lock_on_cudamalloc:True,backend:native,pinned_num_register_threads:8,";
    let found = &json(&["what-if", &run, "--conf", "", "--conf", conf, "--json"])[0];
    for outcome in found["outcomes"].as_array().unwrap() {
        assert_eq!((&outcome["saved_bytes"], &outcome["is_known"]), (&0.into(), &true.into()), "{outcome}");
        assert!(outcome["limit_bytes"].is_null(), "{outcome}");
    }
    let notes = found["notes"].as_array().unwrap();
    let expected = "without effect on what is reserved: pinned_num_register_threads (pinned memory is the host's), \
                    release_lock_on_cudamalloc (requests are served in the recorded order)";
    assert!(notes.contains(&expected.into()), "{notes:?}");
}

#[test]
fn a_share_of_the_device_limits_what_is_reserved() {
    const MIB: i64 = 1 << 20;
    let run = testdata("memory/examples.parquet");
    // Peak, limit, and the request that failed. The device has 150,109,880,320 bytes.
    for (conf, peak_bytes, limit_bytes, failed_bytes) in [
        ("per_process_memory_fraction:0.01", 256 * MIB, 1_501_098_803_i64, None),
        ("per_process_memory_fraction:0.001", 128 * MIB, 150_109_880, None),
        ("per_process_memory_fraction:0.01,garbage_collection_threshold:0.1", 160 * MIB, 1_501_098_803, None),
        ("per_process_memory_fraction:0", 0, 0, Some(32 * MIB)),
        (
            "expandable_segments:True,per_process_memory_fraction:0.0009",
            120 * MIB,
            135_098_892,
            Some(16 * MIB),
        ),
    ] {
        let found = &json(&["what-if", &run, "--conf", conf, "--json"])[0];
        let outcome = &found["outcomes"][0];
        assert_eq!(outcome["peak_reserved_bytes"], peak_bytes, "{conf}");
        assert_eq!(outcome["limit_bytes"], limit_bytes, "{conf}");
        assert_eq!(outcome["ended_requested_bytes"].as_i64(), failed_bytes, "{conf}");
        assert_eq!(outcome["fails_since_start_ns"].is_i64(), failed_bytes.is_some(), "{conf}");
        assert_eq!(outcome["is_known"], true, "{conf}");
    }
    let text = stdout(&["what-if", &run, "--conf", "per_process_memory_fraction:0"]);
    assert!(text.contains("for 32.0 MiB, because per_process_memory_fraction allows 0 B"), "{text}");
}

/// These programs set the limit themselves, to 2500 MiB, and ran into it: the setting has the same effect.
#[test]
fn a_share_of_the_device_is_what_a_program_had_that_set_it() {
    let fraction = "per_process_memory_fraction:0.01746347405255196";
    for (name, conf) in
        [("plain", fraction.to_owned()), ("expandable", format!("expandable_segments:True,{fraction}"))]
    {
        let run = testdata(&format!("memory/{name}.parquet"));
        let found = &json(&["what-if", &run, "--conf", &conf, "--capacity", "139GiB", "--json"])[0];
        assert_eq!(found["failed_count"], 2, "{name}");
        assert!(found["control"]["serves_since_start_ns"].is_i64(), "{name}: it had no such setting");
        let outcome = &found["outcomes"][0];
        assert_eq!(outcome["limit_bytes"], 2500_i64 << 20, "{name}");
        assert!(outcome["ended_requested_bytes"].is_null(), "{name}: {outcome}");
        for field in ["peak_reserved_bytes", "end_reserved_bytes"] {
            assert_eq!(outcome[field], found[field], "{name} {field}");
        }
    }
}

#[test]
fn a_share_of_a_device_of_unknown_size_is_refused() {
    let run = testdata("leaks/leak-10.parquet");
    let conf = "per_process_memory_fraction:0.5";
    let err = support::refused(&["what-if", &run, "--conf", conf]);
    let reason = "per_process_memory_fraction: it is a share of the device's total memory, which the record does not tell";
    assert!(err.contains(reason) && err.contains("--capacity"), "{err}");
    let found = &json(&["what-if", &run, "--conf", conf, "--capacity", "80GiB", "--json"])[0];
    assert_eq!(found["outcomes"][0]["limit_bytes"], 40_i64 << 30);
    let folder = tempfile::tempdir().unwrap();
    let requests = write(folder.path(), "512\n");
    let neighbour = testdata("memory/neighbour.parquet");
    let err = support::refused(&["what-if", &neighbour, "--requests", &requests, "--conf", conf]);
    assert!(err.contains("per_process_memory_fraction: the requests of --requests are laid out"), "{err}");
}

#[test]
fn what_is_not_understood_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let run = testdata("memory/neighbour.parquet");
    let bad = write(folder.path(), "bytes\n5\nfive\n");
    for (words, part) in [
        (&["--requests", "nowhere.csv"][..], "nowhere.csv"),
        (&["--requests", &bad], "line 3: \"five\""),
        (&["--capacity", "much"], "much"),
    ] {
        let (code, out, err) = outcome(&[&["what-if", &run], words].concat());
        assert!(code == 2 && out.is_empty() && err.contains(part), "{words:?}: {code} {out} {err}");
    }
    let out = stdout(&["what-if", &testdata("memory/pause.parquet")]);
    assert!(out.starts_with("no request of PyTorch's allocator"), "{out}");
}
