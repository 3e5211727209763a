//! The report in all of its forms: that they say what SQL says, fit, and stay inert. `page.py` drives the pages in a browser.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};

fn testdata(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name).to_str().unwrap().to_owned()
}

fn analyze(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_analyze")).args(args).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = analyze(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn run(name: &str) -> String {
    testdata(&format!("h200/{name}.parquet"))
}

#[test]
fn reports_are_whole_and_inert() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["qwen2-hogs", "mixed-7gb"] {
        let page = directory.path().join(format!("{name}.html"));
        stdout(&["report", &run(name), "--html", page.to_str().unwrap()]);
        let html = fs::read_to_string(&page).unwrap();
        for section in ["causes", "functions", "chains", "gaps", "memory", "timeline", "strata", "provenance"]
        {
            assert!(html.contains(&format!("<section id=\"{section}\">")), "{name}: {section}");
        }
        assert!(
            !html.contains("http://")
                || html.matches("http://").count() == html.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!html.contains("https://") && !html.contains(" src=") && !html.contains("@import"));
        assert_eq!(html.matches("<script").count(), 2, "its own, and its data");
        assert!(html.len() < 5 << 20);
        let again = analyze(&["report", &run(name), "--html", page.to_str().unwrap()]);
        assert_eq!(again.status.code(), Some(2), "nothing is overwritten without --force");
    }
}

fn sql(run: &str, query: &str) -> Value {
    let rows: Value = serde_json::from_str(&stdout(&["sql", run, query, "--format", "json"])).unwrap();
    rows[0].clone()
}

#[test]
fn its_figures_are_those_of_sql() {
    for run in
        [run("qwen2-hogs"), run("nccl"), testdata("memory/crowded.parquet"), testdata("memory/leak.parquet")]
    {
        let report: Value = serde_json::from_str(&stdout(&["report", &run, "--json"])).unwrap();
        assert_eq!(report["report_version"], 1);
        let gaps = sql(
            &run,
            "SELECT count(*) AS n, coalesce(sum(dur), 0) AS ns, coalesce(max(dur), 0) AS most FROM launch_gaps",
        );
        let found = &report["launch_gaps"];
        assert_eq!((&found["gaps_count"], &found["total_ns"]), (&gaps["n"], &gaps["ns"]), "{run}");
        let parts = found["parts_ns"].as_array().unwrap().iter().map(|part| part.as_i64().unwrap());
        assert_eq!(parts.sum::<i64>(), gaps["ns"].as_i64().unwrap(), "the parts are the whole");
        assert_eq!(found["longest"].get(0).map_or(json!(0), |gap| gap["dur_ns"].clone()), gaps["most"]);
        let slow = sql(
            &run,
            "SELECT count(*) AS n, coalesce(sum(excess_ns), 0.0) AS ns FROM slow_calls WHERE depth = 0",
        );
        assert_eq!(report["chains"]["overall_slow_count"], slow["n"], "{run}");
        let (found, expected) = (report["chains"]["overall_excess_ns"].as_f64(), slow["ns"].as_f64());
        let (found, expected) = (found.unwrap(), expected.unwrap());
        assert!((found - expected).abs() <= 1e-9 * expected, "{run}: {found} {expected}");
        let strata = sql(&run, "SELECT count(*) AS n, sum(calls_count) AS calls FROM op_summary");
        let lines = report["strata"].as_array().unwrap();
        assert_eq!(json!(lines.len()), strata["n"]);
        let calls = lines.iter().map(|line| line["calls_count"].as_i64().unwrap());
        assert_eq!(calls.sum::<i64>(), strata["calls"].as_i64().unwrap());
        let memory = &report["memory"];
        if memory.is_null() {
            assert_eq!(sql(&run, "SELECT count(*) AS n FROM events WHERE kind = 'alloc'")["n"], 0, "{run}");
            continue;
        }
        let leaks = sql(&run, "SELECT sum(leaked_bytes) AS bytes, count(*) AS n FROM leaks");
        let growth = memory["growth"].as_array().unwrap();
        let leaked = growth.iter().map(|growth| growth["account"]["leaked_bytes"].as_i64().unwrap());
        assert_eq!(
            (json!(growth.len()), leaked.sum::<i64>()),
            (leaks["n"].clone(), leaks["bytes"].as_i64().unwrap())
        );
        let ooms = sql(&run, "SELECT count(*) AS n FROM memory_ooms");
        assert_eq!(json!(memory["review"]["history"]["ooms"].as_array().unwrap().len()), ooms["n"]);
    }
}

#[test]
fn the_query_behind_every_table_runs() {
    // One with memory, one with chains, culprits and alibis.
    for (name, count) in [("memory/crowded", 9), ("courtroom/vm/futex_convoy", 8)] {
        let run = testdata(&format!("{name}.parquet"));
        let markdown = stdout(&["report", &run, "--markdown"]);
        let queries = markdown.split("```sql\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        let queries: Vec<&str> = queries.collect();
        assert_eq!(queries.len(), count, "{name}: {queries:?}");
        for query in queries {
            stdout(&["sql", &run, query]);
        }
    }
}

#[test]
fn a_terminal_of_80_columns_holds_it() {
    for run in [
        run("qwen2-hogs"),
        run("nccl"),
        testdata("memory/crowded.parquet"),
        testdata("courtroom/vm/futex_convoy.parquet"),
    ] {
        let text = stdout(&["report", &run]);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{run}: {line}");
        }
        // This is no terminal.
        assert!(!text.contains('\u{1b}'), "colour");
        for question in [
            "Where did the lost time",
            "What happened in the slowest calls",
            "Where was the GPU's memory",
            "do they not show",
        ] {
            assert!(text.contains(question), "{run}: {question}");
        }
    }
}

/// A run of calls with names that try to be more than names.
fn hostile(folder: &Path, calls: usize) -> String {
    let name = "<img src=x onerror=alert(1)>|`[a](http://b)\u{202e}\u{1b}[31m\"'&";
    let mut rows = String::new();
    for call in 0..calls {
        let dur = if call % 20 == 19 { 1_000_000 } else { 1_000 };
        let row = json!({"ts": call * 10_000_000, "dur": dur, "kind": "call", "op": "cudaMalloc", "pid": 1, "tid": 1,
            "comm": name, "caller": name});
        rows += &format!("{row}\n");
        let mark = json!({"ts": call * 10_000_000, "dur": 2000, "kind": "mark", "op": "range", "pid": 1, "tid": 1, "detail": name});
        rows += &format!("{mark}\n");
    }
    let (text, run) = (folder.join("rows.ndjson"), folder.join("hostile.parquet"));
    fs::write(&text, rows).unwrap();
    stdout(&["import", "events", text.to_str().unwrap(), "--out", run.to_str().unwrap()]);
    run.to_str().unwrap().to_owned()
}

#[test]
fn names_are_only_names_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let run = hostile(folder.path(), 60);
    let figures = folder.path().join("figures");
    let page = folder.path().join("page.html");
    let (figures_path, page_path) = (figures.to_str().unwrap(), page.to_str().unwrap());
    stdout(&["report", &run, "--html", page_path, "--svg", figures_path]);
    let mut texts = vec![
        fs::read_to_string(&page).unwrap(),
        stdout(&["report", &run, "--markdown"]),
        stdout(&["report", &run]),
    ];
    let files: Vec<PathBuf> = fs::read_dir(&figures).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    texts.extend(files.iter().map(|file| fs::read_to_string(file).unwrap()));
    for (number, text) in texts.iter().enumerate() {
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "form {number}");
        // The terminal shows it as it is: it knows no elements.
        assert!(number == 2 || !text.contains("<img"), "form {number}");
    }
    assert!(texts[1].contains("&lt;img src=x"), "{}", texts[1]);
    assert!(!texts[1].contains("[a](http"), "no link");
    // Data for programs is as recorded.
    let data: Value = serde_json::from_str(&stdout(&["report", &run, "--json"])).unwrap();
    assert!(data["phases"][0]["phase"].as_str().unwrap().contains("<img src=x onerror=alert(1)>|`"));
}

#[test]
fn runs_with_next_to_nothing_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let one = hostile(folder.path(), 1);
    let empty = folder.path().join("empty.parquet");
    let empty = empty.to_str().unwrap();
    stdout(&["slice", &one, "--from", "1h", "--to", "2h", "--out", empty]);
    for run in [one.as_str(), empty] {
        let text = stdout(&["report", run]);
        assert!(text.contains("No slow call could be judged"), "{text}");
        assert!(text.contains("Memory: no event of PyTorch's allocator is on record"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        let markdown = stdout(&["report", run, "--markdown"]);
        assert!(markdown.contains("Not known: no event of PyTorch"), "{markdown}");
    }
}

#[test]
fn what_exists_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let run = hostile(folder.path(), 60);
    let figures = folder.path().join("figures");
    stdout(&["report", &run, "--svg", figures.to_str().unwrap()]);
    assert_eq!(analyze(&["report", &run, "--svg", figures.to_str().unwrap()]).status.code(), Some(2));
    stdout(&["report", &run, "--svg", figures.to_str().unwrap(), "--force"]);
    let two = analyze(&["report", &run, "--json", "--markdown"]);
    assert_eq!(two.status.code(), Some(2), "{}", String::from_utf8_lossy(&two.stderr));
    let itself = analyze(&["report", &run, "--html", &run, "--force"]);
    assert_eq!(itself.status.code(), Some(2), "a run is not overwritten by its report");
}
