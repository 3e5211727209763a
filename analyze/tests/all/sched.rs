//! One recording of a known program, as perf, ftrace and Perfetto have it: the same intervals. `testdata/sched` has how it was made.

use std::collections::BTreeMap;

use serde_json::Value;

use super::support::{self, json, outcome, path, refused, stdout, testdata};

const FILES: [&str; 6] = [
    "duty.perf.txt.gz",
    "duty.perf-pid.txt.gz",
    "duty.ftrace.txt.gz",
    "duty.timehist.txt.gz",
    "duty.pftrace",
    "duty.compact.pftrace.gz",
];

/// Imports one of the recordings.
fn import(file: &str) -> (tempfile::TempDir, String) {
    support::import(testdata(&format!("sched/{file}")))
}

/// What the program wrote of itself, and its threads.
fn truth() -> (Value, Vec<i64>) {
    let truth = support::truth("sched/duty.truth.json");
    let threads = truth["threads"].as_object().unwrap().values().map(|tid| tid.as_i64().unwrap()).collect();
    (truth, threads)
}

/// An interval off CPU: `None` where it has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interval {
    ts: i64,
    dur: Option<i64>,
    runnable_ns: Option<i64>,
    state: String,
    cpus: String,
}

/// Intervals of the program's threads, in the order of time.
fn intervals(run: &str) -> BTreeMap<i64, Vec<Interval>> {
    let threads = truth().1.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let query = format!(
        "SELECT tid, ts, dur, runnable_ns, op, cpu, in_cpu FROM events WHERE kind = 'off_cpu' AND tid IN ({threads}) ORDER BY tid, ts"
    );
    let mut found: BTreeMap<i64, Vec<Interval>> = BTreeMap::new();
    for line in stdout(&["sql", run, &query]).lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        found.entry(cells[0].parse().unwrap()).or_default().push(Interval {
            ts: cells[1].parse().unwrap(),
            dur: cells[2].parse().ok(),
            runnable_ns: cells[3].parse().ok(),
            state: cells[4].to_owned(),
            cpus: cells[5..].join(","),
        });
    }
    found
}

#[test]
fn every_format_of_one_recording_has_the_same_intervals() {
    let found: Vec<_> = FILES.iter().map(|file| intervals(&import(file).1)).collect();
    let [perf, perf_pid, ftrace, timehist, perfetto, compact] = &found[..] else { panic!("six") };
    assert_eq!(perf, perf_pid);
    assert_eq!(ftrace, perfetto, "the same times");
    assert_eq!(ftrace, compact, "none of these threads came before a CPU was known");
    assert_eq!(ftrace.len(), 5);
    let mut count = 0;
    for (tid, exact) in perf {
        // Both tracers read the clock for themselves, a moment apart.
        let texts = &ftrace[tid];
        assert_eq!(exact.len(), texts.len(), "{tid}");
        for (exact, text) in exact.iter().zip(texts) {
            assert_eq!((&exact.state, &exact.cpus), (&text.state, &text.cpus), "{tid}");
            assert!((exact.ts - text.ts).abs() <= 3_000, "{tid}: {exact:?} {text:?}");
            let apart = |a: Option<i64>, b: Option<i64>| {
                a.zip(b).map_or(i64::from(a != b) * i64::MAX, |(a, b)| (a - b).abs())
            };
            assert!(apart(exact.dur, text.dur) <= 3_000, "{tid}: {exact:?} {text:?}");
            assert!(apart(exact.runnable_ns, text.runnable_ns) <= 3_000, "{tid}: {exact:?} {text:?}");
            count += 1;
        }
        let total =
            |intervals: &[Interval]| intervals.iter().filter_map(|interval| interval.dur).sum::<i64>();
        assert!((total(exact) - total(texts)).abs() <= 1_000 * exact.len() as i64, "{tid}");
        // perf's own account of the same recording; it does not know a thread's last slice.
        let sums = &timehist[tid];
        assert_eq!(exact.len(), sums.len(), "{tid}");
        let (last, closed) = sums.split_last().unwrap();
        assert_eq!(last.dur, None, "{tid}");
        for (exact, sum) in exact.iter().zip(closed) {
            assert!(
                (exact.ts - sum.ts).abs() <= 1_000 && (exact.dur.unwrap() - sum.dur.unwrap()).abs() <= 2_000
            );
        }
        assert!(
            (total(&exact[..closed.len()]) - total(closed)).abs() <= 1_000 * closed.len() as i64,
            "{tid}"
        );
    }
    assert!(count > 100, "{count}");
}

/// What the program says of itself, and that a thread's time has no gap.
#[test]
fn the_program_did_what_it_does() {
    let (truth, _) = truth();
    let tid = |name: &str| truth["threads"][name].as_i64().unwrap();
    for file in ["duty.ftrace.txt.gz", "duty.pftrace", "duty.perf.txt.gz"] {
        let (_kept, run) = import(file);
        let found = intervals(&run);
        for name in ["hog_a", "hog_b"] {
            assert!(
                found[&tid(name)]
                    .iter()
                    .all(|interval| interval.state == "preempted" && interval.dur == interval.runnable_ns)
            );
        }
        let naps = &found[&tid("sleeper")];
        assert!(
            naps.len() > 30
                && naps
                    .iter()
                    .all(|nap| nap.state == "sleeping"
                        && nap.dur.unwrap() - nap.runnable_ns.unwrap() > 4_990_000),
            "{naps:?}"
        );
        let wakers = |name: &str| {
            let query = format!(
                "SELECT waker_tid, count(*) FROM events WHERE kind = 'off_cpu' AND op = 'sleeping' AND tid = {} GROUP BY 1 ORDER BY 2 DESC",
                tid(name)
            );
            stdout(&["sql", &run, &query]).lines().nth(1).unwrap().split(',').next().unwrap().to_owned()
        };
        // perf's text does not tell the timer from the thread that it came upon.
        let knows = file != "duty.perf.txt.gz";
        assert_eq!(wakers("sleeper"), if knows { "0" } else { "" }, "{file}");
        assert_eq!(wakers("turn_a"), if knows { tid("turn_b").to_string() } else { String::new() }, "{file}");
        // From a thread's first slice to its last, each moment is in one row.
        let query = format!(
            "SELECT tid, max(ts + dur) - min(ts) - sum(dur) AS gap_ns, count(*) > 5 AS many FROM events WHERE kind IN ('run', 'off_cpu') \
             AND tid IN ({}, {}, {}) GROUP BY tid ORDER BY tid",
            tid("hog_a"),
            tid("hog_b"),
            tid("sleeper")
        );
        let sums = stdout(&["sql", &run, &query]);
        assert_eq!(sums.matches(",0,true").count(), 3, "{file}: {sums}");
    }
}

#[test]
fn imports_are_whole_and_come_back_from_rows() {
    let directory = tempfile::tempdir().unwrap();
    for file in FILES {
        let (_kept, run) = import(file);
        stdout(&["verify", &run]);
        let out = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (rows, again) = (out("rows.ndjson"), out("again.parquet"));
        stdout(&["export", "events", &run, "--out", &rows, "--force"]);
        stdout(&["import", &rows, "--out", &again, "--force"]);
        let all = "SELECT * EXCEPT (run) FROM events ORDER BY ts, kind, op, tid";
        assert_eq!(stdout(&["sql", &run, all]), stdout(&["sql", &again, all]), "{file}");
        let (_, _, note) = outcome(&["sql", &testdata(&format!("sched/{file}")), "SELECT 1"]);
        let format = if file.contains("pftrace") {
            "perfetto"
        } else if file.contains("ftrace") {
            "ftrace"
        } else {
            "perf"
        };
        assert!(note.contains(&format!("a trace of the format {format}:")), "{file}: {note}");
    }
    // A timeline is no recording.
    let (_kept, run) = import("duty.pftrace");
    let timeline = directory.path().join("timeline.pftrace").to_str().unwrap().to_owned();
    stdout(&["export", "perfetto", &run, "--out", &timeline]);
    let why = refused(&["import", &timeline, "--out", path(&directory.path().join("x.parquet"))]);
    assert!(why.contains("no sched_switch events") && why.contains("`analyze export events` does"), "{why}");
}

#[test]
fn every_query_of_the_library_answers() {
    let (_kept, run) = import("duty.ftrace.txt.gz");
    let list = json(&["queries", "--json"]);
    let mut counts = Vec::new();
    for query in list.as_array().unwrap() {
        if query["params"].as_array().is_none_or(Vec::is_empty) {
            let name = query["name"].as_str().unwrap();
            counts
                .push(format!("SELECT '{name}' AS name, count(*) AS n FROM (SELECT DISTINCT * FROM {name})"));
        }
    }
    let count = counts.len();
    let answers = stdout(&["sql", &run, &counts.join(" UNION ALL ")]);
    assert_eq!(answers.lines().count(), count + 1);
    assert!(answers.contains("\noff_cpu,325\n") && answers.contains("\nthread_activity,27\n"), "{answers}");
    assert!(count > 30, "{count}");
    for verb in ["chains", "summary", "info"] {
        stdout(&[verb, &run]);
    }
    let page = tempfile::tempdir().unwrap();
    stdout(&["report", &run, "--html", page.path().join("run.html").to_str().unwrap()]);
}
