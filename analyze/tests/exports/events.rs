//! Rows, through every format that has them and back.

use std::fs;

use arrow::{ipc::reader::FileReader, json::LineDelimitedWriter};

use super::support::{numbers, path, refused, stdout, testdata};

/// Every row as JSON, which tells an empty text from none, in the order of the file.
fn rows(run: &str) -> String {
    stdout(&["sql", run, "SELECT * EXCEPT (run) FROM events", "--format", "ndjson"])
}

/// What a run says about itself, but for its size.
fn provenance(run: &str) -> serde_json::Value {
    let info: serde_json::Value = serde_json::from_str(&stdout(&["info", "--json", run])).unwrap();
    info[0]["provenance"].clone()
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
