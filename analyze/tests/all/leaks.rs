//! `analyze leaks` and `analyze alerts` on runs recorded on an H200, and on bad input.

use std::{collections::HashSet, fs, path::Path};

use serde_json::Value;

use super::support::{json, outcome, rows, runs_in, stdout, testdata, truth};

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

/// Runs of a leaking job, with what it wrote down.
const LEAKS: [&str; 3] = ["memory/leak", "leaks/leak-10", "leaks/leak-12"];

#[test]
fn a_leak_is_found_with_its_blocks() {
    for name in LEAKS {
        let run = testdata(&format!("{name}.parquet"));
        let state = truth(&format!("{name}.state.json"));
        let truth: HashSet<i64> =
            state["leak"]["blocks"].as_array().unwrap().iter().map(|block| number(&block[0])).collect();
        for options in [&[][..], &["--epochs", "epoch 7"], &["--epochs", "allocations"]] {
            let words = [&["leaks", &run, "--json"], options].concat();
            let growth = &json(&words)["allocators"][0];
            assert_eq!(growth["verdict"], "leak", "{words:?}");
            let site = &growth["sites"][0];
            assert_eq!((&site["is_leak"], &growth["sites"][1]["is_leak"]), (&true.into(), &false.into()));
            let examples = site["examples"].as_array().unwrap();
            assert!(
                examples.len() == 3 && examples.iter().all(|block| truth.contains(&number(&block["addr"])))
            );
            // What it leaked in the warm-up is not judged.
            let found = number(&site["blocks_count"]) + number(&site["young_count"]);
            assert!(found as usize >= truth.len() * 8 / 10, "{words:?}: {found} of {}", truth.len());
        }
    }
}

/// By marks of another name there are no epochs to speak of, and so no verdict.
#[test]
fn too_few_epochs_are_inconclusive() {
    let growth = json(&["leaks", &testdata("memory/leak.parquet"), "--json", "--epochs", "start"]);
    let growth = &growth["allocators"][0];
    assert_eq!(growth["verdict"], "inconclusive");
    let reasons = growth["reasons"].to_string();
    assert!(reasons.contains("0 epochs are too few"), "{reasons}");
}

#[test]
fn no_other_run_leaks_and_every_account_adds_up() {
    // `mixed-7gb` adds more than it removes in every step, until memory is out; `crowded` keeps all there is.
    let leaking = ["leak", "leak-10", "leak-12", "mixed-7gb", "mixed-7gb-expandable", "crowded"];
    let mut compared = 0;
    for run in runs_in(&["memory", "h200", "leaks"]) {
        let stem = Path::new(&run).file_stem().unwrap().to_str().unwrap();
        for growth in json(&["leaks", &run, "--json"])["allocators"].as_array().unwrap() {
            assert_eq!(growth["verdict"] == "leak", leaking.contains(&stem), "{run}: {}", growth["verdict"]);
            let account = &growth["account"];
            let bytes = |name: &str| number(&account[name]);
            let sum = bytes("before_bytes") - bytes("given_back_bytes")
                + bytes("leaked_bytes")
                + bytes("kept_once_bytes")
                + bytes("young_bytes");
            assert_eq!(sum, bytes("after_bytes"), "{run}");
            assert_eq!(bytes("not_attributed_bytes"), 0, "{run}");
            let points = growth["points"].as_array().unwrap();
            assert_eq!(points.last().map_or(0, |point| number(&point["live_bytes"])), sum, "{run}");
            let warm_up = growth["warm_up_count"].as_u64().unwrap() as usize;
            assert_eq!(number(&points[warm_up]["live_bytes"]), bytes("before_bytes"), "{run}");
            let survived: i64 = points.iter().map(|point| number(&point["survived_bytes"])).sum();
            assert_eq!(survived, sum, "{run}");
            let of = |part: &str, name: &str| -> i64 {
                growth[part].as_array().unwrap().iter().map(|one| number(&one[name])).sum()
            };
            assert_eq!(
                of("sites", "blocks_bytes"),
                bytes("leaked_bytes") + bytes("kept_once_bytes"),
                "{run}"
            );
            let recent = bytes("leaked_bytes") + bytes("kept_once_bytes") + bytes("young_bytes");
            assert_eq!((of("ages", "bytes"), of("sizes", "bytes")), (recent, recent), "{run}");
            compared += 1;
        }
    }
    assert!(compared >= 28, "{compared} allocators");
}

#[test]
fn views_are_what_the_command_says() {
    let run = testdata("memory/leak.parquet");
    let growth = &json(&["leaks", &run, "--json"])["allocators"][0];
    let leaks = rows(&run, "SELECT * FROM leaks");
    assert_eq!((leaks.len(), &leaks[0]["verdict"]), (1, &growth["verdict"]));
    assert_eq!(leaks[0]["leaked_bytes"], growth["account"]["leaked_bytes"]);
    let sites = rows(&run, "SELECT * FROM leak_sites ORDER BY is_leak DESC");
    assert_eq!(sites[0]["blocks_count"], growth["sites"][0]["blocks_count"]);
    assert_eq!(sites[0]["addr"], growth["sites"][0]["examples"][0]["addr"]);
    assert!(sites[0]["frames"].as_str().unwrap().contains("empty_cuda"));
    let epochs = rows(&run, "SELECT * FROM memory_epochs ORDER BY epoch");
    assert_eq!(epochs.len(), growth["points"].as_array().unwrap().len());
    assert_eq!(epochs[40]["live_bytes"], growth["account"]["after_bytes"]);
}

#[test]
fn people_read_verdict_account_and_sites() {
    let out = stdout(&["leaks", &testdata("memory/leak.parquet"), "--top", "1"]);
    for expected in ["device 0: leak", "40 epochs (ranges \"epoch #\")", "+ leaked", "1 of 2"] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert!(!out.contains("#2"), "{out}");
}

/// A job that keeps all there is until memory is out, and is emptied at the end, looks like a leak.
#[test]
fn the_answer_has_the_reservations_of_the_report() {
    let run = testdata("memory/crowded.parquet");
    let out = stdout(&["leaks", &run]);
    let line = out.lines().find(|line| line.contains(" were retained over ")).unwrap();
    for said in ["the program marks none", "freed after the last epoch", "Memory ran out"] {
        assert!(line.contains(said), "{said}: {out}");
    }
    let report = stdout(&["report", &run, "--markdown"]);
    assert!(report.contains(line.trim_start_matches("- ")), "{line}: {report}");
    let growth = &json(&["leaks", &run, "--json"])["allocators"][0];
    let curve = rows(&run, "SELECT allocated_bytes FROM memory_curve ORDER BY ts DESC LIMIT 1");
    assert_eq!(growth["end_bytes"], curve[0]["allocated_bytes"]);
    assert_eq!(number(&growth["failed_count"]), 2);
}

/// A snapshot allows no verdict; the blocks in it are listed by site all the same.
#[test]
fn what_is_live_in_a_snapshot_is_listed_by_site() {
    let state = "SELECT count(*) AS n, sum(value) AS bytes FROM events WHERE op = 'state_block' AND detail = 'active_allocated'";
    for (name, innermost) in [
        ("snapshots/mixed-7gb", "<module> (/job/wl2.py:17)"),
        ("snapshots/tail", "<module> (/job/wl2.py:17)"),
        ("memory/history.snapshot", "buffer ("),
    ] {
        let run = testdata(&format!("{name}.pickle.gz"));
        let growth = &json(&["leaks", &run, "--json"])["allocators"][0];
        assert_eq!(growth["verdict"], "inconclusive", "{name}");
        let sites = growth["live_sites"].as_array().unwrap();
        let of = |field: &str| -> Vec<i64> { sites.iter().map(|site| number(&site[field])).collect() };
        let state = &rows(&run, state)[0];
        assert_eq!(of("blocks_count").iter().sum::<i64>(), number(&state["n"]), "{name}");
        assert_eq!(of("blocks_bytes").iter().sum::<i64>(), number(&state["bytes"]), "{name}");
        assert_eq!(growth["end_bytes"], state["bytes"], "{name}");
        assert!(of("blocks_bytes").is_sorted_by(|a, b| a >= b), "{name}: {sites:?}");
        let out = stdout(&["leaks", &run]);
        assert!(out.contains("live at the end of the run, by site"), "{name}: {out}");
        assert!(out.contains(&format!("allocated by {innermost}")), "{name}: {out}");
    }
    // Where there is a verdict, its sites are the answer.
    let growth = &json(&["leaks", &testdata("memory/leak.parquet"), "--json"])["allocators"][0];
    assert_eq!(growth["live_sites"], Value::Array(Vec::new()));
}

#[test]
fn without_an_allocator_there_is_nothing_to_judge() {
    let run = testdata("courtroom/vm/nothing.parquet");
    let out = stdout(&["leaks", &run]);
    assert!(out.contains("allocations from the driver by other allocators: none"), "{out}");
    assert!(!out.contains("PyTorch"), "{out}");
    assert_eq!(json(&["leaks", &run, "--json"])["allocators"], Value::Array(Vec::new()));
    let (code, out, err) = outcome(&["alerts", &run]);
    assert!(code == 3 && out.starts_with("no GPU was read"), "{code} {out}");
    assert!(err.starts_with("analyze: inconclusive: no GPU was read"), "{err}");
}

#[test]
fn bad_input_is_refused() {
    let run = testdata("memory/leak.parquet");
    for (words, expected) in [
        (&["leaks", &run, "--epochs", "no'such"][..], "has no marks"),
        (&["leaks", "no-such-file.parquet"], "no-such-file.parquet"),
        (&["alerts", &run, "--over", "101%"], "neither a part"),
        (&["alerts", &run, "--over", "90"], "neither a part"),
        (&["alerts", &run, "--for", "long"], "is not a time"),
    ] {
        let (code, out, err) = outcome(words);
        assert!(code == 2 && out.is_empty() && err.contains(expected), "{words:?}: {code} {err}");
    }
    let bytes = fs::read(&run).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let broken = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cut = broken("cut.parquet", &bytes[..bytes.len() / 2]);
    let mut damaged = bytes.clone();
    damaged[1000..20_000].fill(0xff);
    let damaged = broken("damaged.parquet", &damaged);
    for path in [cut, damaged] {
        for verb in ["leaks", "alerts"] {
            let (code, _, err) = outcome(&[verb, &path]);
            assert!(code == 2 && Path::new(&path).exists(), "{verb} {path}: {code} {err}");
        }
    }
}

#[test]
fn time_over_a_threshold_is_that_of_the_readings() {
    let run = testdata("memory/leak.parquet");
    let (code, alerts, err) = outcome(&["alerts", &run, "--over", "300MiB", "--for", "200ms", "--json"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.starts_with("analyze: alert: GPU 0, in use; process "), "{err}");
    let alerts: Value = serde_json::from_str(&alerts).unwrap();
    let (device, allocator) = (&alerts["alerts"][0], &alerts["alerts"][1]);
    assert_eq!((&device["verdict"], &allocator["verdict"]), (&"alert".into(), &"alert".into()));
    // The first reading over it, and the first after that which is not.
    let used = rows(&run, "SELECT ts, used_bytes FROM memory_use ORDER BY ts");
    let over = |row: &&Value| number(&row["used_bytes"]) > 300 << 20;
    let first = number(&used.iter().find(over).unwrap()["ts"]);
    let last = used.iter().rfind(over).unwrap();
    let next = used.iter().find(|row| number(&row["ts"]) > number(&last["ts"])).unwrap();
    let span = &device["spans"][0];
    assert_eq!((number(&span["ts_ns"]), number(&span["dur_ns"])), (first, number(&next["ts"]) - first));
    // What is reserved is known at every instant.
    let curve = rows(&run, "SELECT min(ts) AS ts FROM memory_curve WHERE reserved_bytes > 314572800");
    assert_eq!(allocator["spans"][0]["ts_ns"], curve[0]["ts"]);
    let out = stdout(&["alerts", &run, "--over", "90%", "--for", "5m"]);
    assert!(out.contains("GPU 0, in use: no alert"), "{out}");
}
