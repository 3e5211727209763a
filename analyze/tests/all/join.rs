//! Calls of one source joined with scheduler rows of another source: what is answered must be what the run answers that has
//! both, or be open.

use std::{fs, path::Path};

use analyze_run::{error::AnalyzeError, reading::plain, run_file};
use arrow::{
    array::{AsArray, BooleanArray, RecordBatch},
    compute::{cast, filter_record_batch},
    datatypes::{DataType, Int64Type},
};
use serde_json::Value;
use tempfile::TempDir;
use trace_schema::{Kind, Run, Stored, TIME_LIMIT_NS};

use super::support::{outcome, path, provenance, refused, rows, stdout, testdata};

/// A run with one thread that makes calls, which two CPU hogs preempt for 4 to 8 ms.
const HOGS: &str = "courtroom/h200/hog_equal.parquet";
const STATES: &str = "SELECT tid, ts, depth, op, on_cpu_ns, preempted_ns, runnable_ns, throttled_ns, blocked_ns, stopped_ns FROM op_time \
    ORDER BY tid, ts, depth, op";
const CAUSES: &str = "SELECT tid, ts, depth, op, verdict, scheduler_ns, stopped_ns FROM slow_calls ORDER BY tid, ts, depth, op";
const COMMAND: &str = "analyze merge CALLS.parquet SCHED.parquet --out JOINED.parquet";

fn is_scheduler(kind: &str) -> bool {
    kind == "off_cpu" || kind == "run"
}

/// Writes the rows of a run that `keep` selects by kind and time, with changed metadata.
fn part(run: &str, out: &Path, keep: impl Fn(&str, i64) -> bool, change: impl FnOnce(&mut Run)) -> String {
    let file = run_file::open(Path::new(run)).unwrap();
    let mut metadata = file.run.clone();
    change(&mut metadata);
    let kept = plain::batches(file.paths, None).map(|batch| -> Result<RecordBatch, AnalyzeError> {
        let batch = batch?;
        let kinds = cast(batch.column_by_name("kind").unwrap(), &DataType::Utf8).unwrap();
        let times = batch.column_by_name("ts").unwrap().as_primitive::<Int64Type>();
        let kinds = kinds.as_string::<i32>();
        let mask: BooleanArray = kinds
            .iter()
            .zip(times.values().iter())
            .map(|(kind, ts)| Some(keep(kind.unwrap(), *ts)))
            .collect();
        Ok(filter_record_batch(&batch, &mask).unwrap())
    });
    trace_writer::write(out, true, kept, || metadata).unwrap();
    path(out).to_owned()
}

/// Splits a run into its calls and what the scheduler did.
fn split(run: &str, directory: &TempDir) -> (String, String) {
    let file = |name: &str| directory.path().join(name);
    let calls = part(run, &file("calls.parquet"), |kind, _| !is_scheduler(kind), |_| ());
    let scheduler = part(run, &file("scheduler.parquet"), |kind, _| is_scheduler(kind), |_| ());
    (calls, scheduler)
}

/// The switches of a run as `perf script` prints them, without processes, and with times that are later by `late_ns`.
fn perf(run: &str, late_ns: i64) -> String {
    let query = "SELECT tid, ts, dur, runnable_ns, op FROM events WHERE kind = 'off_cpu' ORDER BY tid, ts";
    let mut events: Vec<(i64, String)> = Vec::new();
    let mut event = |ts: i64, current: &str, what: String| {
        let ts = ts + late_ns;
        events.push((
            ts,
            format!("{current} [000] {}.{:09}: sched:{what}\n", ts / 1_000_000_000, ts % 1_000_000_000),
        ));
    };
    for row in rows(run, query) {
        let number = |name: &str| row[name].as_i64();
        let (tid, ts) = (number("tid").unwrap(), number("ts").unwrap());
        let state = match row["op"].as_str().unwrap() {
            "preempted" => "R",
            "sleeping" => "S",
            "uninterruptible" => "D",
            "stopped" => "T",
            other => panic!("{other}"),
        };
        let leaves = format!(
            "sched_switch: prev_comm=accused prev_pid={tid} prev_prio=120 prev_state={state} ==> next_comm=swapper/0 next_pid=0 \
             next_prio=120"
        );
        event(ts, &format!("accused {tid}"), leaves);
        let Some(dur) = number("dur") else { continue };
        if let Some(runnable_ns) = number("runnable_ns").filter(|_| state != "R") {
            let waking = format!("sched_waking: comm=accused pid={tid} prio=120 target_cpu=000");
            event(ts + dur - runnable_ns, "swapper/0 0", waking);
        }
        let comes = format!(
            "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=accused next_pid={tid} \
             next_prio=120"
        );
        event(ts + dur, "swapper/0 0", comes);
    }
    events.sort_by_key(|(ts, _)| *ts);
    events.into_iter().map(|(_, line)| line).collect()
}

/// Counts the values that are as in the whole run and those that are open; no other value may be there.
fn same_or_open(whole: &[Value], joined: &[Value]) -> (usize, usize) {
    assert_eq!(whole.len(), joined.len());
    let (mut same, mut open) = (0, 0);
    for (expected, found) in whole.iter().zip(joined) {
        for (name, value) in expected.as_object().unwrap() {
            match &found[name] {
                Value::Null if !value.is_null() => open += 1,
                found => {
                    assert_eq!(found, value, "{name} of {expected}");
                    same += 1;
                }
            }
        }
    }
    (same, open)
}

#[test]
fn parts_of_a_recording_joined_answer_as_the_whole_does() {
    let queries = [
        "SELECT * EXCEPT (run) FROM slow_calls ORDER BY pid, tid, ts, depth, op",
        "SELECT * EXCEPT (run) FROM op_time ORDER BY pid, tid, ts, depth, op",
        "SELECT * EXCEPT (run) FROM launch_gaps ORDER BY pid, tid, ts",
    ];
    for name in [HOGS, "courtroom/h200/many_hogs.parquet", "h200/compile.parquet"] {
        let directory = tempfile::tempdir().unwrap();
        let run = testdata(name);
        let (calls, scheduler) = split(&run, &directory);
        let joined = path(&directory.path().join("joined.parquet")).to_owned();
        let said = stdout(&["merge", &scheduler, &calls, "--out", &joined]);
        assert!(
            said.contains("the scheduler rows of scheduler are joined with the calls of calls"),
            "{said}"
        );
        stdout(&["verify", &joined]);
        for query in queries {
            let whole = stdout(&["sql", &run, query]);
            assert!(whole.lines().count() > 1, "{name}: {query}");
            assert_eq!(stdout(&["sql", &joined, query]), whole, "{name}: {query}");
        }
        assert_ne!(stdout(&["sql", &calls, queries[1]]), stdout(&["sql", &run, queries[1]]), "{name}");
        let (whole, found) = (provenance(&run), provenance(&joined));
        for field in ["clock", "host", "processes", "threads", "probes"] {
            assert_eq!(found[field], whole[field], "{name}: {field}");
        }
        let source = &found["schedules"][0];
        assert_eq!((&source["offset_ns"], &source["offset_error_ns"]), (&0.into(), &0.into()), "{source}");
    }
}

#[test]
fn a_trace_of_perf_is_joined_by_its_threads_once_its_clock_is_stated() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| path(&directory.path().join(name)).to_owned();
    let run = testdata(HOGS);
    let (calls, _) = split(&run, &directory);
    let (trace, joined) = (file("switches.txt"), file("joined.parquet"));
    fs::write(&trace, perf(&run, 0)).unwrap();
    let why = refused(&["merge", &calls, &trace, "--out", &joined]);
    assert!(why.contains("switches does not say which clock its times are on"), "{why}");
    assert!(
        why.contains(
            "analyze merge CALLS.parquet SCHED.parquet --offset NS --offset-error NS --out JOINED.parquet"
        ),
        "{why}"
    );
    stdout(&["merge", &calls, &trace, "--out", &joined, "--offset", "0", "--offset-error", "0"]);
    stdout(&["verify", &joined]);
    // Nothing is open: every call lies between the first and the last switch.
    assert_eq!(stdout(&["sql", &joined, STATES]), stdout(&["sql", &run, STATES]));
    assert_eq!(stdout(&["sql", &joined, CAUSES]), stdout(&["sql", &run, CAUSES]));
    let pids = "SELECT kind, count(DISTINCT pid) AS n, min(pid) AS pid FROM events WHERE kind IN ('call', 'off_cpu') GROUP BY kind";
    let pids = rows(&joined, pids);
    assert!(pids.iter().all(|row| row["n"] == 1 && row["pid"] == pids[0]["pid"]), "{pids:?}");
    // What the trace does not cover is open, although the calls' recorder watched the scheduler itself.
    let text = perf(&run, 0);
    let half: String = text.lines().take(text.lines().count() / 2).map(|line| format!("{line}\n")).collect();
    fs::write(&trace, half).unwrap();
    stdout(&["merge", &calls, &trace, "--out", &joined, "--offset", "0", "--offset-error", "0", "--force"]);
    let (same, open) = same_or_open(&rows(&run, STATES), &rows(&joined, STATES));
    assert!(same > 1_000 && open > 1_000, "{same} definite, {open} open");
    let after = "SELECT count(*) AS n, count(preempted_ns) AS known FROM op_time WHERE ts > \
        (SELECT max(ts + coalesce(dur, 0)) FROM events WHERE kind = 'off_cpu')";
    let after = &rows(&joined, after)[0];
    assert!(after["n"].as_i64().unwrap() > 100 && after["known"] == 0, "{after}");
}

#[test]
fn an_offset_is_stated_with_its_error_and_nothing_smaller_is_claimed() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| path(&directory.path().join(name)).to_owned();
    let run = testdata(HOGS);
    let (calls, _) = split(&run, &directory);
    let (trace, joined) = (file("switches.txt"), file("joined.parquet"));
    let late_ns = 7_000_000_123;
    fs::write(&trace, perf(&run, late_ns)).unwrap();
    let with = |offset_ns: i64, error_ns: i64| {
        let (offset, error) = (offset_ns.to_string(), error_ns.to_string());
        outcome(&[
            "merge",
            &calls,
            &trace,
            "--out",
            &joined,
            "--force",
            "--offset",
            &offset,
            "--offset-error",
            &error,
        ])
    };
    // 15 µs off, within the error.
    let (code, _, why) = with(15_000 - late_ns, 20_000);
    assert_eq!(code, 0, "{why}");
    let info = stdout(&["info", &joined]);
    assert!(info.contains("offset: -6999985123 ns, within 20.0 µs"), "{info}");
    assert!(info.contains("begin or end within 20.0 µs of an off-CPU interval"), "{info}");
    let (same, open) = same_or_open(&rows(&run, STATES), &rows(&joined, STATES));
    assert!(open > 0 && same > 10 * open, "{same} definite, {open} open");
    let disturbed = "SELECT count(*) AS n FROM op_time WHERE preempted_ns > 0";
    assert!(rows(&joined, disturbed)[0]["n"].as_i64().unwrap() > 10, "the long ones are definite");
    let whole = rows(&run, CAUSES);
    let mut inconclusive_count = 0;
    for found in rows(&joined, CAUSES) {
        let is_same = |row: &&Value| ["tid", "ts", "depth", "op"].iter().all(|name| row[name] == found[name]);
        // Which calls are slow depends on other calls of their kind.
        let Some(expected) = whole.iter().find(is_same) else { continue };
        inconclusive_count += usize::from(found["verdict"] == "inconclusive");
        assert!(
            found["verdict"] == "inconclusive" || found["verdict"] == expected["verdict"],
            "{found} {expected}"
        );
        // What is usual for a kind of call is taken over all of them.
        let scheduler_ns = |of: &Value| of["scheduler_ns"].as_f64().unwrap();
        assert!(scheduler_ns(&found) <= 1.01 * scheduler_ns(expected) + 1_000.0, "{found} {expected}");
    }
    assert!(inconclusive_count > 0, "some call begins or ends close to a switch");
    // An offset that has the thread enter calls while it is off CPU is another one.
    let (code, _, why) = with(300_000 - late_ns, 2_000);
    assert!(code == 2 && why.contains("begin or end while their thread is off CPU"), "{why}");
    let (code, _, why) = with(0, 2_000);
    assert!(code == 2 && why.contains("they have no time in common"), "{why}");
    let other = split(&testdata("courtroom/h200/many_hogs.parquet"), &directory).0;
    let why = refused(&[
        "merge",
        &other,
        &trace,
        "--out",
        &joined,
        "--force",
        "--offset",
        "0",
        "--offset-error",
        "0",
    ]);
    assert!(why.contains("not two such runs with a thread in common"), "{why}");
    // Times that are rounded to a microsecond have that error, too.
    let text = perf(&run, 0);
    let rounded = text.lines().map(|line| {
        let (head, event) = line.split_once(": sched:").unwrap();
        format!("{}: sched:{event}\n", &head[..head.len() - 3])
    });
    fs::write(&trace, rounded.collect::<String>()).unwrap();
    let (calls, _) = split(&run, &directory);
    stdout(&["merge", &calls, &trace, "--out", &joined, "--force", "--offset", "0", "--offset-error", "500"]);
    assert_eq!(provenance(&joined)["schedules"][0]["offset_error_ns"], 1_500);
}

/// A scheduler trace that does not say which of its events it stored says so of all time, and nothing of the other run's calls.
#[test]
fn what_was_not_counted_stays_within_the_bound_of_times() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let run = testdata(HOGS);
    let (calls, _) = split(&run, &directory);
    let not_counted = |kind: Kind| Stored {
        kind: kind.name().to_owned(),
        from_ns: -TIME_LIMIT_NS,
        to_ns: TIME_LIMIT_NS,
        ..Stored::default()
    };
    let scheduler = part(
        &run,
        &file("scheduler.parquet"),
        |kind, _| is_scheduler(kind),
        |run| run.stored = vec![not_counted(Kind::Call), not_counted(Kind::OffCpu)],
    );
    let joined = path(&file("joined.parquet")).to_owned();
    for (offset, error) in [("0", "0"), ("0", "20000"), ("15000", "20000"), ("-15000", "20000")] {
        stdout(&[
            "merge",
            &calls,
            &scheduler,
            "--out",
            &joined,
            "--force",
            "--offset",
            offset,
            "--offset-error",
            error,
        ]);
        let stored = provenance(&joined)["stored"].as_array().unwrap().clone();
        assert_eq!(stored.len(), 1, "{stored:?}");
        assert_eq!((&stored[0]["kind"], &stored[0]["made_count"]), (&"off_cpu".into(), &Value::Null));
        let gaps = "SELECT count(*) AS n, sum(dur) AS ns FROM launch_gaps";
        assert_eq!(rows(&joined, gaps), rows(&calls, gaps), "{offset} ns");
    }
}

#[test]
fn clocks_that_are_not_known_to_be_one_are_refused_with_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let run = testdata(HOGS);
    let (calls, _) = split(&run, &directory);
    let (other, out) = (directory.path().join("other.parquet"), directory.path().join("joined.parquet"));
    let stated = "analyze merge CALLS.parquet SCHED.parquet --offset NS --offset-error NS";
    let refuse = |change: &dyn Fn(&mut Run), words: &str, command: &str| {
        let scheduler = part(&run, &other, |kind, _| is_scheduler(kind), |run| change(run));
        let why = refused(&["merge", &calls, &scheduler, "--out", path(&out)]);
        assert!(why.contains(words) && why.contains(command), "{why}");
    };
    refuse(&|run| run.clock.wall_offset_ns += 5_000_000_000, "different boots", stated);
    refuse(&|run| run.clock.wall_offset_ns = 0, "may be of another boot", stated);
    refuse(
        &|run| run.clock.base = "CLOCK_BOOTTIME".to_owned(),
        "CLOCK_MONOTONIC, other on CLOCK_BOOTTIME",
        stated,
    );
    refuse(&|run| run.host.name.clear(), "does not say of which host", stated);
    refuse(&|run| run.host.name = "elsewhere".to_owned(), "\"elsewhere\"", "nothing in common");
    assert!(!out.exists());
}

#[test]
fn a_merge_keeps_what_each_run_says_of_the_scheduler() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (hogs, whole) = (testdata(HOGS), testdata("courtroom/h200/many_hogs.parquet"));
    let middle = "SELECT CAST((min(ts) + max(ts)) / 2 AS BIGINT) AS ts FROM ops";
    let middle = rows(&whole, middle)[0]["ts"].as_i64().unwrap();
    // Another source, whose scheduler rows end before its calls do.
    let keep = |kind: &str, ts: i64| !is_scheduler(kind) || ts < middle;
    let half = part(&whole, &file("half.parquet"), keep, |run| run.probes.clear());
    let pid = rows(&half, "SELECT min(pid) AS pid FROM ops")[0]["pid"].as_i64().unwrap();
    let states = format!("SELECT * EXCEPT (run) FROM op_time WHERE pid = {pid} ORDER BY ts, depth, op");
    let alone = stdout(&["sql", &half, &states]);
    assert_ne!(alone, stdout(&["sql", &whole, &states]), "a part of it is open");
    let merged = path(&file("merged.parquet")).to_owned();
    stdout(&["merge", &half, &hogs, "--out", &merged]);
    assert_eq!(stdout(&["sql", &merged, &states]), alone);
    let others = format!("SELECT * EXCEPT (run) FROM op_time WHERE pid <> {pid} ORDER BY ts, depth, op");
    assert_eq!(stdout(&["sql", &merged, &others]), stdout(&["sql", &hogs, &others]));
}

#[test]
fn a_run_without_the_scheduler_says_how_to_join_it() {
    let directory = tempfile::tempdir().unwrap();
    let (calls, _) = split(&testdata(HOGS), &directory);
    for verb in ["chains", "report"] {
        let (code, text, notes) = outcome(&[verb, &calls]);
        assert_eq!(code, 0, "{notes}");
        let text = (text + &notes).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(COMMAND), "{verb}: {text}");
    }
}
