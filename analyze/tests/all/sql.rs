//! `analyze sql` as users meet it: what it says of answers that hold nothing, and of queries that are wrong.

use std::{fs, path::Path};

use arrow::{datatypes::DataType, ipc::reader::StreamReader, json::LineDelimitedWriter};

use super::support::{analyze, import_as, outcome, refused, run, stdout, testdata};

/// What standard error has about a query that is answered.
fn said(file: &str, query: &str) -> String {
    let (code, _, said) = outcome(&["sql", file, query]);
    assert_eq!(code, 0, "{query}: {said}");
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
    // Kernels may have been launched: only launches of graphs are probed.
    let light = testdata("align/aligned-light.parquet");
    for query in ["SELECT * FROM launch_gaps", "SELECT * FROM launch_rate"] {
        assert_eq!(
            said(&light, query),
            "note: no calls of class launch here. aligned-light: a probe was placed, and nothing was called; not probed with \
            --profile light: cudaLaunchKernel, cudaLaunchKernelExC, cudaLaunchCooperativeKernel and 3 more\n"
        );
    }
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
        // What an anti join excludes need not be there.
        "SELECT o.op FROM ops o LEFT ANTI JOIN device_work d ON d.call_ts = o.ts WHERE o.dur < 0",
        "SELECT o.op FROM device_work d RIGHT ANTI JOIN ops o ON d.call_ts = o.ts WHERE o.dur < 0",
        "SELECT o.op FROM ops o WHERE o.dur < 0 AND NOT EXISTS (SELECT 1 FROM device_work d WHERE d.call_ts = o.ts)",
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
    let said = refused(&["sql", "--timeout", "1500ms", &run("compile"), query]);
    assert_eq!(said, "analyze: the query took longer than 1.50 s (--timeout)\n");
}

/// A join of all with all, of which hours pass before the first row.
#[test]
fn a_query_ends_in_time_though_it_makes_no_row() {
    let numbers = "generate_series(1, 5000000)";
    let query = format!("SELECT count(*) FROM {numbers} a(x) JOIN {numbers} b(y) ON x * y % 7 = 9");
    let said = refused(&["sql", "--timeout", "1s", &run("compile"), &query]);
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
    // The kinds are there, and still nothing is proved: the source does not count what it loses.
    let (_kept_too, profile) = &import_as("kineto", testdata("kineto/small.json.gz"));
    let losses = "note: run: this source does not count the events it loses: absence of an event proves nothing; \
        `analyze info` lists what is not recorded\n";
    for query in ["SELECT * FROM slow_calls", "SELECT * FROM lost_events", "SELECT * FROM ops WHERE dur < 0"]
    {
        assert_eq!(said(profile, query), losses, "{query}");
    }
    assert_eq!(said(profile, "SELECT * FROM data_quality"), "");
}

#[test]
fn lists_are_text_in_csv() {
    let query = "SELECT interval_union(ts, dur) AS busy, NULL AS nothing FROM (VALUES (0, 5), (9, NULL)) AS spans (ts, dur)";
    let text = stdout(&["sql", "--format", "csv", &run("compile"), query]);
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
        let (code, text, said) = outcome(&["sql", "--out", out, "--force", &run("compile"), query]);
        assert!(code == 2 && said.contains(reason) && text.is_empty(), "{code}: {said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
}

/// Reads an Arrow IPC stream; returns whether its columns are plain, and its rows as lines of JSON.
fn arrow_rows(stream: &[u8]) -> (bool, String) {
    let reader = StreamReader::try_new(stream, None).unwrap();
    let is_plain = |ty: &DataType| !matches!(ty, DataType::Dictionary(..) | DataType::Utf8View);
    let all_plain = reader.schema().fields().iter().all(|field| is_plain(field.data_type()));
    let mut json = LineDelimitedWriter::new(Vec::new());
    for batch in reader {
        json.write(&batch.unwrap()).unwrap();
    }
    json.finish().unwrap();
    (all_plain, String::from_utf8(json.into_inner()).unwrap())
}

#[test]
fn an_arrow_stream_has_the_rows_of_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let (run, out) = (run("compile"), directory.path().join("answer.arrows"));
    for query in [
        "SELECT * FROM events",
        "SELECT op, array_agg(op) AS ops, named_struct('kind', kind, 'n', count(*)) AS s FROM events GROUP BY op, kind \
        ORDER BY op, kind",
        "SELECT op FROM ops WHERE op = 'none'",
        "SELECT a.op, b.op FROM ops a JOIN ops b ON a.ts = b.ts AND a.tid = b.tid AND a.op = b.op ORDER BY a.ts, a.op",
    ] {
        let wanted = stdout(&["sql", &run, query, "--format", "ndjson"]);
        let output = analyze(&["sql", &run, query, "--format", "arrow"]);
        assert_eq!(output.status.code(), Some(0), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        let wanted = (true, wanted);
        assert_eq!(arrow_rows(&output.stdout), wanted, "{query}");
        stdout(&["sql", &run, query, "--format", "arrow", "--force", "--out", out.to_str().unwrap()]);
        assert_eq!(arrow_rows(&fs::read(&out).unwrap()), wanted, "{query}, in a file");
    }
}
