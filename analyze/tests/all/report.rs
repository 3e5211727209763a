//! The report in all of its forms: that they say what SQL says, fit, and stay inert. `page.py` drives the pages in a browser.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::support::{self, analyze, import_as, import_rows, path, refused, run, stdout, testdata};

#[test]
fn reports_are_whole_and_inert() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["qwen2-hogs", "mixed-7gb"] {
        let page = directory.path().join(format!("{name}.html"));
        stdout(&["report", &run(name), "--html", page.to_str().unwrap()]);
        let html = fs::read_to_string(&page).unwrap();
        for section in [
            "causes",
            "functions",
            "chains",
            "gaps",
            "nccl",
            "memory",
            "timeline",
            "devices",
            "strata",
            "provenance",
        ] {
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

/// Everything of a report that SQL can say, too, in one query.
const FIGURES: &str = "SELECT \
    (SELECT count(*) FROM launch_gaps) AS gaps, \
    (SELECT coalesce(sum(dur), 0) FROM launch_gaps) AS gaps_ns, \
    (SELECT coalesce(max(dur), 0) FROM launch_gaps) AS longest_gap_ns, \
    (SELECT count(*) FROM (SELECT DISTINCT pid, tid FROM launch_gaps)) AS gap_threads, \
    (SELECT count(*) FROM slow_calls WHERE depth = 0) AS slow, \
    (SELECT coalesce(sum(excess_ns), 0.0) FROM slow_calls WHERE depth = 0) AS excess_ns, \
    (SELECT count(*) FROM op_summary) AS strata, \
    (SELECT coalesce(sum(calls_count), 0) FROM op_summary) AS calls, \
    (SELECT count(*) FROM phases) AS phases, \
    (SELECT count(DISTINCT tid) FROM op_time WHERE depth = 0) AS threads, \
    (SELECT coalesce(max(ns), 0) FROM (SELECT sum(dur) AS ns FROM op_time WHERE depth = 0 GROUP BY pid, tid)) AS busiest_ns, \
    (SELECT count(*) FROM samples WHERE device IS NOT NULL AND pid IS NULL) AS readings, \
    (SELECT coalesce(max(value), 0) FROM samples WHERE counter = 'gpu_busy_percent') AS busiest_percent, \
    (SELECT coalesce(max(value), 0) FROM samples WHERE counter = 'memory_used_bytes') AS most_used, \
    (SELECT coalesce(sum(calls_count), 0) FROM nccl_volume) AS nccl_calls, \
    (SELECT coalesce(sum(volume_bytes), 0) FROM nccl_volume) AS nccl_bytes, \
    (SELECT coalesce(sum(call_ns), 0) FROM nccl_volume) AS nccl_ns, \
    (SELECT count(*) FROM events WHERE kind = 'alloc') AS alloc";

/// Memory classes of a run. `$at`: when most was reserved.
const MEMORY: &str = "SELECT \
    (SELECT count(*) FROM memory_curve) AS events, \
    (SELECT max(reserved_bytes) FROM memory_curve) AS peak, \
    (SELECT sum(leaked_bytes) FROM leaks) AS leaked, \
    (SELECT count(*) FROM leaks) AS allocators, \
    (SELECT count(*) FROM memory_ooms) AS ooms, \
    (SELECT count(*) FROM memory_releases) AS releases, \
    (SELECT coalesce(sum(size_bytes), 0) FROM memory_requests) AS moved, \
    (SELECT count(*) FROM memory_segments WHERE ts < $at AND (dur IS NULL OR ts + dur >= $at)) AS segments, \
    (SELECT count(*) FROM memory_blocks WHERE state = 'active_allocated') AS lives, \
    (SELECT max(size_bytes) FROM memory_blocks WHERE state = 'active_allocated') AS largest";

/// Sum of a field of the members of an array.
fn sum(array: &Value, field: &str) -> i64 {
    array.as_array().unwrap().iter().map(|member| member[field].as_i64().unwrap()).sum()
}

fn most(array: &Value, field: &str) -> i64 {
    array.as_array().unwrap().iter().map(|member| member[field].as_i64().unwrap()).max().unwrap_or(0)
}

fn count(array: &Value) -> i64 {
    array.as_array().unwrap().len() as i64
}

/// Checks one run; whether it had counters, NCCL's calls, memory.
fn compare(run: &str) -> [bool; 3] {
    let report = support::json(&["report", run, "--json"]);
    assert_eq!(report["report_version"], 1);
    let sql = |query: &str| -> Value {
        let rows = support::json(&["sql", run, query, "--format", "json"]);
        rows[0].clone()
    };
    let found = sql(FIGURES);
    let is = |name: &str, value: i64| assert_eq!(json!(value), found[name], "{run}: {name}");
    let gaps = &report["launch_gaps"];
    is("gaps", gaps["gaps_count"].as_i64().unwrap());
    is("gaps_ns", gaps["total_ns"].as_i64().unwrap());
    is("gaps_ns", gaps["parts_ns"].as_array().unwrap().iter().filter_map(Value::as_i64).sum());
    is("longest_gap_ns", most(&gaps["longest"], "dur_ns"));
    is("gap_threads", gaps["threads_count"].as_i64().unwrap());
    is("slow", report["chains"]["overall_slow_count"].as_i64().unwrap());
    let excess =
        (report["chains"]["overall_excess_ns"].as_f64().unwrap(), found["excess_ns"].as_f64().unwrap());
    assert!((excess.0 - excess.1).abs() <= 1e-9 * excess.1, "{run}: {excess:?}");
    is("strata", count(&report["strata"]));
    is("calls", sum(&report["strata"], "calls_count"));
    is("phases", count(&report["phases"]));
    is("threads", report["timeline"]["threads_count"].as_i64().unwrap());
    is("busiest_ns", most(&report["timeline"]["lanes"], "calls_ns"));
    let counters: Value = report["devices"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|of| of["counters"].as_array().unwrap())
        .cloned()
        .collect();
    is("readings", sum(&counters, "readings_count"));
    let counter = |name: &str| -> Value {
        counters.as_array().unwrap().iter().filter(|of| of["name"] == name).cloned().collect()
    };
    is("busiest_percent", most(&counter("gpu_busy_percent"), "most"));
    is("most_used", most(&counter("memory_used_bytes"), "most"));
    is("nccl_calls", sum(&report["nccl"], "calls_count"));
    is("nccl_bytes", sum(&report["nccl"], "volume_bytes"));
    is("nccl_ns", sum(&report["nccl"], "call_ns"));
    let memory = &report["memory"];
    let has = [count(&counters) > 0, count(&report["nccl"]) > 0, !memory.is_null()];
    if memory.is_null() {
        is("alloc", 0);
        return has;
    }
    let (review, growth) = (&memory["review"], &memory["growth"]);
    // That instant lies after the event that made it so.
    let found = sql(&MEMORY.replace("$at", &review["peak"]["ts_ns"].to_string()));
    let is = |name: &str, value: i64| assert_eq!(json!(value), found[name], "{run}: {name}");
    is("events", memory["curve"]["events_count"].as_i64().unwrap());
    if count(growth) == 1 {
        is("peak", memory["curve"]["peak_reserved_bytes"].as_i64().unwrap());
    }
    is(
        "leaked",
        growth.as_array().unwrap().iter().map(|of| of["account"]["leaked_bytes"].as_i64().unwrap()).sum(),
    );
    is("allocators", count(growth));
    is("ooms", count(&review["history"]["ooms"]));
    is("releases", count(&review["history"]["releases"]));
    is("moved", sum(&review["history"]["causes"], "size_bytes"));
    is("segments", memory["map"]["segments_count"].as_i64().unwrap());
    is("lives", memory["map"]["lives_count"].as_i64().unwrap());
    has
}

#[test]
fn its_figures_are_those_of_sql() {
    let of_gpus = ["nccl", "shared", "graphs", "malloc_async", "pluggable"].map(run);
    let others =
        ["courtroom/vm/futex_convoy", "align/aligned"].map(|name| testdata(&format!("{name}.parquet")));
    let mut has = [false; 3];
    for run in of_gpus.iter().chain(&others) {
        has.iter_mut().zip(compare(run)).for_each(|(any, one)| *any |= one);
    }
    assert_eq!(has, [true; 3], "counters, NCCL, memory");
}

#[test]
fn its_figures_of_memory_are_those_of_sql() {
    for name in ["crowded", "leak", "pause", "history", "streams-expandable", "graphs-memory"] {
        assert!(compare(&testdata(&format!("memory/{name}.parquet")))[2] || name == "pause", "{name}");
    }
}

#[test]
fn kernels_on_record_are_named() {
    let (_kept, profile) = &import_as("kineto", testdata("kineto/small.json.gz"));
    let report = support::json(&["report", profile, "--json"]);
    let sum = support::rows(
        profile,
        "SELECT count(*) AS runs_count, sum(dur) AS total_ns, count(DISTINCT detail) AS names_count FROM events \
         WHERE kind = 'device' AND op = 'kernel'",
    );
    for figure in ["runs_count", "total_ns", "names_count"] {
        assert_eq!(report["kernels"][figure], sum[0][figure], "{figure}");
    }
    let markdown = stdout(&["report", profile, "--markdown"]).replace('\\', "");
    for words in ["triton_poi_fused_0", "Most time of its 225 kernels", "What did the GPU run"] {
        assert!(markdown.contains(words), "{words}");
    }
    assert!(!markdown.contains("what the GPU did is not in the trace"));
    for query in markdown.split("```sql\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
        stdout(&["sql", profile, query]);
    }
    // A run without a profile has no such section.
    assert!(!stdout(&["report", &run("nccl"), "--markdown"]).contains("What did the GPU run"));
}

#[test]
fn a_chain_has_the_query_of_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let run = testdata("courtroom/vm/futex_convoy.parquet");
    stdout(&["report", &run, "--html", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    let queries = html.split("<summary>SQL of this call</summary><pre>").skip(1);
    let queries: Vec<String> =
        queries.map(|rest| rest.split("</pre>").next().unwrap().replace("&#39;", "'")).collect();
    assert!(queries.len() > 1, "{queries:?}");
    for query in [&queries[0], &queries[queries.len() - 1]] {
        let rows = support::json(&["sql", &run, query, "--format", "json"]);
        assert_eq!(rows.as_array().unwrap().len(), 1, "{query}");
    }
    // A culprit leads to chains that are there.
    let culprits = html.split("<section id=\"culprits\">").nth(1).unwrap();
    let culprits = culprits.split("</section>").next().unwrap();
    assert!(culprits.contains("href=\"#chain-1\"") && html.contains("<li id=\"chain-1\">"), "{culprits}");
}

#[test]
fn the_query_behind_every_table_runs() {
    // One with memory, one with chains, culprits and alibis.
    for (name, count) in [("memory/crowded", 11), ("h200/nccl", 20), ("courtroom/vm/futex_convoy", 9)] {
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
            "What caused the excess latency",
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
    let mut rows = Vec::new();
    for call in 0..calls {
        let dur = if call % 20 == 19 { 1_000_000 } else { 1_000 };
        rows.push(json!({"ts": call * 10_000_000, "dur": dur, "kind": "call", "op": "cudaMalloc", "pid": 1, "tid": 1,
            "comm": name, "caller": name}));
        rows.push(json!({"ts": call * 10_000_000, "dur": 2000, "kind": "mark", "op": "range", "pid": 1, "tid": 1, "detail": name}));
    }
    import_rows(folder, "hostile", rows)
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
    let data = support::json(&["report", &run, "--json"]);
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

fn call(ts: i64, dur: i64, op: &str, tid: i64) -> Value {
    json!({"ts": ts, "dur": dur, "kind": "call", "op": op, "pid": 1, "tid": tid, "comm": "python3"})
}

/// Every form of the report, which fit and say nothing that no number is.
fn forms(run: &str) -> String {
    let page = format!("{run}.html");
    stdout(&["report", run, "--html", &page, "--svg", &format!("{run}.figures")]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.len() < 5 << 20, "{run}: {} bytes", html.len());
    let (markdown, terminal) = (stdout(&["report", run, "--markdown"]), stdout(&["report", run]));
    for text in [&html, &markdown, &terminal] {
        assert!(!text.contains("NaN") && !text.contains("inf "), "{run}");
    }
    assert!(terminal.lines().all(|line| line.chars().count() <= 80), "{terminal}");
    terminal
}

#[test]
fn what_is_not_recorded_is_no_zero() {
    let folder = tempfile::tempdir().unwrap();
    let calls = |count: i64| {
        (0..count)
            .map(|n| call(n * 1_000_000, if n % 20 == 19 { 90_000 } else { 1000 }, "cudaLaunchKernel", 1))
    };
    let text = forms(&import_rows(folder.path(), "calls", calls(60).collect()));
    assert!(text.contains("Nothing of the scheduler is on record"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "no event of PyTorch's allocator is on record",
        "Not measured: no counter of a GPU",
        "nothing of the scheduler is on record: no cause",
    ] {
        assert!(words.contains(said), "{said}: {text}");
    }
    assert!(!words.contains("overlap off-CPU time"), "{text}");
    let html = fs::read_to_string(folder.path().join("calls.parquet.html")).unwrap();
    assert!(html.contains("not known how much waiting for a CPU") && !html.contains("0 % waiting"));
    // Blocks of which no segment is on record.
    let block = |n: i64| json!({"ts": n, "kind": "alloc", "op": "alloc", "pid": 1, "tid": 1, "addr": 4096 * n + (1 << 30), "size_bytes": 4096, "device": 0});
    let text = forms(&import_rows(folder.path(), "blocks", (0..50).map(block).collect()));
    assert!(!text.contains("PyTorch had 0 B") && text.contains("Memory: not known"), "{text}");
    assert!(text.contains("200 KiB"), "what is allocated at the end: {text}");
}

#[test]
fn percentiles_of_few_calls_are_marked_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let calls = |op: &'static str, count: i64, tid: i64| {
        (0..count).map(move |n| call(n * 1_000_000 + tid, 1000 + n, op, tid))
    };
    let few = calls("cudaMalloc", 16, 1).chain(calls("cudaFree", 100, 2));
    let run = import_rows(folder.path(), "few", few.collect());
    let note = "* So few calls that the percentile is the longest of them or nearly so";
    // The p99 of 16 calls, and in the answer of `chains` the one without the scheduler; neither their p90, nor any of 100.
    for (verb, marks) in [("summary", 1), ("chains", 2)] {
        let text = stdout(&[verb, &run]);
        let line = text.lines().find(|line| line.starts_with("cudaMalloc")).unwrap();
        assert_eq!(line.matches(" µs*").count(), marks, "{verb}: {text}");
        assert_eq!(text.matches('*').count(), marks + 1, "{verb}: {text}");
        assert_eq!(text.matches(note).count(), 1, "{verb}: {text}");
    }
    // Two tables of the report have percentiles: each has the note once.
    let terminal = forms(&run).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(terminal.matches(note).count(), 2, "{terminal}");
    let markdown = stdout(&["report", &run, "--markdown"]);
    assert_eq!(markdown.matches(&format!("\\{note}")).count(), 2, "{markdown}");
    let html = fs::read_to_string(format!("{run}.html")).unwrap();
    assert_eq!(html.matches(note).count(), 2, "{html}");
    let data = support::json(&["summary", &run, "--json"]);
    assert!(data["strata"].as_array().unwrap().iter().all(|line| line["p99_ns"].is_number()), "{data}");
}

#[test]
fn what_is_large_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let day = 86_400 * 1_000_000_000;
    let year =
        (0..365).map(|n| call(n * day, if n % 20 == 19 { 90_000_000 } else { 1_000_000 }, "cudaMemcpy", 1));
    forms(&import_rows(folder.path(), "year", year.collect()));
    let figure = fs::read_to_string(folder.path().join("year.parquet.figures/timeline.svg")).unwrap();
    assert!(figure.contains(" d</text>"), "days: {figure}");
    let threads = (0..10_000).map(|n| call(n * 1000, 500, "cudaMalloc", n + 1));
    let text = forms(&import_rows(folder.path(), "threads", threads.collect()));
    assert!(text.contains("12 of 10000 shown"), "{text}");
    let op = |n: i64| {
        call(
            n * 100_000,
            if n % 24 == 0 { 90_000 } else { 1000 },
            &format!("my::function<{}>(\"x\")", n / 24),
            1,
        )
    };
    let text = forms(&import_rows(folder.path(), "functions", (0..120_000).map(op).collect()));
    assert!(text.contains(" of 5000 shown"), "{text}");
}

#[test]
fn what_exists_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let run = hostile(folder.path(), 60);
    let figures = folder.path().join("figures");
    stdout(&["report", &run, "--svg", figures.to_str().unwrap()]);
    let svg = refused(&["report", &run, "--svg", path(&figures)]);
    let existing = svg.strip_prefix(&format!("analyze: {}/", path(&figures)));
    let name = existing.and_then(|rest| rest.strip_suffix(" exists; use --force to replace it\n"));
    assert!(name.is_some_and(|name| figures.join(name).is_file()), "{svg}");
    stdout(&["report", &run, "--svg", path(&figures), "--force"]);
    let page = folder.path().join("page.html");
    fs::write(&page, "kept").unwrap();
    let html = refused(&["report", &run, "--html", path(&page)]);
    assert_eq!(html, format!("analyze: {} exists; use --force to replace it\n", path(&page)));
    assert_eq!(fs::read_to_string(&page).unwrap(), "kept");
    let two = refused(&["report", &run, "--json", "--markdown"]);
    assert_eq!(
        two,
        "error: the argument '--json' cannot be used with '--markdown'\n\nUsage: analyze report --json <RUN> [NEW]\n\nFor more information, try '--help'.\n"
    );
    let before = fs::read(&run).unwrap();
    let itself = refused(&["report", &run, "--html", &run, "--force"]);
    assert_eq!(itself, format!("analyze: {run} is an input: give --out another name\n"));
    assert_eq!(fs::read(&run).unwrap(), before, "a run is not overwritten by its report");
}
