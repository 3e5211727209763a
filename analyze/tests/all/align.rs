//! A profiler's trace and a captured run on one clock, through the real command line: real pairs, of which the program itself read the
//! run's clock, and a profile made of a recording's own calls (`testdata/align/make.py`), of whose clock all is known.

use std::{fs, io::Read, path::Path};

use serde_json::Value;

use super::support::{analyze, json, stdout, testdata, truth};

fn run() -> String {
    testdata("h200/qwen2-profiled.parquet")
}

fn profile() -> String {
    testdata("align/qwen2-made.kineto.json.gz")
}

/// The profile as text.
fn profile_text() -> String {
    let mut text = String::new();
    let file = fs::File::open(profile()).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

fn aligned(profile: &str, directory: &Path) -> (Value, String) {
    let out = directory.join("aligned.parquet").to_str().unwrap().to_owned();
    (json(&["align", &run(), profile, "--out", &out, "--json"]), out)
}

fn not_aligned(run: &str, profile: &str, code: i32, words: &str) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.parquet");
    let output = analyze(&["align", run, profile, "--out", out.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words}: {message}");
    assert!(message.contains(words), "{words}: {message}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{words}: something is left");
}

/// That the clock is what `make.py` made it, within what is stated.
fn check_clock(alignment: &Value) {
    let truth = truth("align/qwen2-made.truth.json");
    let number = |value: &Value| value.as_f64().unwrap();
    let ns = |value: &Value| value.as_i64().unwrap();
    assert_eq!(alignment["matchable_count"], truth["calls_count"]);
    assert_eq!(alignment["matched_count"], truth["calls_count"]);
    let drift = number(&alignment["drift_ppm"]) - number(&truth["drift_ppm"]);
    assert!(drift.abs() <= number(&alignment["drift_error_ppm"]), "{alignment}");
    let since = (ns(&alignment["origin_ns"]) - ns(&truth["origin_ns"])) as f64;
    let expected = ns(&truth["offset_ns"]) + (since * number(&truth["drift_ppm"]) / 1e6).round() as i64;
    let error = (ns(&alignment["offset_ns"]) - expected).abs();
    assert!(error <= ns(&alignment["offset_error_ns"]) && error < 1_000, "{error} ns off: {alignment}");
    assert!(ns(&alignment["residual_median_ns"]) < 1_000, "{alignment}");
}

#[test]
fn a_profile_is_put_on_the_clock_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let (outcome, out) = aligned(&profile(), directory.path());
    check_clock(&outcome["alignment"]);
    assert!((outcome["wall_difference_ns"].as_i64().unwrap() - 1_234_567).abs() < 10_000, "{outcome}");
    let rows = |run: &str| json(&["info", "--json", run])[0]["rows_count"].as_i64().unwrap();
    let added: i64 = outcome["added"].as_object().unwrap().values().map(|n| n.as_i64().unwrap()).sum();
    assert_eq!(rows(&out), rows(&run()) + added);
    // Matched calls are not doubled: only a function that no recorder knows is new.
    let new = "SELECT op, count(*) AS n FROM events WHERE kind = 'call' GROUP BY op ORDER BY op";
    let before = stdout(&["sql", &run(), new]);
    let after: String = stdout(&["sql", &out, new])
        .lines()
        .filter(|line| !line.contains("IsCapturing"))
        .map(|l| format!("{l}\n"))
        .collect();
    assert_eq!(before, after);
    // Every kernel has its call, which was entered before it and is a launch of the same process.
    let work = "SELECT count(*) AS n, count(call_op) AS known, count(CASE WHEN delay_ns > 0 AND (call_op LIKE '%Launch%' OR op = 'memcpy') \
        THEN 1 END) AS later, count(DISTINCT call_pid) AS pids FROM device_work";
    let work = stdout(&["sql", &out, work]);
    let counts: Vec<&str> = work.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(counts, [counts[0], counts[0], counts[0], "1"]);
    assert!(counts[0].parse::<u32>().unwrap() > 4_000);
    // The marks and ranges lie where they were made, to the microsecond.
    let calls = "SELECT count(*) AS n FROM data_quality";
    assert_eq!(stdout(&["sql", &out, calls]), "n\n0\n");
    let info = stdout(&["info", &out]);
    for said in ["aligned", "matched: ", "offset: ", "drift: ", "GPU-side execution outside of the profile"] {
        assert!(info.contains(said), "{said}: {info}");
    }
    assert!(!info.contains("kernels and copies on the device have no rows"), "{info}");
}

/// A real pair, aligned: what the program read off the run's clock within ranges and around waits is where the new run has them.
fn check_pair(name: &str, matchable: u64) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("aligned.parquet").to_str().unwrap().to_owned();
    let file = |ending: &str| testdata(&format!("align/{name}.{ending}"));
    let outcome = json(&["align", &file("parquet"), &file("kineto.json.gz"), "--out", &out, "--json"]);
    let alignment = &outcome["alignment"];
    let ns = |value: &Value| value.as_i64().unwrap();
    assert_eq!(alignment["matchable_count"], matchable, "{outcome}");
    assert!(alignment["matched_count"].as_u64().unwrap() + 1 >= matchable, "{outcome}");
    assert!(
        ns(&alignment["residual_median_ns"]) < 500 && ns(&alignment["offset_error_ns"]) < 500,
        "{outcome}"
    );
    // One machine: the profiler's time of day is the recorder's.
    assert!(ns(&outcome["wall_difference_ns"]).abs() < 1_000, "{outcome}");
    let truth = truth(&format!("align/{name}.truth.json"));
    let marks = stdout(&["sql", &out, "SELECT name, ts, ts + dur AS until FROM marks"]);
    let mut ranges_count = 0;
    for range in truth["ranges"].as_array().unwrap() {
        let name = range["name"].as_str().unwrap();
        let Some(mark) = marks.lines().find(|line| line.split(',').next() == Some(name)) else { continue };
        let times: Vec<i64> = mark.split(',').skip(1).map(|ts| ts.parse().unwrap()).collect();
        let (before, after) = (ns(&range["start_ns"]) - times[0], times[1] - ns(&range["end_ns"]));
        assert!((0..100_000).contains(&before) && (0..100_000).contains(&after), "{name}: {before} {after}");
        ranges_count += 1;
    }
    assert_eq!(ranges_count, 24);
    let waits = "SELECT ts, ts + dur AS until, is_covered FROM sync_calls WHERE op = 'cudaDeviceSynchronize' AND \
        device_busy_ns IS NOT NULL";
    let waits = stdout(&["sql", &out, waits]);
    let mut waits_count = 0;
    for wait in truth["waits"].as_array().unwrap() {
        let (start, end) = (ns(&wait["start_ns"]), ns(&wait["end_ns"]));
        let inside = |line: &&str| {
            let times: Vec<i64> = line.split(',').filter_map(|cell| cell.parse().ok()).collect();
            times.len() == 2 && start <= times[0] && times[1] <= end
        };
        for line in waits.lines().filter(inside) {
            assert!(
                line.ends_with(if wait["is_busy"] == true { ",true" } else { ",false" }),
                "{line}: {wait}"
            );
            waits_count += 1;
        }
    }
    assert_eq!(waits_count, 12);
    assert_eq!(stdout(&["sql", &out, "SELECT count(*) AS n FROM data_quality"]), "n\n0\n");
}

#[test]
fn real_profiles_are_put_on_the_clock_of_their_runs() {
    check_pair("aligned", 1057);
    check_pair("aligned-full", 1051);
    check_pair("aligned-light", 105);
}

#[test]
fn waits_are_told_with_what_the_gpu_did() {
    let directory = tempfile::tempdir().unwrap();
    let (_, out) = aligned(&profile(), directory.path());
    let sums = "SELECT sum(profiled_count) > 0 AND sum(profiled_count) < sum(calls_count) AND \
        sum(profiled_ns) = sum(device_busy_ns) + sum(device_idle_ns) + sum(return_ns) AS adds_up FROM sync_waits";
    assert_eq!(stdout(&["sql", &out, sums]), "adds_up\ntrue\n");
    // Those of streams wait for a copy, the one of the device for nothing.
    let covered = "SELECT op, profiled_count - covered_count AS uncovered_count FROM sync_waits ORDER BY op";
    assert_eq!(
        stdout(&["sql", &out, covered]),
        "op,uncovered_count\ncudaDeviceSynchronize,1\ncudaStreamSynchronize,0\n"
    );
    let before = "SELECT sum(profiled_count) AS n, count(device_busy_ns) AS known FROM sync_waits";
    assert_eq!(stdout(&["sql", &run(), before]), "n,known\n0,0\n");
    assert!(stdout(&["queries", "launch_gaps", &out]).lines().count() > 1_000);
}

#[test]
fn threads_of_a_container_are_found_by_their_calls() {
    let directory = tempfile::tempdir().unwrap();
    let text = profile_text().replace("\"pid\": 586, \"tid\": 586", "\"pid\": 1, \"tid\": 41");
    let file = directory.path().join("contained.json");
    fs::write(&file, text).unwrap();
    let (outcome, out) = aligned(file.to_str().unwrap(), directory.path());
    check_clock(&outcome["alignment"]);
    assert_eq!(outcome["alignment"]["pids"], serde_json::json!([586]));
    let strangers = "SELECT count(*) AS n FROM events WHERE pid = 1 OR tid = 41";
    assert_eq!(stdout(&["sql", &out, strangers]), "n\n0\n");
}

#[test]
fn what_does_not_fit_is_refused() {
    // Another run of the same program, with the same calls in the same order.
    not_aligned(&testdata("h200/qwen2-quiet.parquet"), &profile(), 3, "inconclusive");
    for (run, profile) in
        [("aligned", "aligned-full"), ("aligned-full", "aligned"), ("aligned", "aligned-light")]
    {
        let file = |name: &str, ending: &str| testdata(&format!("align/{name}.{ending}"));
        not_aligned(&file(run, "parquet"), &file(profile, "kineto.json.gz"), 3, "inconclusive");
    }
    // Other programs, and a trace with no calls at all.
    not_aligned(&testdata("h200/graphs.parquet"), &profile(), 3, "inconclusive");
    not_aligned(&run(), &testdata("kineto/small.json.gz"), 3, "inconclusive");
    not_aligned(&run(), &testdata("snapshots/small.p0.pickle"), 3, "no function in common");
    not_aligned(&run(), "absent.json", 2, "absent.json");
    let both = testdata("courtroom/vm");
    not_aligned(&both, &profile(), 2, "one is needed");
}

#[test]
fn a_profile_of_another_day_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let text = profile_text();
    let base = text.split("\"baseTimeNanoseconds\": ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    let later = (base.parse::<i64>().unwrap() + 3_600_000_000_000).to_string();
    let file = directory.path().join("later.json");
    fs::write(&file, text.replace(&base, &later)).unwrap();
    not_aligned(&run(), file.to_str().unwrap(), 3, "by the time of day");
}

#[test]
fn a_run_has_one_profile_of_a_process_and_is_never_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let (_, out) = aligned(&profile(), directory.path());
    not_aligned(&out, &profile(), 2, "already");
    let copy = directory.path().join("copy.parquet").to_str().unwrap().to_owned();
    fs::copy(run(), &copy).unwrap();
    let output = analyze(&["align", &copy, &profile(), "--out", &copy, "--force"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(&copy).unwrap(), fs::read(run()).unwrap());
    let output = analyze(&["align", &run(), &profile(), "--out", &out]);
    assert_eq!(output.status.code(), Some(2), "it exists");
}

#[test]
fn runs_of_several_hosts_are_on_the_clock_of_the_wall() {
    let (a, b) = (testdata("h200/shared.parquet"), testdata("h200/nccl.parquet"));
    let query = "SELECT run, count(*) AS n, min(wall_ns) > 1700000000000000000 AS is_unix, max(wall_error_ns) < 1000000 \
        AS is_near FROM wall_ops GROUP BY run ORDER BY run";
    let answer = stdout(&["sql", &a, &b, query]);
    assert_eq!(answer.lines().filter(|line| line.ends_with("true,true")).count(), 2, "{answer}");
}
