//! Runs cut, joined and checked: rows are compared as they come out of SQL.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::support::{path, refused, stdout, testdata};

/// Every row, without the run's name, in an order that is the same for the same rows.
fn rows(run: &str) -> Vec<String> {
    let text = stdout(&["sql", run, "SELECT * FROM events"]);
    let mut rows: Vec<String> =
        text.lines().skip(1).map(|line| line.split_once(',').unwrap().1.to_owned()).collect();
    rows.sort_unstable();
    rows
}

fn slice(run: &str, out: &Path, flags: &[&str]) {
    let mut args = vec!["slice", run, "--out", path(out)];
    args.extend(flags);
    stdout(&args);
    stdout(&["verify", path(out)]);
}

#[test]
fn slices_and_merges_keep_every_row() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { directory.path().join(name) };
    for name in ["h200/shared", "memory/generate"] {
        let run = testdata(&format!("{name}.parquet"));
        let original = rows(&run);
        let (whole, early, late, again) =
            (file("w.parquet"), file("a.parquet"), file("b.parquet"), file("m.parquet"));
        slice(&run, &whole, &["--force"]);
        assert_eq!(rows(path(&whole)), original, "{name}: a slice of everything");
        // What the replay of the allocator says depends on the order of rows of one time.
        let curve = "SELECT * EXCEPT (run) FROM memory_curve ORDER BY pid, device, ts, action, active_bytes, reserved_bytes";
        let replayed = stdout(&["sql", &run, curve]);
        assert_eq!(stdout(&["sql", path(&whole), curve]), replayed);
        slice(&run, &early, &["--to", "2s", "--force"]);
        slice(&run, &late, &["--from", "2s", "--force"]);
        let names = stdout(&["sql", &run, "SELECT count(*) FROM events WHERE kind = 'name'"]);
        let names: usize = names.lines().nth(1).unwrap().parse().unwrap();
        let counts = (rows(path(&early)).len(), rows(path(&late)).len());
        assert!(counts.0 > names && counts.1 > names, "{name}: both have something: {counts:?}");
        assert_eq!(counts.0 + counts.1, original.len() + names, "{name}");
        stdout(&["merge", path(&late), path(&early), "--out", path(&again), "--force"]);
        assert_eq!(rows(path(&again)), original, "{name}: slices merged");
        assert_eq!(stdout(&["sql", path(&again), curve]), replayed);
        stdout(&["verify", path(&again)]);
        let info = stdout(&["info", path(&late)]);
        assert!(info.contains("a slice: what began before 2.00 s was left out"), "{info}");
    }
}

#[test]
fn a_slice_of_a_process_has_its_calls_only() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("p.parquet");
    let run = testdata("h200/shared.parquet");
    let pids = stdout(&["sql", &run, "SELECT pid FROM ops GROUP BY pid ORDER BY pid"]);
    let pid = pids.lines().nth(1).unwrap();
    assert!(pids.lines().count() > 2, "several processes");
    slice(&run, &out, &["--pid", pid]);
    let calls = "SELECT count(*), sum(dur) FROM ops WHERE pid = ";
    let query = format!("{calls}{pid}");
    assert_eq!(stdout(&["sql", path(&out), &query]), stdout(&["sql", &run, &query]));
    let others = format!("SELECT count(*) AS n FROM events WHERE pid NOT IN (0, {pid}) AND kind <> 'run'");
    assert_eq!(stdout(&["sql", path(&out), &others]), "n\n0\n");
    assert!(
        stdout(&["sql", path(&out), "SELECT count(*) > 0 AS found FROM samples WHERE pid IS NULL"])
            .contains("true")
    );
}

#[test]
fn what_cannot_be_merged_or_cut_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("x.parquet");
    let run = testdata("memory/pause.parquet");
    let why = refused(&["merge", &run, &run, "--out", path(&out)]);
    assert!(why.contains("has rows of the same time"), "{why}");
    let why = refused(&["slice", &run, "--from", "2s", "--to", "1s", "--out", path(&out)]);
    assert!(why.contains("--from is not before --to"), "{why}");
    assert!(!out.exists());
    let copy = directory.path().join("copy.parquet");
    fs::copy(&run, &copy).unwrap();
    let why = refused(&["slice", path(&copy), "--out", path(&copy), "--force"]);
    assert!(why.contains("is an input"), "{why}");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&run).unwrap());
}

#[test]
fn every_trace_is_whole_and_a_broken_one_is_not() {
    let mut runs = 0;
    for directory in ["h200", "memory"] {
        for file in fs::read_dir(testdata(directory)).unwrap().flatten() {
            let run = file.path();
            let is_small = file.metadata().unwrap().len() < 1 << 19;
            if run.extension().is_some_and(|extension| extension == "parquet") && is_small {
                stdout(&["verify", path(&run)]);
                runs += 1;
            }
        }
    }
    assert!(runs >= 20, "{runs} traces");
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("broken.parquet");
    let mut bytes = fs::read(testdata("memory/pause.parquet")).unwrap();
    let half = bytes.len() / 2;
    bytes[100..half].fill(0xff);
    fs::write(&broken, &bytes).unwrap();
    assert!(refused(&["verify", path(&broken)]).contains("broken.parquet"));
    fs::write(&broken, &bytes[..half]).unwrap();
    assert!(refused(&["verify", path(&broken)]).contains("cut off"));
}

#[test]
fn head_shows_the_first_rows() {
    let run = testdata("h200/nccl.parquet");
    let shown = stdout(&["head", &run, "-n", "3", "--kind", "call", "--format", "csv"]);
    let expected = stdout(&[
        "sql",
        &run,
        "SELECT ts, dur, kind, op FROM events WHERE kind = 'call' ORDER BY ts LIMIT 3",
    ]);
    assert_eq!(shown.lines().count(), 4);
    assert!(shown.starts_with("ts,dur,kind,op,pid,tid,"), "{shown}");
    for (shown, expected) in shown.lines().zip(expected.lines()) {
        assert!(shown.starts_with(expected), "{shown} {expected}");
    }
    assert!(refused(&["head", &run, "--kind", "calls"]).contains("one of call"));
}
