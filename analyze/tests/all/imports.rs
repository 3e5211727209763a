//! Other tools' traces through the real command line: PyTorch's profiler, Nsight Systems, and telling them apart.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use analyze_run::random::Random;
use serde_json::Value;

use super::support::{analyze, import_as, json, outcome, path, provenance, refused, stdout, testdata};

/// Refused with the code of bad input and these words, leaving nothing behind.
fn import_refused(format: &str, file: &Path, words: &str) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let message = refused(&["import", format, path(file), "--out", path(&out)]);
    assert!(message.contains(words) && !message.contains("panicked"), "{words}: {message}");
    assert!(message.contains(path(file)), "it names no file: {message}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{words}: something is left");
}

const FIGURES: &str = "SELECT kind, op, count(*) AS n, sum(ts % 1000000007) AS ts, sum(coalesce(dur, 0)) AS dur_ns, \
    sum(coalesce(size_bytes, 0)) AS size_bytes, sum(coalesce(correlation, 0)) AS correlation, \
    sum(coalesce(addr, 0) % 1000000007) AS addr FROM events GROUP BY kind, op ORDER BY kind, op";

#[test]
fn a_profile_has_the_rows_that_python_counts() {
    let (_kept, run) = import_as("kineto", testdata("kineto/small.json.gz"));
    assert_eq!(
        stdout(&["sql", &run, FIGURES]),
        fs::read_to_string(testdata("kineto/small.rows.csv")).unwrap()
    );
    // Kernels of a step are within its range on the GPU, and each call's number is one piece of work's.
    let unmatched = "SELECT count(*) AS n FROM events d LEFT JOIN events c ON c.kind = 'call' AND \
        c.correlation = d.correlation WHERE d.kind = 'device' AND d.op IN ('kernel', 'memcpy', 'memset') AND \
        (c.op IS NULL OR d.ts < c.ts + c.dur)";
    assert_eq!(stdout(&["sql", &run, unmatched]), "n\n0\n");
    let facts = provenance(&run);
    assert_eq!(facts["gpus"][0]["name"], "NVIDIA H200");
    assert_eq!(facts["threads"].as_array().unwrap().len(), 1, "{}", facts["threads"]);
    assert_eq!(facts["threads"][0]["comm"], "trainer");
    assert_eq!(facts["processes"][0]["pid"], 4242);
    let limits = facts["not_captured"].to_string();
    for said in ["640 ends of arrows", "1 events of category \\\"c\\\"", "thread ids of 1 threads"] {
        assert!(limits.contains(said), "{said}: {limits}");
    }
    // What the scheduler did is not known: nobody is blamed for it.
    let chains = json(&["chains", "--json", &run]);
    for share in chains["overall"].as_array().unwrap() {
        assert!(share["cause"] == "inconclusive" || share["share_ratio"] == 0.0, "{share}");
    }
    let summary = json(&["summary", "--json", &run]);
    let phase = &summary["phases"][0];
    assert!(phase["calls_ns"].as_i64().is_some_and(|ns| ns > 0), "{phase}");
    assert_eq!((&phase["scheduler_ns"], &phase["blocked_ns"]), (&Value::Null, &Value::Null));
    let threads = "SELECT calls_count > 0 AS calls, off_cpu_ns, runnable_ns FROM thread_activity";
    assert_eq!(stdout(&["sql", &run, threads]), "calls,off_cpu_ns,runnable_ns\ntrue,,\n");
    for verb in ["summary", "memory"] {
        stdout(&[verb, &run]);
    }
}

/// Traces of few events as text.
fn profile(directory: &Path, events: &str, more: &str) -> PathBuf {
    let file = directory.join("trace.json");
    fs::write(&file, format!("{{\"traceEvents\": [{events}]{more}}}")).unwrap();
    file
}

#[test]
fn times_of_a_profile_are_exact() {
    let directory = tempfile::tempdir().unwrap();
    let span = r#"{"ph": "X", "cat": "kernel", "name": "k\u00e9", "pid": 0, "tid": 7, "ts": 1790857026123456.789,
        "dur": 0.001, "args": {"stream": 18446744073709551615, "grid": [4294967295, 1, 1]}},
        {"ph": "X", "cat": "cpu_op", "name": "open", "pid": 1, "tid": 2, "ts": 2e3}"#;
    let query = "SELECT ts, dur, op, pid, tid, detail, stream, grid_x FROM events ORDER BY ts";
    let rows = |base: i64| {
        format!(
            "ts,dur,op,pid,tid,detail,stream,grid_x\n{},,cpu_op,1,2,open,,\n\
             {},1,kernel,0,0,ké,18446744073709551615,4294967295\n",
            2_000_000 + base,
            1_790_857_026_123_456_789 + base
        )
    };
    // The base may stand behind the events.
    for (more, base) in [("", 0), (", \"baseTimeNanoseconds\": 1000000001", 1_000_000_001)] {
        let (_kept, run) = import_as("kineto", profile(directory.path(), span, more));
        assert_eq!(stdout(&["sql", &run, query]), rows(base));
        assert!(provenance(&run)["not_captured"].to_string().contains("how long 1 spans took"));
    }
    let list = directory.path().join("list.json");
    fs::write(&list, format!("[{span}]")).unwrap();
    let (_kept, run) = import_as("kineto", &list);
    assert_eq!(stdout(&["sql", &run, query]), rows(0));
}

#[test]
fn broken_profiles_are_refused_with_their_byte() {
    let directory = tempfile::tempdir().unwrap();
    let event = |fields: &str| format!("{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", {fields}}}");
    let cases = [
        (event("\"ts\": 1"), "", None),
        ("3".to_owned(), "", Some("byte 17: an event is a number")),
        ("{}".to_owned(), "", Some("byte 17: there is no `ph`")),
        (event("\"ts\": \"1\""), "", Some("byte 65: `ts` is a string, not a number")),
        (event("\"dur\": 1"), "", Some("byte 17: `ts` is missing")),
        (event("\"ts\": -1"), "", Some("byte 17: `ts` is -1")),
        (event("\"ts\": 1e16"), "", Some("byte 17: `ts` is 1e16")),
        (event("\"ts\": 1, \"dur\": 9223372036854775.807"), "", Some("byte 17: `dur` is")),
        (event("\"ts\": 1, \"args\": {\"stream\": \"7\"}"), "", Some("byte 17: `stream` is no integer")),
        (event("\"ts\": 1, \"args\": {\"grid\": [-1]}"), "", Some("byte 17: an extent")),
        (event("\"ts\": 1, \"args\": {\"device\": 3000000000}"), "", Some("byte 17: `device` is 3000000000")),
        (event("\"ts\": 01"), "", Some("byte 65: `01` is no number")),
        (event("\"ts\": 1"), ", \"traceEvents\": []", Some("`traceEvents` is there twice")),
        (event("\"ts\": 1"), ", \"baseTimeNanoseconds\": 1.5e40", Some("`baseTimeNanoseconds` is 1.5e40")),
        (String::new(), "} x", Some("something after the end")),
    ];
    for (events, more, words) in cases {
        let file = profile(directory.path(), &events, more);
        match words {
            Some(words) => import_refused("kineto", &file, words),
            None => drop(import_as("kineto", &file)),
        }
    }
    let file = directory.path().join("other.json");
    for (bytes, words) in [
        (&b"{\"a\": 1}"[..], "it has no `traceEvents`"),
        (b"7", "byte 0: this is no trace of PyTorch's profiler: it is a number"),
        (b"", "byte 0: the file is cut off"),
        (b"{\"traceEvents\": [{\"ph\": \"\xff\"", "no UTF-8"),
    ] {
        fs::write(&file, bytes).unwrap();
        import_refused("kineto", &file, words);
    }
    let packed = fs::read(testdata("kineto/small.json.gz")).unwrap();
    fs::write(&file, &packed[..packed.len() / 2]).unwrap();
    import_refused("kineto", &file, "damaged or cut off");
    fs::write(&file, "[".repeat(1 << 20)).unwrap();
    import_refused("kineto", &file, "an event is a list");
}

/// Damage of any kind is refused or read, never a panic.
#[test]
fn random_damage_of_a_profile_never_panics() {
    let directory = tempfile::tempdir().unwrap();
    let mut whole = String::new();
    flate2::read::GzDecoder::new(fs::File::open(testdata("kineto/small.json.gz")).unwrap())
        .read_to_string(&mut whole)
        .unwrap();
    let whole = &whole.as_bytes()[..4000];
    let (file, out) = (directory.path().join("t.json"), directory.path().join("run.parquet"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for _ in 0..60 {
        let mut bytes = whole.to_vec();
        bytes.extend(b"]}");
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"{}[],:\"\\-e0"[random.below(11)]),
            }
        }
        fs::write(&file, &bytes).unwrap();
        let args = ["import", "kineto", file.to_str().unwrap(), "--out", out.to_str().unwrap(), "--force"];
        let output = analyze(&args);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{message}");
        refused += usize::from(output.status.code() == Some(2) && message.contains("byte "));
    }
    assert!(refused > 20, "{refused}");
}

/// A database such as `nsys export --type sqlite` writes; `change` may spoil it.
pub(crate) fn export(directory: &Path, change: &str) -> PathBuf {
    let file = directory.join("report.sqlite");
    let _ = fs::remove_file(&file);
    let tid = |tid: i64| (1_i64 << 56) | (4242 << 24) | tid;
    let (main, other, process) = (tid(4242), tid(4243), tid(0));
    let script = format!(
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
         INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaMemcpyAsync_ptsz_v7000'), (3, 'add(float*)'),
            (4, 'poll'), (5, 'step 1'), (6, 'trainer');
         CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
         INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');
         CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200');
         CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
         INSERT INTO ThreadNames VALUES (6, 0, {main});
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
            correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (200, 260, 0, {main}, 12, 2, 0), (100, 150, 0, {main}, 11, 1, 719);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (160, 190, 0, 7, 11, {process}, 3, 3, 64);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (270, 290, 0, 7, 12, {process}, 5000000000, 2);
         CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
         INSERT INTO OSRT_API VALUES (10, 20, {other}, 4);
         CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (90, 300, 59, NULL, 5, {main}), (95, NULL, 34, 'here', NULL, {main}),
            (96, NULL, 75, 'a domain', NULL, {main}), (97, NULL, 60, 'open', NULL, {main});
         CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER);
         INSERT INTO SCHED_EVENTS VALUES (5, 3, 1, {main}), (110, 3, 0, {main}), (130, 2, 1, {main}), (400, 2, 0, {main}),
            (15, 1, 0, {other}), (18, 1, 1, {other});
         CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER);
         {change};"
    );
    rusqlite::Connection::open(&file).unwrap().execute_batch(&script).unwrap();
    file
}

#[test]
fn an_nsight_export_becomes_rows() {
    let directory = tempfile::tempdir().unwrap();
    let file = export(directory.path(), "");
    let before = fs::read(&file).unwrap();
    let (_kept, run) = import_as("nsys", &file);
    let query = "SELECT ts - 1700000000000000000 AS at, dur, kind, op, pid, tid, ret, cpu, in_cpu, device, stream, \
        correlation, size_bytes, direction, grid_x, detail FROM events ORDER BY ts, kind";
    let expected =
        "at,dur,kind,op,pid,tid,ret,cpu,in_cpu,device,stream,correlation,size_bytes,direction,grid_x,detail
10,10,host,osrt,4242,4243,,,,,,,,,,poll
15,3,off_cpu,unknown,4242,4243,,1,1,,,,,,,
90,210,mark,range,4242,4242,,,,,,,,,,step 1
95,,mark,point,4242,4242,,,,,,,,,,here
97,,mark,range,4242,4242,,,,,,,,,,open
100,50,call,cudaLaunchKernel,4242,4242,719,,,,,11,,,,
110,20,off_cpu,unknown,4242,4242,,3,2,,,,,,,
160,30,device,kernel,4242,0,,,,0,7,11,,,64,add(float*)
200,60,call,cudaMemcpyAsync,4242,4242,0,,,,,12,,,,
270,20,device,memcpy,4242,0,,,,0,7,12,5000000000,d2h,,
400,,off_cpu,unknown,4242,4242,,2,,,,,,,,
";
    assert_eq!(stdout(&["sql", &run, query]), expected);
    let facts = provenance(&run);
    assert_eq!(facts["clock"]["start_ns"], 1_700_000_000_000_000_005_i64);
    assert_eq!(facts["clock"]["end_ns"], 1_700_000_000_000_000_400_i64);
    assert_eq!(facts["threads"][0]["comm"], "trainer");
    assert_eq!(facts["gpus"][0]["name"], "NVIDIA H200");
    let limits = facts["not_captured"].to_string();
    for said in [
        "fills on the GPU: there is no table CUPTI_ACTIVITY_KIND_MEMSET",
        "1 rows of NVTX_EVENTS",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
    ] {
        assert!(limits.contains(said), "{said}: {limits}");
    }
    for verb in ["summary", "chains"] {
        stdout(&[verb, &run]);
    }
    assert_eq!(fs::read(&file).unwrap(), before, "the export is not written to");
}

#[test]
fn broken_exports_are_refused_with_their_row() {
    let directory = tempfile::tempdir().unwrap();
    for (change, words) in [
        ("DROP TABLE StringIds", "it has no table StringIds"),
        ("ALTER TABLE OSRT_API DROP COLUMN globalTid", "its table OSRT_API has no column globalTid"),
        ("UPDATE OSRT_API SET start = 'soon'", "table OSRT_API, row 1: start is of type Text"),
        ("UPDATE OSRT_API SET nameId = 99", "table OSRT_API, row 1: nameId names no text of StringIds"),
        (
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 1",
            "table CUPTI_ACTIVITY_KIND_KERNEL, row 1: end is 1",
        ),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = -1", "row 1: gridX is -1"),
        ("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = 9223372036854775807, end = NULL", "start is"),
        ("UPDATE SCHED_EVENTS SET globalTid = NULL WHERE cpu = 1", "table SCHED_EVENTS, row 5"),
    ] {
        import_refused("nsys", &export(directory.path(), change), words);
    }
    let file = directory.path().join("text.sqlite");
    fs::write(&file, "no database").unwrap();
    import_refused("nsys", &file, "it is not an SQLite export of Nsight Systems");
    // An earlier version without columns that came later is read.
    let (_kept, run) = import_as(
        "nsys",
        export(
            directory.path(),
            "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridX; \
        DROP TABLE TARGET_INFO_SESSION_START_TIME; DROP TABLE SCHED_EVENTS",
        ),
    );
    let limits = provenance(&run)["not_captured"].to_string();
    assert!(limits.contains("the time of day") && limits.contains("what the scheduler did"), "{limits}");
}

#[test]
fn foreign_files_are_recognised_wherever_a_run_is_expected() {
    let directory = tempfile::tempdir().unwrap();
    // The name says nothing: the content does.
    let copy = |from: &str, name: &str| {
        let to = directory.path().join(name);
        fs::copy(from, &to).unwrap();
        to.to_str().unwrap().to_owned()
    };
    let profile = copy(&testdata("kineto/small.json.gz"), "one.two");
    let export = copy(export(directory.path(), "").to_str().unwrap(), "three");
    let snapshot = copy(&testdata("snapshots/small.p4.pickle"), "four.gz");
    let old = copy(&testdata("snapshots/small.p0.pickle"), "five");
    for (file, format, name, rows) in [
        (&profile, "kineto", "one", 1282),
        (&export, "nsys", "three", 11),
        (&snapshot, "torch-snapshot", "four", 0),
        (&old, "torch-snapshot", "five", 0),
    ] {
        let out = directory.path().join("run.parquet");
        let found = stdout(&["import", file, "--out", out.to_str().unwrap(), "--force"]);
        let query = "SELECT run, count(*) AS n FROM events GROUP BY run";
        let (_, text, message) = outcome(&["sql", file, query]);
        assert!(message.contains(&format!("a trace of the format {format}")), "{message}");
        let count = found.split(' ').next().unwrap();
        assert_eq!(text, format!("run,n\n{name},{count}\n"));
        assert!(rows == 0 || count == rows.to_string(), "{file}: {count}");
    }
    for verb in ["chains", "summary", "info"] {
        stdout(&[verb, &profile]);
    }
    // Several at once, beside a run.
    let run = testdata("h200/qwen2-quiet.parquet");
    let query = "SELECT count(DISTINCT run) AS n FROM events";
    assert_eq!(stdout(&["sql", &profile, &run, &export, query]), "n\n3\n");
    let unknown = copy(&testdata("README.md"), "six");
    let out = directory.path().join("none.parquet");
    assert!(refused(&["import", &unknown, "--out", path(&out)]).contains("of no known format"));
    assert!(refused(&["info", &unknown]).contains("not a Parquet file"));
}

/// The tables of a database as `nsys export --type parquetdir` writes them: a Parquet file each.
fn parquet_dir(sqlite: &Path, directory: &Path) -> PathBuf {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    let out = directory.join("report_pqtdir");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    let database = rusqlite::Connection::open(sqlite).unwrap();
    let names = |query: &str| -> Vec<String> {
        let mut statement = database.prepare(query).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for table in names("SELECT name FROM sqlite_master WHERE type = 'table'") {
        let columns = names(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let arrays = columns.iter().map(|column| {
            let mut statement =
                database.prepare(&format!("SELECT {column} FROM {table} ORDER BY rowid")).unwrap();
            let cells = statement.query_map([], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
            let cells: Vec<_> = cells.map(Result::unwrap).collect();
            let is_text = cells.iter().any(|cell| matches!(cell, rusqlite::types::Value::Text(_)));
            let array: ArrayRef = if is_text {
                let text = |cell: &rusqlite::types::Value| match cell {
                    rusqlite::types::Value::Text(text) => Some(text.clone()),
                    _ => None,
                };
                std::sync::Arc::new(cells.iter().map(text).collect::<StringArray>())
            } else {
                let number = |cell: &rusqlite::types::Value| match cell {
                    rusqlite::types::Value::Integer(number) => Some(*number),
                    _ => None,
                };
                std::sync::Arc::new(cells.iter().map(number).collect::<Int64Array>())
            };
            (column.as_str(), array, true)
        });
        let batch = RecordBatch::try_from_iter_with_nullable(arrays).unwrap();
        let file = fs::File::create(out.join(format!("{table}.parquet"))).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    out
}

#[test]
fn a_folder_of_parquet_files_says_what_the_database_does() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = export(directory.path(), "");
    let folder = parquet_dir(&sqlite, directory.path());
    let ((_kept, one), (_also, other)) = (import_as("nsys", &sqlite), import_as("nsys", &folder));
    let all = "SELECT * EXCEPT (run) FROM events ORDER BY ts, kind, op";
    assert_eq!(stdout(&["sql", &one, all]), stdout(&["sql", &other, all]));
    assert_eq!(provenance(&one), provenance(&other));
    // The folder is recognised, where a folder of runs would be, too.
    let folder = folder.to_str().unwrap();
    assert_eq!(stdout(&["sql", folder, "SELECT count(*) AS n FROM events"]), "n\n11\n");
    for (change, words) in [
        ("ALTER TABLE OSRT_API DROP COLUMN globalTid", "its table OSRT_API has no column globalTid"),
        ("UPDATE OSRT_API SET start = 'soon'", "table OSRT_API, row 1: start is of type Text"),
        ("UPDATE OSRT_API SET nameId = 99", "table OSRT_API, row 1: nameId names no text of StringIds"),
        ("UPDATE SCHED_EVENTS SET globalTid = NULL WHERE cpu = 1", "table SCHED_EVENTS, row 5"),
        ("DROP TABLE StringIds", "it has no table StringIds"),
    ] {
        import_refused("nsys", &parquet_dir(&export(directory.path(), change), directory.path()), words);
    }
    let folder = parquet_dir(&export(directory.path(), ""), directory.path());
    let file = folder.join("OSRT_API.parquet");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    import_refused("nsys", &folder, "OSRT_API.parquet");
}
