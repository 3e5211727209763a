//! The real program on real traces (goldens, re-blessed with BLESS=1) and on bad input.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::support::{analyze, json, path, refused, rows, run, runs_in, stdout, testdata, truth};

fn golden(name: &str, found: &str) {
    let path = testdata(&format!("golden/{name}"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{path} differs; BLESS=1 accepts:\n{found}");
}

fn chains(name: &str) -> Value {
    json(&["chains", "--json", &run(name)])
}

fn share(shares: &Value, cause: &str) -> f64 {
    let found = shares.as_array().unwrap().iter().find(|share| share["cause"] == cause);
    found.map_or(0.0, |share| share["share_ratio"].as_f64().unwrap())
}

#[test]
fn goldens() {
    for name in ["qwen2-quiet", "qwen2-hogs", "mixed-7gb", "mixed-7gb-expandable"] {
        golden(&format!("{name}.info.txt"), &stdout(&["info", &run(name)]));
        golden(&format!("{name}.summary.txt"), &stdout(&["summary", &run(name)]));
        golden(&format!("{name}.chains.txt"), &stdout(&["chains", &run(name)]));
    }
}

#[test]
fn the_scheduler_is_acquitted_when_quiet_and_convicted_among_hogs() {
    let quiet = chains("qwen2-quiet");
    assert!(share(&quiet["overall"], "scheduler") <= 0.005, "{}", quiet["overall"]);
    let hogs = chains("qwen2-hogs");
    assert!(share(&hogs["overall"], "scheduler") >= 0.95, "{}", hogs["overall"]);
    for culprit in &hogs["culprits"].as_array().unwrap()[..3] {
        assert_eq!(culprit["comm"], "cpu-hog");
    }
}

/// Every recorded trace: what must be true of each call, counted where it is not.
#[test]
fn every_account_adds_up_on_every_trace() {
    let accounts = [
        "SELECT count(*) AS n FROM op_time WHERE on_cpu_ns < 0 OR on_cpu_ns + preempted_ns + runnable_ns \
         + throttled_ns + blocked_ns + stopped_ns + unknown_ns <> dur OR blocked_ns <> blocked_ioctl_ns \
         + blocked_futex_ns + blocked_page_fault_ns + blocked_disk_ns + blocked_sleep_ns + blocked_poll_ns \
         + blocked_other_ns",
        "SELECT count(*) AS n FROM slow_calls WHERE excess_ns <= 0 OR dur < 3 * baseline_ns - 1 OR \
         abs(excess_ns - (scheduler_ns + throttled_ns + blocked_ioctl_ns + blocked_futex_ns \
         + blocked_page_fault_ns + blocked_disk_ns + blocked_sleep_ns + blocked_poll_ns + blocked_other_ns \
         + gpu_wait_ns + size_ns + first_call_ns + nested_ns + stopped_ns + inconclusive_ns \
         + unexplained_ns)) > 1e-3",
        "SELECT count(*) AS n FROM (SELECT call_ts, call_tid, op, sum(dur) AS total, min(ts) AS first, \
         max(ts + dur) AS last FROM chain_links GROUP BY call_ts, call_tid, op) l JOIN slow_calls s \
         ON s.ts = l.call_ts AND s.tid = l.call_tid AND s.op = l.op \
         WHERE l.total <> s.dur OR l.first <> s.ts OR l.last <> s.ts + s.dur",
        "SELECT count(*) AS n FROM launch_gaps WHERE dur < 0 OR dur <> host_ns + sync_ns + alloc_ns + copy_ns \
         + nccl_ns + other_call_ns + waiting_ns + throttled_ns + page_fault_ns + blocked_ns + stopped_ns \
         + unknown_ns",
        "SELECT count(*) AS n FROM marks m JOIN (SELECT phase, range_ts, sum(dur) AS total FROM critical_path \
         GROUP BY phase, range_ts) p ON p.phase = m.name AND p.range_ts = m.ts WHERE m.dur <> p.total",
        "SELECT count(*) AS n FROM (SELECT min(wall_ns) AS least, max(wall_ns) AS wall_ns, sum(time_ns) AS time_ns, \
         min(time_ns) AS shortest, sum(gpu_busy_ns + gpu_idle_ns) AS gpu_ns FROM run_time GROUP BY pid) \
         WHERE least <> wall_ns OR time_ns <> wall_ns OR shortest <= 0 OR gpu_ns > wall_ns",
        "SELECT count(*) AS n FROM (SELECT *, lead(ts) OVER (PARTITION BY pid ORDER BY step) AS next_ts FROM steps) \
         WHERE dur_ns <= 0 OR ts + dur_ns > next_ts OR host_ns + launch_ns + sync_ns + alloc_ns + copy_ns + nccl_ns \
         + module_ns + other_call_ns + other_thread_ns + waiting_for_cpu_ns + throttled_ns + blocked_ns + stopped_ns \
         + unknown_ns <> dur_ns",
        "SELECT coalesce(sum(rows_count), 0) AS n FROM data_quality",
        // The same time off the CPU as sets of time say, thread by thread.
        "SELECT count(*) AS n FROM (SELECT pid, tid, interval_union(ts, dur) AS called FROM ops WHERE depth = 0 GROUP BY pid, tid) \
         JOIN (SELECT pid, tid, interval_union(ts, dur) AS off FROM off_cpu GROUP BY pid, tid) USING (pid, tid) \
         JOIN (SELECT pid, tid, sum(dur) AS dur, sum(on_cpu_ns) AS on_ns FROM op_time WHERE depth = 0 GROUP BY pid, tid) USING (pid, tid) \
         WHERE interval_coverage_ns(called) <> dur OR interval_coverage_ns(interval_subtract(called, off)) <> on_ns \
         OR interval_coverage_ns(interval_intersect(called, off)) <> dur - on_ns",
    ];
    let runs = runs_in(&["h200"]);
    for run in &runs {
        for account in accounts {
            assert_eq!(stdout(&["sql", run, account]), "n\n0\n", "{run}: {account}");
        }
    }
    assert!(runs.len() >= 11, "{runs:?}");
}

/// A token takes 1026 launches, whatever competes for the CPU: the model, its input and the order of its calls are those of the
/// quiet run.
#[test]
fn steps_of_a_decoder_are_its_tokens() {
    let found = |name: &str| {
        let query = "SELECT min(found_by) AS found_by, count(DISTINCT pid) AS processes, count(*) AS steps_count, \
            CAST(median(launches_count) AS BIGINT) AS launches_count FROM steps";
        rows(&run(name), query)
    };
    let (quiet, hogs) = (found("qwen2-quiet"), found("qwen2-hogs"));
    assert_eq!(quiet, hogs);
    assert_eq!(quiet[0]["found_by"], "sequence");
    assert_eq!(quiet[0]["launches_count"], 1_026);
    assert!(quiet[0]["steps_count"].as_i64().unwrap() > 180, "{quiet:?}");
    let graphs = rows(&run("graphs"), "SELECT DISTINCT found_by, name FROM steps");
    assert_eq!(graphs.len(), 1);
    assert_eq!(graphs[0]["name"], "cudaGraphLaunch");
    for name in ["mixed-7gb", "compile"] {
        assert!(rows(&run(name), "SELECT * FROM steps").is_empty(), "{name} has no regular steps");
    }
}

#[test]
fn shares_sum_to_one() {
    for name in ["qwen2-quiet", "qwen2-hogs", "mixed-7gb"] {
        for verdict in chains(name)["verdicts"].as_array().unwrap() {
            let shares = verdict["shares"].as_array().unwrap();
            let sum: f64 = shares.iter().map(|share| share["share_ratio"].as_f64().unwrap()).sum();
            assert!(shares.is_empty() || (sum - 1.0).abs() < 1e-9, "{name} {}: {sum}", verdict["op"]);
        }
    }
}

/// What PyTorch itself recorded, event for event: testdata/record/mixed_7gb.py wrote it in the same process.
#[test]
fn allocator_events_equal_pytorchs_own_history() {
    for name in ["mixed-7gb", "mixed-7gb-expandable"] {
        let history = truth(&format!("h200/{name}.history.json"));
        let history: Vec<(String, u64, u64)> = serde_json::from_value(history).unwrap();
        let query = "SELECT op, addr, size_bytes FROM events WHERE kind = 'alloc' ORDER BY ts";
        let event = |row: &Value| {
            (
                row["op"].as_str().unwrap().to_owned(),
                row["addr"].as_u64().unwrap(),
                row["size_bytes"].as_u64().unwrap(),
            )
        };
        let rows: Vec<(String, u64, u64)> = rows(&run(name), query).iter().map(event).collect();
        // Taking the snapshot is the event after the last in the history.
        assert_eq!(rows[..history.len()], history, "{name}");
        assert_eq!(rows[history.len()].0, "snapshot");
    }
}

/// Counts of PyTorch's profiler inside the same span of the same process (testdata/record/profiler_counts.py).
/// The profiler also sees calls to private copies of the runtime linked into cuBLASLt and cuDNN; here they are driver
/// calls of those libraries, so every count agrees in one layer or the other.
#[test]
fn calls_equal_pytorchs_profiler() {
    let profiler = truth("h200/qwen2-profiled.counts.json");
    let (start, end) = (&profiler["start_ns"], &profiler["end_ns"]);
    let count = |op: &str, caller: &str| -> u64 {
        let query = format!(
            "SELECT count(*) AS n FROM ops WHERE op = '{op}' AND ts BETWEEN {start} AND {end} AND ({caller})"
        );
        stdout(&["sql", &run("qwen2-profiled"), &query]).lines().nth(1).unwrap().parse().unwrap()
    };
    let theirs = |op: &str| profiler["counts"][op].as_u64().unwrap_or(0);
    let private = "caller NOT LIKE 'libcudart%'";
    for op in ["cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaDeviceSynchronize"] {
        assert_eq!(count(op, "true"), theirs(op), "{op}");
    }
    assert_eq!(
        count("cudaLaunchKernel", "true") + count("cuLaunchKernel", private),
        theirs("cudaLaunchKernel")
    );
    assert_eq!(
        count("cudaMemsetAsync", "true") + count("cuMemsetD8Async", private),
        theirs("cudaMemsetAsync")
    );
    assert_eq!(count("cuLaunchKernel", "true"), theirs("cudaLaunchKernel") + theirs("cuLaunchKernel"));
    assert_eq!(count("cuLaunchKernelEx", "true"), theirs("cudaLaunchKernelExC") + theirs("cuLaunchKernelEx"));
}

#[test]
fn a_launch_heavy_run_takes_few_bytes_an_event() {
    let info = json(&["info", "--json", &run("qwen2-quiet")]);
    let bytes = info[0]["size_bytes"].as_f64().unwrap() / info[0]["rows_count"].as_f64().unwrap();
    assert!(bytes <= 4.5, "{bytes} bytes an event");
    assert_eq!(info[0]["provenance"]["lost"].as_array().unwrap().len(), 0);
}

#[test]
fn bad_input_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = fs::read(testdata("h200/mixed-7gb.parquet")).unwrap();
    let mut newer = whole.clone();
    let key = b"inquest.format_version";
    let at = newer.windows(key.len()).rposition(|window| window == key).unwrap();
    let digit =
        (at + key.len()..at + key.len() + 8).find(|i| newer[*i] == b'1' && newer[*i - 1] == 1).unwrap();
    newer[digit] = b'9';
    let foreign = directory.path().join("foreign.parquet");
    let empty = tempfile::tempdir().unwrap();
    stdout(&["sql", &run("mixed-7gb"), "SELECT 1 AS one", "--out", foreign.to_str().unwrap()]);
    let cases = [
        ("/no/such/file.parquet".to_owned(), 2, "/no/such/file.parquet"),
        // A directory stands for the runs in it.
        (empty.path().to_str().unwrap().to_owned(), 2, "holds no run"),
        (format!("{}/*.nothing", directory.path().display()), 2, "holds no run"),
        (file("empty.parquet", b""), 2, "not a Parquet file"),
        (file("text.parquet", b"hello, I am no Parquet file at all"), 2, "not a Parquet file"),
        (file("cut.parquet", &whole[..whole.len() / 2]), 2, "cut off"),
        (file("newer.parquet", &newer), 2, "format version 9"),
        (foreign.to_str().unwrap().to_owned(), 2, "not a run of Inquest"),
    ];
    for (path, code, words) in &cases {
        for verb in
            [vec!["info", path], vec!["summary", path], vec!["chains", path], vec!["sql", path, "SELECT 1"]]
        {
            let output = analyze(&verb);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(*code), "{verb:?}: {message}");
            assert!(message.contains(words), "{verb:?}: {message}");
            assert!(!message.contains("panicked") && output.stdout.is_empty(), "{verb:?}: {message}");
        }
    }
    // Damage inside: an error or an answer, never a panic.
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let path = file("damaged.parquet", &damaged);
        let output = analyze(&["summary", &path]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "byte {at}: {:?} {message}", output.status);
        assert!(!message.contains("panicked"), "byte {at}: {message}");
    }
}

#[test]
fn queries_only_read() {
    let run = run("mixed-7gb");
    for query in [
        "DROP TABLE events",
        "CREATE TABLE x AS SELECT 1",
        "COPY events TO '/tmp/stolen.parquet'",
        "SET datafusion.execution.batch_size = 1",
        "INSERT INTO _ops VALUES ('a','b','c')",
        "SELEC 1",
        "SELECT nothing FROM events",
        "CREATE EXTERNAL TABLE p STORED AS CSV LOCATION '/etc/passwd'",
    ] {
        refused(&["sql", &run, query]);
    }
    let twice =
        stdout(&["sql", &run, &run, "SELECT run, count(*) AS n FROM events GROUP BY run ORDER BY run"]);
    assert_eq!(twice, "run,n\nmixed-7gb,10269\nmixed-7gb-2,10269\n");
    assert_eq!(stdout(&["sql", &run, "SELECT 1 AS a WHERE false"]), "a\n");
    assert_eq!(stdout(&["sql", "--format", "json", &run, "SELECT 1 AS a"]), "[{\"a\":1}]\n");
}

/// A database of Ingero's shape, made here: its own are not ours to ship.
#[test]
fn ingero_databases_are_read_and_others_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let sqlite = |name: &str, sql: &str| {
        rusqlite::Connection::open(path(name)).unwrap().execute_batch(sql).unwrap();
        path(name)
    };
    let shape = "CREATE TABLE events (id INTEGER PRIMARY KEY, timestamp INTEGER, pid INTEGER, tid INTEGER, source INTEGER, op INTEGER, \
        duration INTEGER, gpu_id INTEGER, arg0 INTEGER, arg1 INTEGER, ret_code INTEGER); CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT); \
        INSERT INTO ops VALUES (1, 3, 'cudaLaunchKernel'), (1, 5, 'cudaStreamSync'), (3, 1, 'sched_switch');";
    let good = sqlite(
        "good.db",
        &format!(
            "{shape} INSERT INTO events VALUES (1, 1000, 7, 8, 1, 3, 100, 0, 77, 0, 0), \
        (2, 1060, 8, 8, 3, 1, 30, 0, 0, 9, 0), (3, 2000, 7, 8, 1, 5, 10, 0, 0, 0, 0), \
        (4, 900, 8, 9, 3, 1, 5, 0, 0, 0, 0), (5, 1900, 8, 9, 3, 1, 5, 0, 0, 0, 0); \
        CREATE TABLE event_aggregates (bucket, source, op, pid, count, stored, max_dur); \
        INSERT INTO event_aggregates VALUES (0, 1, 3, 7, 1, 1, 100), (0, 1, 5, 7, 1, 1, 10), (0, 3, 1, 8, 3, 3, 30);"
        ),
    );
    let before = fs::read(&good).unwrap();
    let out = path("good.parquet");
    assert!(stdout(&["import", "ingero", &good, "--out", &out]).starts_with("5 events"));
    assert_eq!(fs::read(&good).unwrap(), before, "the source is not touched");
    let rows = stdout(&["sql", &out, "SELECT op, ts, dur, unknown_ns FROM op_time ORDER BY ts"]);
    // The switch row's time is its end: [1030, 1060) lies in [1000, 1100). All switches of the minute are stored.
    assert_eq!(rows, "op,ts,dur,unknown_ns\ncudaLaunchKernel,1000,100,30\ncudaStreamSynchronize,2000,10,0\n");

    let negative = sqlite(
        "negative.db",
        &format!("{shape} INSERT INTO events VALUES (42, 1000, 7, 8, 1, 3, -5, 0, 0, 0, 0);"),
    );
    let odd = sqlite(
        "odd.db",
        &format!("{shape} INSERT INTO events VALUES (43, 'noon', 7, 8, 1, 3, 5, 0, 0, 0, 0);"),
    );
    let other = sqlite("other.db", "CREATE TABLE t (x);");
    let text = path("text.db");
    fs::write(&text, "no database").unwrap();
    for (file, words) in [
        (negative, "row 42"),
        (odd, "row 43"),
        (other, "no table events"),
        (text, "not a database"),
        (path("absent.db"), "absent.db"),
    ] {
        let out = path("refused.parquet");
        let message = refused(&["import", "ingero", &file, "--out", &out]);
        assert!(message.contains(words), "{file}: {message}");
        assert!(
            !Path::new(&out).exists() && !Path::new(&format!("{out}.recording")).exists(),
            "{file} left something behind"
        );
    }
    refused(&["import", "ingero", &good, "--out", &out]);
}

#[test]
fn every_help_has_the_exit_codes() {
    fn check(path: &[&str]) -> usize {
        let mut args = path.to_vec();
        args.push("--help");
        let help = stdout(&args);
        assert!(help.contains("Exit codes: 0 "), "{path:?}: {help}");
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let verbs = commands.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
        let verbs = verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help");
        1 + verbs.map(|verb| check(&[path, &[verb]].concat())).sum::<usize>()
    }
    assert!(check(&[]) > 20, "every verb");
}

/// As `| head` does.
#[test]
fn a_reader_that_has_enough_is_no_error() {
    let run = run("qwen2-quiet");
    for format in ["csv", "json", "ndjson", "arrow"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_analyze"))
            .args(["sql", &run, "SELECT * FROM events", "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut some = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{format}");
    }
}

/// What somebody may have put into a name: it sets a terminal's title, clears it, colours it, and turns text around.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";

/// Asserts that a terminal shows a text as it is.
fn assert_harmless(text: &str) {
    let is_harmful = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    assert!(!text.contains(is_harmful), "{text:?}");
}

#[test]
fn no_message_carries_an_escape_sequence() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).unwrap();
        path(&directory.path().join(name)).to_owned()
    };
    let run = run("compile");
    let missing = path(&directory.path().join(format!("no{HOSTILE}.parquet"))).to_owned();
    let text = file(&format!("text{HOSTILE}.parquet"), "no run");
    let sql = format!("SELECT \"a{HOSTILE}\" FROM ops");
    let gates = file("gates.toml", "\"a\\u001b[2J\" = 1\n");
    let raw = file("raw.toml", &format!("gates = [] # {HOSTILE}\n"));
    let rows = file("rows.ndjson", "{\"ts\": 1, \"a\\u001b[2J\": 1}\n");
    let out = path(&directory.path().join("out.parquet")).to_owned();
    let (option, verb) = (format!("--no{HOSTILE}"), format!("no{HOSTILE}"));
    for (args, quotes) in [
        (vec!["info", &missing], true),
        (vec!["summary", &text], true),
        (vec!["sql", &run, &sql], true),
        (vec!["compare", &run, &run, "--gate", &gates], false),
        (vec!["compare", &run, &run, "--gate", &raw], false),
        (vec!["import", "events", &rows, "--out", &out], false),
        (vec!["summary", &run, &option], false),
        (vec![verb.as_str()], false),
        (vec!["queries", &verb], false),
    ] {
        let said = refused(&args);
        assert_harmless(&said);
        assert!(!said.is_empty() && (!quotes || said.contains("\\u001b")), "{args:?}: {said}");
    }
}

#[test]
fn data_is_exact_in_a_pipe_and_tables_are_harmless() {
    let run = run("compile");
    let sql = |format: &str| {
        stdout(&["sql", "--format", format, &run, "SELECT concat('a', chr(27), chr(155)) AS x"])
    };
    assert_eq!(sql("csv"), "x\na\u{1b}\u{9b}\n");
    assert_eq!(sql("ndjson"), "{\"x\":\"a\\u001b\u{9b}\"}\n");
    let table = sql("table");
    assert_harmless(&table);
    assert!(table.contains("a\\u001b\\u009b"), "{table}");
}

/// A file name need not be Unicode.
#[test]
fn names_of_runs_are_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"run\xff.parquet");
    fs::copy(run("compile"), directory.path().join(name)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_analyze"))
        .arg("sql")
        .arg(directory.path().join(name))
        .arg("SELECT count(*) > 0 AS found FROM ops")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("invalid UTF-8"), "{said}");
    assert!(output.status.code() != Some(0) || output.stdout == b"found\ntrue\n", "{said}");
}
