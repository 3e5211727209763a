//! Causes of slow calls through the real program: traces with Unix times, the scheduler behind other threads, `--chains`,
//! a million threads.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use analyze_verdict::causes::Cause;
use serde_json::Value;
use trace_schema::{Kind, Run, Text};
use trace_writer::Recorder;

use super::support::{import_rows, json, stdout, testdata};

/// 17 May 2026.
const UNIX_NS: i64 = 1_779_000_000_000_000_000;

/// A database of Ingero's shape: 40 frees of 10 µs on thread 101, of which one takes 2 ms on the CPU, and a helper thread
/// that is off the CPU for as long as the slow free runs. All of its events are counted and stored.
pub(crate) fn ingero_with_one_slow_free(path: &Path) {
    let frees = (0..40).map(|number| {
        let duration = if number == 30 { 2_000_000 } else { 10_000 };
        (UNIX_NS + number * 5_000_000, 100, 101, 1, 2, duration, 0x7f00)
    });
    // A host row's time is its end; the scheduler's have the thread in both columns.
    let switches = [
        (UNIX_NS + 30 * 5_000_000 + 2_500_000, 102, 102, 3, 1, 2_600_000, 0),
        (UNIX_NS + 30 * 5_000_000 + 4_000_000, 101, 101, 3, 1, 1_000_000, 0),
    ];
    let rows: Vec<String> = frees
        .chain(switches)
        .enumerate()
        .map(|(id, (ts, pid, tid, source, op, dur, arg))| {
            format!("({id}, {ts}, {pid}, {tid}, {source}, {op}, {dur}, 0, {arg}, 0, 0)")
        })
        .collect();
    let sql = format!(
        "CREATE TABLE events (id INTEGER PRIMARY KEY, timestamp INTEGER, pid INTEGER, tid INTEGER, source INTEGER,
             op INTEGER, duration INTEGER, gpu_id INTEGER, arg0 INTEGER, arg1 INTEGER, ret_code INTEGER);
         CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT);
         INSERT INTO ops VALUES (1, 2, 'cudaFree'), (3, 1, 'sched_switch');
         INSERT INTO events VALUES {};
         CREATE TABLE event_aggregates (bucket, source, op, pid, count, stored, max_dur);
         INSERT INTO event_aggregates SELECT timestamp / 60000000000 * 60000000000, source, op, pid, count(*), count(*),
             max(duration) FROM events GROUP BY 1, 2, 3, 4;",
        rows.join(", ")
    );
    rusqlite::Connection::open(path).unwrap().execute_batch(&sql).unwrap();
}

#[test]
fn an_imported_run_with_unix_times_has_its_slow_calls_and_its_alibi() {
    let directory = tempfile::tempdir().unwrap();
    let (database, run) = (directory.path().join("trace.db"), directory.path().join("trace.parquet"));
    ingero_with_one_slow_free(&database);
    let run = run.to_str().unwrap();
    assert!(stdout(&["import", "ingero", database.to_str().unwrap(), "--out", run]).starts_with("42 events"));
    let answer = json(&["chains", "--json", run]);
    let [free] = &answer["verdicts"].as_array().unwrap()[..] else { panic!("{answer:#}") };
    assert_eq!((&free["op"], &free["calls_count"]), (&"cudaFree".into(), &40.into()));
    assert_eq!((&free["slow_count"], &free["overlapping_count"]), (&1.into(), &0.into()));
    assert_eq!(free["scheduler"], "cleared");
    let slow = &free["examples"][0];
    assert_eq!(slow["ts_ns"], UNIX_NS + 30 * 5_000_000);
    assert_eq!((&slow["dur_ns"], &slow["verdict"]), (&2_000_000.into(), &"unexplained".into()));
    let alibi = answer["alibis"].as_array().unwrap().iter().find(|alibi| alibi["suspect"] == "scheduler");
    assert_eq!(alibi.unwrap()["figure"], "0 of 1 slow calls had any of it, 0 ns in all");
    let text = stdout(&["chains", run]);
    assert!(
        text.contains("cudaFree  the scheduler is not a factor (0.0 %): 0 of 1 slow calls were preempted"),
        "{text}"
    );
    assert!(!text.contains("no clock tells"), "no row was left out: {text}");
    // The source knows neither sleep nor wakers: what would need them is not ruled out.
    assert!(!text.contains("sleep of other threads") && !text.contains("blocked:"), "{text}");
    let rows = stdout(&["sql", run, "SELECT op, ts, verdict FROM slow_calls"]);
    assert_eq!(rows, format!("op,ts,verdict\ncudaFree,{},unexplained\n", UNIX_NS + 30 * 5_000_000));
}

/// One slow free, on a thread that lost its CPU before it, and a helper that sleeps meanwhile; `sleep` is what else is
/// known of the sleeps. If `is_blocked`, the slow free sleeps, too.
fn one_slow_free(folder: &Path, name: &str, sleep: &Value, is_blocked: bool) -> String {
    let row = |ts: i64, dur: i64, kind: &str, op: &str, tid: i64| {
        let mut row = serde_json::json!({"ts": ts, "dur": dur, "kind": kind, "op": op, "pid": 100, "tid": tid, "comm": "python3"});
        let more = sleep.as_object().filter(|_| op == "sleeping").into_iter().flatten();
        more.for_each(|(column, value)| row[column.as_str()] = value.clone());
        row
    };
    let mut rows: Vec<Value> = (0..40)
        .map(|n| {
            row(1_000_000 + n * 5_000_000, if n == 30 { 2_000_000 } else { 10_000 }, "call", "cudaFree", 101)
        })
        .collect();
    rows.push(row(0, 100_000, "off_cpu", "preempted", 101));
    rows.push(row(150_900_000, 2_600_000, "off_cpu", "sleeping", 102));
    if is_blocked {
        rows.push(row(151_100_000, 1_800_000, "off_cpu", "sleeping", 101));
    }
    import_rows(folder, name, rows)
}

/// A cause is ruled out only if the source records what would show it.
#[test]
fn what_a_source_does_not_record_is_not_ruled_out() {
    let folder = tempfile::tempdir().unwrap();
    let ruled_out = |name: &str, sleep: &Value, is_blocked: bool| -> Vec<String> {
        let run = one_slow_free(folder.path(), name, sleep, is_blocked);
        let answer = json(&["chains", "--json", &run]);
        let suspects = answer["alibis"].as_array().unwrap().iter();
        suspects.map(|suspect| suspect["suspect"].as_str().unwrap().to_owned()).collect()
    };
    let has = |suspects: &[String], name: &str| suspects.iter().any(|suspect| suspect == name);
    let known =
        serde_json::json!({"syscall": 202, "waker_pid": 100, "waker_tid": 103, "waker_comm": "python3"});
    let found = ruled_out("known", &known, false);
    assert!(has(&found, "sleep of other threads") && has(&found, "blocked:ioctl"), "{found:?}");
    // Nobody is known to have ended a sleep, so that a slow call may have waited for any thread.
    let found = ruled_out("no-waker", &serde_json::json!({}), false);
    assert!(!has(&found, "sleep of other threads") && has(&found, "blocked:ioctl"), "{found:?}");
    // The slow call slept, in what is not known.
    let found = ruled_out("no-syscall", &serde_json::json!({}), true);
    assert!(!has(&found, "blocked:ioctl") && !has(&found, "blocked:futex"), "{found:?}");
    let found = ruled_out("in-futex", &known, true);
    assert!(has(&found, "blocked:ioctl") && !has(&found, "blocked:futex"), "{found:?}");
}

/// A lock whose holder had lost its CPU: the calls slept for a futex, and the scheduler is behind it.
#[test]
fn the_scheduler_behind_a_lock_is_named_in_text_and_page() {
    let run = &testdata("courtroom/vm/futex_convoy.parquet");
    let text = stdout(&["chains", run]);
    for op in ["cudaMemcpy", "cudaMalloc", "cudaFree", "cudaLaunchKernel"] {
        let begin = format!("{op} ");
        let line =
            text.lines().find(|line| line.starts_with(&begin) && line.contains("the scheduler caused "));
        let line = line.unwrap_or_else(|| panic!("{op}: {text}"));
        assert!(line.contains(", through threads that slow calls waited for: "), "{line}");
    }
    assert!(!text.contains("of the excess latency:"), "not in the calls' own time: {text}");
    assert!(!text.contains("\nscheduler "), "a root cause is a factor: {text}");
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    stdout(&["report", run, "--html", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("The scheduler caused 67.8 % of the excess latency"), "the headline");
    assert!(html.contains("court-hog (pid 6294) held the CPU"), "who had it");
    assert!(html.contains("<td class=\"bad\">root cause</td>"), "the table of functions");
}

#[test]
fn as_many_chains_are_shown_as_asked_for() {
    let run = testdata("courtroom/vm/futex_convoy.parquet");
    let shown = |count: &str| {
        let text = stdout(&["chains", &run, "--chains", count]);
        text.lines().filter(|line| line.contains(", usually ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(shown("0").is_empty());
    assert_eq!(shown("1").len(), 1);
    let eight = shown("8");
    assert_eq!(eight.len(), 8, "more than are kept of a function otherwise");
    assert_eq!(eight[..1], shown("1"));
    let all = shown("100000");
    assert_eq!(all[..8], eight);
    let with_chains = "SELECT count(*) AS n FROM (SELECT DISTINCT call_pid, call_tid, call_ts FROM chain_links WHERE call_depth = 0)";
    let count = stdout(&["sql", &run, with_chains]);
    assert_eq!(count, format!("n\n{}\n", all.len()));
}

/// What the view says of itself: no two slow calls have one key, and the links of each follow each other.
#[test]
fn links_of_chains_have_a_key_and_sum_to_their_calls() {
    let accounts = [
        "SELECT count(*) AS n FROM (SELECT call_pid, call_tid, call_ts, call_depth, ts FROM chain_links
             GROUP BY 1, 2, 3, 4, 5 HAVING count(*) > 1)",
        "SELECT count(*) AS n FROM (SELECT call_pid, call_tid, call_ts, call_depth FROM chain_links
             GROUP BY 1, 2, 3, 4 HAVING count(DISTINCT op) > 1)",
        "SELECT count(*) AS n FROM slow_calls AS s JOIN (SELECT call_pid, call_tid, call_ts, call_depth, sum(dur) AS dur,
             min(ts) AS first FROM chain_links GROUP BY 1, 2, 3, 4) AS l ON s.pid = call_pid AND s.tid = call_tid
             AND s.ts = call_ts AND s.depth = call_depth WHERE s.dur <> l.dur OR s.ts <> first",
    ];
    for name in ["courtroom/vm/futex_convoy", "courtroom/h200/many_hogs", "h200/qwen2-hogs"] {
        let run = &testdata(&format!("{name}.parquet"));
        assert_ne!(stdout(&["sql", run, "SELECT count(*) AS n FROM chain_links"]), "n\n0\n", "{name}");
        for account in accounts {
            assert_eq!(stdout(&["sql", run, account]), "n\n0\n", "{name}: {account}");
        }
    }
}

/// Standard output of the program, and the most memory that it was seen to have, in bytes.
fn stdout_and_peak(args: &[&str]) -> (String, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_analyze"));
    let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let watch = thread::spawn(move || {
        let mut peak_kib = 0;
        // A process that has ended has no memory.
        while let Some(kib) = fs::read_to_string(&status).ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        }) {
            peak_kib = peak_kib.max(kib);
            thread::sleep(Duration::from_millis(2));
        }
        peak_kib * 1024
    });
    let mut out = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut out).unwrap();
    let peak = watch.join().unwrap();
    assert!(child.wait().unwrap().success());
    (out, peak)
}

/// Each makes one call, from which the scheduler takes something, and never comes again: what is kept of it is small.
#[test]
fn a_million_threads_have_their_verdicts_in_bounded_memory() {
    const THREADS: u32 = 1_000_000;
    const SLOW: u32 = 700_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("threads.parquet");
    let run = Run { lost_is_counted: true, ..Run::default() };
    let recorder = Recorder::create(&path, false, &run).unwrap();
    let mut recorder = recorder;
    for tid in 1..=THREADS {
        let ts = 1_000_000 + i64::from(tid) * 100;
        let waited = if tid == SLOW { 500_000 } else { 200 };
        recorder
            .push_with(|rows| {
                rows.start(ts, Kind::Call, Text::Static("cudaFree"), 1, tid).dur(1000 + waited);
            })
            .unwrap();
        recorder
            .push_with(|rows| {
                let mut row = rows.start(ts + 300, Kind::OffCpu, Text::Static("preempted"), 1, tid);
                row.dur(waited).cpu(0_u32).runnable_ns(waited);
            })
            .unwrap();
    }
    recorder.finish(&run).unwrap();
    let (out, peak_bytes) = stdout_and_peak(&["chains", "--json", path.to_str().unwrap()]);
    let answer: Value = serde_json::from_str(&out).unwrap();
    let free = &answer["verdicts"][0];
    assert_eq!((&free["calls_count"], &free["slow_count"]), (&THREADS.into(), &1.into()));
    assert_eq!((&free["examples"][0]["tid"], &free["scheduler"]), (&SLOW.into(), &"guilty".into()));
    let warnings = answer["warnings"].to_string();
    assert!(!warnings.contains(" rows)"), "nothing is broken: {warnings}");
    assert!((1 << 20..1 << 30).contains(&peak_bytes), "{peak_bytes} bytes");
}

/// What lists causes by hand lists all of them.
#[test]
fn every_cause_is_shown_everywhere() {
    let text = |path: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/").to_owned() + path;
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let (slow_calls, metrics) =
        (text("../queries/core/slow_calls.sql"), text("../queries/compare/metrics_causes.sql"));
    let (why, verdicts) = (text("src/compare/why.rs"), text("VERDICTS.md"));
    for name in Cause::ALL.map(Cause::name) {
        let column = name.replace([':', '-'], "_") + "_ns";
        assert!(slow_calls.contains(&format!("--   {column} ")), "slow_calls has no {column}");
        let summed = metrics.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == column);
        assert!(summed, "metrics_causes: {column}");
        // The classes of sleep are one part there.
        let class = name.split(':').next().unwrap().replace('-', "_");
        assert!(why.contains(&format!("\"lost_{class}_ns\"")), "compare/why.rs: {class}");
        let shown = name.strip_prefix("blocked").filter(|class| *class != ":ioctl").unwrap_or(name);
        assert!(verdicts.contains(&format!("`{shown}`")), "VERDICTS.md: {shown}");
    }
}
