//! Rows, through every format that has them and back.

use std::fs;

use arrow::{ipc::reader::FileReader, json::LineDelimitedWriter};

use crate::support::{numbers, path, provenance, refused, stdout, testdata};

/// Every row as JSON, which tells an empty text from none, in the order of the file.
fn rows(run: &str) -> String {
    stdout(&["sql", run, "SELECT * EXCEPT (run) FROM events", "--format", "ndjson"])
}

#[test]
fn rows_come_back_from_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (run, kineto, snapshot) = (testdata("h200/shared.parquet"), file("k.parquet"), file("s.parquet"));
    stdout(&["import", &testdata("kineto/small.json.gz"), "--out", &kineto]);
    stdout(&["import", &testdata("snapshots/small.p4.pickle"), "--out", &snapshot]);
    let again = file("again.parquet");
    let cases = [(&run, &["a.csv", "a.ndjson.gz"][..]), (&kineto, &["a.csv.gz"]), (&snapshot, &["a.ndjson"])];
    for (run, names) in cases {
        stdout(&["verify", run]);
        let original = rows(run);
        assert!(original.lines().count() > 5);
        for name in names {
            let table = file(name);
            stdout(&["export", "events", run, "--out", &table, "--force"]);
            stdout(&["import", &table, "--out", &again, "--force"]);
            stdout(&["verify", &again]);
            assert!(rows(&again) == original, "{run} through {name}");
            let ours = provenance(&again);
            let clock = numbers(run, "SELECT min(ts), max(ts + coalesce(dur, 0)) FROM events");
            assert_eq!(ours["clock"]["start_ns"], clock[0]);
            assert_eq!(ours["clock"]["end_ns"], clock[1]);
            assert_eq!(ours["lost_is_counted"], false);
            assert!(ours["not_captured"][0].as_str().unwrap().contains("rows only"));
        }
        let table = file("a.parquet");
        stdout(&["sql", run, "SELECT * EXCEPT (run) FROM events", "--out", &table, "--force"]);
        stdout(&["import", "events", &table, "--out", &again, "--force"]);
        assert!(rows(&again) == original, "{run} through a Parquet table");
        stdout(&["slice", run, "--out", &again, "--force"]);
        assert!(rows(&again) == original, "{run} as Parquet");
        assert_eq!(provenance(&again), provenance(run));
    }
}

/// Arrow, read by the library's own reader.
#[test]
fn arrow_has_the_rows_and_what_the_run_says() {
    let directory = tempfile::tempdir().unwrap();
    let (run, out) = (testdata("h200/shared.parquet"), directory.path().join("a.arrow"));
    stdout(&["export", "events", &run, "--out", path(&out)]);
    let reader = FileReader::try_new(fs::File::open(&out).unwrap(), None).unwrap();
    let schema = reader.schema();
    let said: serde_json::Value = serde_json::from_str(&schema.metadata()["inquest.run"]).unwrap();
    assert_eq!(said, provenance(&run));
    assert_eq!(schema.metadata()["inquest.format_version"], "1");
    let mut json = LineDelimitedWriter::new(Vec::new());
    for batch in reader {
        json.write(&batch.unwrap()).unwrap();
    }
    json.finish().unwrap();
    assert!(String::from_utf8(json.into_inner()).unwrap() == rows(&run));
    let sizes = [out.as_path(), std::path::Path::new(&run)].map(|file| fs::metadata(file).unwrap().len());
    assert!(sizes[0] < 6 * sizes[1], "the Arrow file is far larger than the run: {sizes:?}");
}

/// Back from Arrow come the rows, and what the run says about itself.
#[test]
fn arrow_becomes_the_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let snapshot = file("s.parquet");
    stdout(&["import", &testdata("snapshots/small.p4.pickle"), "--out", &snapshot]);
    for run in [testdata("h200/shared.parquet"), snapshot] {
        let (table, again) = (file("a.arrow"), file("again.parquet"));
        stdout(&["export", "events", &run, "--out", &table, "--force"]);
        stdout(&["import", &table, "--out", &again, "--force"]);
        stdout(&["verify", &again]);
        assert!(rows(&again) == rows(&run), "{run}");
        assert_eq!(provenance(&again), provenance(&run));
    }
    let table = file("a.arrow");
    let whole = fs::read(&table).unwrap();
    fs::write(&table, &whole[..whole.len() - 20]).unwrap();
    let why = refused(&["import", "events", &table, "--out", &file("none.parquet")]);
    assert!(why.contains("a.arrow: byte "), "{why}");
}

/// Times of a table are converted from their unit, exactly.
#[test]
fn a_table_with_microseconds_is_read_in_nanoseconds() {
    use std::sync::Arc;

    use arrow::{
        array::{
            ArrayRef, DurationMicrosecondArray, Int32Array, RecordBatch, StringArray,
            TimestampMicrosecondArray,
        },
        ipc::writer::FileWriter,
    };
    let directory = tempfile::tempdir().unwrap();
    let word = |word: &str| Arc::new(StringArray::from(vec![word])) as ArrayRef;
    let number = || Arc::new(Int32Array::from(vec![7])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([
        ("ts", Arc::new(TimestampMicrosecondArray::from(vec![1_790_857_026_123_456])) as ArrayRef),
        ("dur", Arc::new(DurationMicrosecondArray::from(vec![5])) as ArrayRef),
        ("kind", word("call")),
        ("op", word("cudaFree")),
        ("pid", number()),
        ("tid", number()),
    ])
    .unwrap();
    let (parquet, arrow) = (directory.path().join("t.parquet"), directory.path().join("t.arrow"));
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(fs::File::create(&parquet).unwrap(), batch.schema(), None)
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut writer = FileWriter::try_new(fs::File::create(&arrow).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    for table in [parquet, arrow] {
        let out = directory.path().join("run.parquet");
        stdout(&["import", "events", path(&table), "--out", path(&out), "--force"]);
        let found = stdout(&["sql", path(&out), "SELECT ts, dur FROM events"]);
        assert_eq!(found, "ts,dur\n1790857026123456000,5000\n");
    }
}

#[test]
fn rows_that_are_none_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("a"), directory.path().join("a.parquet"));
    let cases = [
        (
            "ts,kind,op,pid,tid\n1,call,a,1,1\nx,call,a,1,1\n",
            "after 0 rows: Parser error: Error while parsing value 'x'",
        ),
        ("ts,kind,op,pid,tid,price\n1,call,a,1,1,2\n", "column price is none of the table events"),
        ("ts,kind,op,pid\n1,call,a,1\n", "it has no column tid"),
        ("ts,kind,op,pid,tid\n1,call,a,1\n", "incorrect number of fields for line 2"),
        ("ts,kind,op,pid,tid\n,call,a,1,1\n", "ts"),
        ("ts,kind,op,pid,tid\n1,call,a,-1,1\n", "'-1'"),
        ("{\"ts\":1,\"kind\":\"call\",\"op\":\"a\",\"pid\":1}\n", "tid"),
        ("{\"ts\":1,\"kind\":\"call\",\"op\":\"a\",\"pid\":1,\"tid\":1,\"price\":1}\n", "price"),
        ("{\"ts\":1,", "after 0 rows"),
        ("PAR1 and no more", "a: "),
        ("", "it has no column ts"),
    ];
    for (text, expected) in cases {
        fs::write(&file, text).unwrap();
        let why = refused(&["import", "events", path(&file), "--out", path(&out)]);
        assert!(why.contains(expected), "{text}: {why}");
        assert!(!out.exists(), "{text}");
    }
    fs::write(&file, "ts,kind,op,pid,tid\n1,call,a,1,1\n").unwrap();
    let why = refused(&["import", path(&file), "--out", path(&file), "--force"]);
    assert!(why.contains("is an input"), "{why}");
    let run = testdata("memory/pause.parquet");
    let why = refused(&["export", "events", &run, "--out", path(&directory.path().join("a.xlsx"))]);
    assert!(why.contains(".ndjson"), "{why}");
}

/// Kinds that do not exist get in, and `verify` says so.
#[test]
fn what_rows_say_is_verified() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("a.csv"), directory.path().join("a.parquet"));
    fs::write(&file, "ts,kind,op,pid,tid\n1,cal,a,1,1\n").unwrap();
    stdout(&["import", path(&file), "--out", path(&out)]);
    assert!(refused(&["verify", path(&out)]).contains("is broken"));
}

#[test]
fn a_table_of_any_tool_is_read_by_a_map() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("a.csv"), directory.path().join("a.parquet"));
    let map = "ts=time_us:us,dur=lat:ms,op=func,tid=tid,addr=ptr,size_bytes=size,kind='call',pid='9'";
    let import =
        ["import", "csv", path(&file), "--out", path(&out), "--force", "--delimiter", "tab", "--map"];
    let args = |map: &'static str| import.iter().copied().chain([map]).collect::<Vec<_>>();
    let head = "time_us\tlat\tfunc\ttid\tptr\tsize\n";
    fs::write(&file, format!("{head}5.5\t1.25\tcudaMalloc\t7\t0x7f00\t100\n3\t\t\"cuda\nFree\"\t7\t\t\n"))
        .unwrap();
    stdout(&args(map));
    let rows = stdout(&[
        "sql",
        path(&out),
        "SELECT ts, dur, kind, op, pid, tid, addr, size_bytes FROM events ORDER BY ts DESC",
    ]);
    assert_eq!(
        rows,
        "ts,dur,kind,op,pid,tid,addr,size_bytes\n5500,1250000,call,cudaMalloc,9,7,32512,100\n3000,,call,\"cuda\nFree\",9,7,,\n"
    );
    let (ok, long) = ("1\t1\tf\t7\t\t\n", "1\t1\t\"f\ng\"\t7\t\t\n");
    for (rows, map, words) in [
        (format!("{ok}x\t1\tf\t7\t\t\n"), map, "line 3: column time_us: `x` is no time that ts can hold"),
        (format!("{long}1\t-1\tf\t7\t\t\n"), map, "line 4: column lat: `-1` is no time that dur can hold"),
        (format!("{ok}1\t1\tf\t7.5\t\t\n"), map, "line 3: column tid: `7.5` is no number that tid can hold"),
        (format!("{ok}\t1\tf\t7\t\t\n"), map, "line 3: column time_us: there is no value, and ts needs one"),
        (
            ok.to_owned(),
            "ts=time,kind='call',op=func,pid='9',tid=tid",
            "line 1: column time: there is none in line 1; perhaps time_us",
        ),
        (
            ok.to_owned(),
            "ts=time_us,kind=func,op=func,pid='9',tid=tid",
            "line 2: column func: `f` is no kind",
        ),
        (ok.to_owned(), "ts=time_us,kind='cal',op=func,pid='9',tid=tid", "perhaps call"),
        (ok.to_owned(), "ts=time_us,kind='call',op=func,tid=tid", "pid is missing"),
        (ok.to_owned(), "tsx=time_us", "a run has no column tsx; perhaps ts"),
        ("1\t1\n".to_owned(), map, "incorrect number of fields"),
    ] {
        fs::write(&file, format!("{head}{rows}")).unwrap();
        let why = refused(&args(map));
        assert!(why.contains(words), "{words}: {why}");
    }
    let why = refused(&["import", "csv", path(&file), "--out", path(&out), "--force"]);
    assert!(why.contains("csv needs --map"), "{why}");
    let why = refused(&["import", "events", path(&file), "--out", path(&out), "--map", map, "--force"]);
    assert!(why.contains("are for the format csv"), "{why}");
}
