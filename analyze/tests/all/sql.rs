//! `analyze sql` as users meet it: what it says of answers that hold nothing, and of queries that are wrong.

use std::{fs, path::Path, process::Output};

use super::support::{analyze, import_as, run, testdata};

fn sql(args: &[&str]) -> Output {
    analyze(&[&["sql"], args].concat())
}

/// What standard error has about a query that is answered.
fn said(file: &str, query: &str) -> String {
    let output = sql(&[file, query]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{query}: {said}");
    said
}

#[test]
fn an_empty_answer_names_what_would_have_filled_it() {
    let compile = run("compile");
    let device = "note: no events of kind device here. They come from `analyze import`: kineto, nsys. `capture` does not look into the GPU.\n";
    assert_eq!(said(&compile, "SELECT * FROM device_work"), device);
    assert_eq!(said(&compile, "SELECT count(*), sum(dur) FROM device_work"), device);
    assert_eq!(said(&compile, "SELECT histogram(dur) FROM device_work"), device);
    // A view over a view, with a probe that was there; one that was not; a name that does not exist.
    let nccl = "note: no calls of layer nccl here. compile: a probe was placed, and nothing was called\n";
    assert_eq!(said(&compile, "SELECT * FROM nccl_volume"), nccl);
    assert_eq!(
        said(&compile, "SELECT * FROM ops WHERE op = 'cudaLaunchKernel'"),
        "note: no calls of cudaLaunchKernel here. compile: not probed with --profile default: `capture probes` says which profile does\n"
    );
    assert_eq!(
        said(&compile, "SELECT * FROM ops WHERE op = 'cudaMallocc'"),
        "note: no events with op cudaMallocc here; perhaps cudaMalloc, cudaMallocAsync, cudaMallocPitch; `analyze info` lists what there is\n"
    );
    // Some are older than the record of the profile. Runs of one reason are told together.
    let all = Path::new(&compile).parent().unwrap().to_str().unwrap().to_owned();
    let note = said(&all, "SELECT * FROM ops WHERE op = 'cudaEventQuery'");
    assert!(
        note.contains(
            " more: not probed; compile, graphs, malloc_async and 3 more: not probed with --profile default"
        ),
        "{note}"
    );
    assert!(
        said(&compile, "SELECT * FROM stacks")
            .contains("no events with op stack here. They come from `capture`: kernels")
    );
    assert!(
        said(&compile, "SELECT * FROM events WHERE kind = 'cal'")
            .contains("there is no kind cal; kinds are call, alloc")
    );
}

#[test]
fn an_answer_that_is_empty_for_other_reasons_has_no_note() {
    let compile = run("compile");
    for query in [
        "SELECT * FROM ops WHERE dur > 1000000000000",
        "SELECT * FROM ops WHERE op IN ('cudaMallocc', 'cudaMalloc') AND dur < 0",
        "SELECT * FROM ops WHERE NOT op = 'cudaLaunchKernel' AND dur < 0",
        "SELECT * FROM memory_ooms",
        "SELECT * FROM lost",
        "SELECT o.op FROM ops o LEFT JOIN device_work d ON d.call_ts = o.ts WHERE o.dur < 0",
        "SELECT count(*) FROM ops",
        "SELECT 0",
    ] {
        assert_eq!(said(&compile, query), "", "{query}");
    }
}

/// A line of progress is for terminals, however long the work.
#[test]
fn nothing_is_said_of_long_work_in_a_pipe() {
    let query = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)";
    let output = sql(&["--timeout", "1500ms", &run("compile"), query]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "analyze: the query took longer than 1.50 s (--timeout)\n");
}

/// A join of all with all, of which hours pass before the first row.
#[test]
fn a_query_ends_in_time_though_it_makes_no_row() {
    let numbers = "generate_series(1, 5000000)";
    let query = format!("SELECT count(*) FROM {numbers} a(x) JOIN {numbers} b(y) ON x * y % 7 = 9");
    let output = sql(&["--timeout", "1s", &run("compile"), &query]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "analyze: the query took longer than 1.00 s (--timeout)\n");
}

#[test]
fn imported_runs_say_what_their_source_lacks() {
    let snapshots = testdata("snapshots");
    let mut pickles: Vec<_> = fs::read_dir(snapshots).unwrap().flatten().map(|file| file.path()).collect();
    pickles.retain(|path| path.to_str().unwrap().contains(".pickle"));
    pickles.sort();
    let (_kept, out) = &import_as("torch-snapshot", &pickles[0]);
    let note = said(out, "SELECT * FROM slow_calls");
    assert!(
        note.starts_with("note: no events of kind call here. They come from `capture`, by its probes"),
        "{note}"
    );
    let both = said(out, "SELECT * FROM chain_links");
    assert!(both.contains("kind call") && both.contains("kind off_cpu"), "{both}");
}

#[test]
fn lists_are_text_in_csv() {
    let query = "SELECT interval_union(ts, dur) AS busy, NULL AS nothing FROM (VALUES (0, 5), (9, NULL)) AS spans (ts, dur)";
    let output = sql(&["--format", "csv", &run("compile"), query]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "busy,nothing\n\"[{ts: 0, dur: 5}, {ts: 9, dur: null}]\",\n");
}

#[test]
fn a_query_that_cannot_be_run_leaves_its_file_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept.csv");
    fs::write(&path, "kept").unwrap();
    let out = path.to_str().unwrap();
    for (query, reason) in [
        ("SELECT op FROM opps", "there is no table or view opps"),
        ("SELECT op FROM ops WHERE op = 3 + 'a'", "Cannot coerce"),
    ] {
        let output = sql(&["--out", out, "--force", &run("compile"), query]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(reason) && output.stdout.is_empty(), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
}
