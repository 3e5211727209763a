//! Runs cut, joined and checked: rows are compared as they come out of SQL.

use std::{
    fs,
    path::{Path, PathBuf},
};

use analyze_run::{reading::plain, run_file};
use serde_json::json;
use trace_schema::ProcessInfo;

use super::support::{import_rows, path, provenance, refused, rows as answer, runs_in, stdout, testdata};

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

/// A run whose process has a password among its arguments, in the metadata and in a row.
fn with_secrets(directory: &Path) -> String {
    let exec = |ts: i64, detail: &str| json!({"ts": ts, "kind": "process", "op": "exec", "pid": 7, "tid": 7, "detail": detail});
    let rows = vec![
        exec(10, "sh -c run"),
        exec(20, "/opt/train --password two words --lr 1 https://me:hunter2@host/x"),
        json!({"ts": 30, "kind": "process", "op": "library", "pid": 7, "tid": 7, "detail": "/lib/libcuda.so.1"}),
        json!({"ts": 40, "dur": 5, "kind": "call", "op": "cudaFree", "pid": 7, "tid": 7}),
    ];
    let bare = import_rows(directory, "bare", rows);
    let file = run_file::open(Path::new(&bare)).unwrap();
    let mut run = file.run.clone();
    let command = ["/opt/train", "--password", "two words", "--lr", "1", "https://me:hunter2@host/x"]
        .map(str::to_owned);
    run.command = command.to_vec();
    run.processes = vec![ProcessInfo { pid: 7, command: command.to_vec(), ..ProcessInfo::default() }];
    let out = directory.join("secrets.parquet");
    trace_writer::write(&out, false, plain::batches(file.paths, None), || run).unwrap();
    path(&out).to_owned()
}

#[test]
fn a_slice_without_secrets_has_them_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let run = with_secrets(directory.path());
    let out = directory.path().join("slice.parquet");
    let details = "SELECT detail FROM events WHERE kind = 'process' ORDER BY ts";
    let sliced = |flags: &[&str]| {
        slice(&run, &out, &[flags, &["--force"]].concat());
        let details = answer(path(&out), details);
        let said = provenance(path(&out));
        let details: Vec<String> =
            details.iter().map(|row| row["detail"].as_str().unwrap().to_owned()).collect();
        (details, said)
    };
    let (details, said) = sliced(&["--redact"]);
    let shown = "/opt/train --password [redacted] --lr 1 https://me:[redacted]@host/x";
    assert_eq!(details, ["sh -c run", shown, "/lib/libcuda.so.1"]);
    let words =
        json!(["/opt/train", "--password", "[redacted]", "--lr", "1", "https://me:[redacted]@host/x"]);
    assert_eq!((&said["command"], &said["processes"][0]["command"]), (&words, &words));
    assert_eq!(said["redacted"], json!(["secrets"]));
    let bytes = fs::read(&out).unwrap();
    for secret in ["hunter2", "two words"] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
    }
    assert!(stdout(&["info", path(&out)]).contains("command lines: secrets"));

    let (details, said) = sliced(&["--redact", "all"]);
    assert_eq!(details, ["sh [redacted]", "train [redacted]", "/lib/libcuda.so.1"]);
    assert_eq!(said["command"], json!(["train", "[redacted]"]));

    let (details, _) = sliced(&["--redact", "text:run"]);
    assert_eq!(details[0], "sh -c [redacted]");

    let (details, said) = sliced(&[]);
    assert!(details[1].contains("hunter2") && said["redacted"].is_null(), "{details:?} {said}");
    let why = refused(&["slice", &run, "--redact", "some", "--out", path(&out), "--force"]);
    assert!(why.contains("is not one of secrets, all, text:TEXT, off"), "{why}");
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
    let shared = testdata("h200/shared.parquet");
    let pids = stdout(&["sql", &shared, "SELECT pid FROM ops GROUP BY pid ORDER BY pid LIMIT 1"]);
    let why = refused(&["slice", &shared, "--pid", "1", "--out", path(&out)]);
    let pid = pids.lines().nth(1).unwrap();
    assert!(why.contains("no events of process 1; it has those of ") && why.contains(pid), "{why}");
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
    for run in runs_in(&["h200", "memory"]) {
        if fs::metadata(&run).unwrap().len() < 1 << 19 {
            stdout(&["verify", &run]);
            runs += 1;
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
