//! Foreign files that were made to hang a program or to take all its memory: each is refused with its place and the limit.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

use super::{
    causes::ingero_with_one_slow_free,
    imports::export,
    support::{outcome, path, provenance, refused, stdout},
};

/// Refused with the code of bad input and these words, leaving nothing behind.
fn import_refused(format: &[&str], file: &Path, words: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let message =
        refused(&[&["import", format[0], path(file)][..], &format[1..], &["--out", path(&out)]].concat());
    for words in words {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(message.contains(path(file)), "it names no file: {message}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something is left");
}

const INGERO: &str = "CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT);";
const COLUMNS: &str = "id, timestamp, pid, tid, source, op, duration, gpu_id, arg0, arg1, ret_code";

fn database(directory: &Path, sql: &str) -> PathBuf {
    let file = directory.join("trace.db");
    let _ = fs::remove_file(&file);
    rusqlite::Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    file
}

#[test]
fn a_view_in_place_of_a_table_does_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let endless = format!(
        "{INGERO} CREATE VIEW events ({COLUMNS}) AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) \
         SELECT x, x, 1, 1, 1, 1, 1, 0, 0, 0, 0 FROM n;"
    );
    let file = database(directory.path(), &endless);
    import_refused(&["ingero"], &file, &["its events is a view"]);
    // To tell what it is does not run it either.
    assert!(refused(&["info", path(&file)]).contains("trace.db"));
    let virtual_table = format!("{INGERO} CREATE VIRTUAL TABLE events USING fts5(a);");
    import_refused(
        &["ingero"],
        &database(directory.path(), &virtual_table),
        &["its events is a virtual table"],
    );
    let generated = format!(
        "{INGERO} CREATE TABLE events (id, timestamp AS (length(zeroblob(1000000000))), pid, tid, source, op, \
         duration, gpu_id, arg0, arg1, ret_code);"
    );
    import_refused(&["ingero"], &database(directory.path(), &generated), &["generated column timestamp"]);
}

#[test]
fn a_long_value_of_a_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let long = format!(
        "{INGERO} CREATE TABLE events ({COLUMNS}); INSERT INTO ops VALUES (1, 3, printf('%.*c', 20000000, 'x'));"
    );
    let words = ["table ops: ", "the limit sqlite_value_bytes of 16777216"];
    import_refused(&["ingero"], &database(directory.path(), &long), &words);
}

#[test]
fn changes_beside_a_database_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("trace.db"), directory.path().join("run.parquet"));
    ingero_with_one_slow_free(&file);
    fs::write(directory.path().join("trace.db-wal"), [7; 100]).unwrap();
    stdout(&["import", "ingero", path(&file), "--out", path(&out)]);
    let limits = provenance(path(&out))["not_captured"].to_string();
    assert!(limits.contains("trace.db-wal"), "{limits}");
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// Writes so many mebibytes of one byte with gzip, with a text before and after. A gzip file may have several members.
fn bomb(file: &Path, before: &str, byte: u8, mebibytes: usize, after: &str) {
    let piece = packed(&vec![byte; 1 << 20]).repeat(mebibytes);
    fs::write(file, [packed(before.as_bytes()), piece, packed(after.as_bytes())].concat()).unwrap();
}

#[test]
fn a_cell_a_line_and_a_nest_without_end_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rows.gz");
    let limit = "the limit record_bytes of 16777216";
    let head = "ts,kind,op,pid,tid\n1,call,a,1,1\n2,call,";
    bomb(&file, head, b'x', 17, ",1,1\n");
    import_refused(&["events"], &file, &["line 3: ", limit]);
    bomb(&file, &format!("{head}\""), b'\n', 17, "\",1,1\n");
    import_refused(&["events"], &file, &["line 3: ", limit]);
    let map = "ts=ts,kind='call',op=op,pid=pid,tid=tid";
    import_refused(&["csv", "--map", map], &file, &["line 3: ", limit]);
    bomb(&file, "", b'x', 17, "");
    import_refused(&["csv", "--map", map], &file, &["line 1: ", limit]);
    let row = "{\"ts\":1,\"kind\":\"call\",\"op\":\"a\",\"pid\":1,\"tid\":1}\n";
    bomb(&file, &format!("{row}{{\"ts\":2,\"op\":\""), b'x', 17, "\"}\n");
    import_refused(&["events"], &file, &["line 2: ", limit]);
    bomb(&file, &format!("{row}{{\"ts\":"), b'[', 4, "");
    import_refused(&["events"], &file, &["line 2: ", "the limit nesting_count of 128"]);
    fs::write(&file, format!("{}\n", ["a"; 2000].join(","))).unwrap();
    import_refused(&["events"], &file, &["line 1: ", "the limit columns_count of 1024"]);
}

/// Honest rows that are longer than any batch are all read.
#[test]
fn long_rows_come_in_many_batches() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("rows.csv"), directory.path().join("run.parquet"));
    let detail = "d\n".repeat(250_000);
    let rows: String = (0..40).map(|ts| format!("{ts},call,f,1,1,\"{detail}\"\n")).collect();
    fs::write(&file, format!("ts,kind,op,pid,tid,detail\n{rows}")).unwrap();
    stdout(&["import", "events", path(&file), "--out", path(&out)]);
    let query = "SELECT count(*) AS n, min(length(detail)) AS least, max(length(detail)) AS most FROM events";
    assert_eq!(stdout(&["sql", path(&out), query]), "n,least,most\n40,500000,500000\n");
}

#[test]
fn a_deep_or_long_json_of_a_profile_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json.gz");
    bomb(&file, "{\"traceEvents\": [], \"a\": ", b'[', 4, "");
    import_refused(&["kineto"], &file, &["byte ", "the limit nesting_count of 128"]);
    bomb(&file, "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"", b'x', 4, "\"}]}");
    import_refused(&["kineto"], &file, &["byte ", "the limit string_bytes of 1048576"]);
}

/// Two base times that differ were tried in turn, for ever.
#[test]
fn a_base_time_that_is_there_twice_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    let events =
        "\"traceEvents\": [{\"ph\": \"X\", \"name\": \"f\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 1}]";
    let base = |ns: u64| format!("\"baseTimeNanoseconds\": {ns}");
    let events = || events.to_owned();
    for keys in [[base(1), events(), base(2)], [events(), base(1), base(2)]] {
        fs::write(&file, format!("{{{}}}", keys.join(", "))).unwrap();
        import_refused(&["kineto"], &file, &["byte ", "`baseTimeNanoseconds` is there twice"]);
    }
}

/// A run that cannot be opened is never written.
#[test]
fn a_time_that_no_run_can_hold_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.txt");
    fs::write(
        &file,
        "[{\"ph\": \"X\", \"name\": \"f\", \"pid\": 1, \"tid\": 1, \"ts\": 2305843009213694, \"dur\": 1}]",
    )
    .unwrap();
    import_refused(&["kineto"], &file, &["byte 1: ", "`ts` is 2305843009213694"]);
    fs::write(&file, "ts,dur,kind,op,pid,tid\n1,1,call,f,1,1\n2305843009213693953,,call,f,1,1\n").unwrap();
    import_refused(&["events"], &file, &["column ts: 2305843009213693953 ns is no time"]);
    let late = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 700000000000000000, end = 700000000000000001";
    import_refused(&["nsys"], &export(directory.path(), late), &["start is 700000000000000000"]);
}

#[test]
fn compressed_rows_that_are_cut_off_are_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rows.csv.gz");
    let whole = packed(b"ts,kind,op,pid,tid\n1,call,f,1,1\n");
    fs::write(&file, &whole[..whole.len() - 12]).unwrap();
    import_refused(&["events"], &file, &["the compressed data is damaged or cut off"]);
}

#[test]
fn a_long_packet_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.pftrace");
    // A packet of 2^35 - 1 bytes, of which four are there.
    fs::write(&file, b"\x0a\xff\xff\xff\xff\x7fabcd").unwrap();
    import_refused(&["perfetto"], &file, &["byte 0: ", "the limit message_bytes of 67108864"]);
    // A bundle with more events than one has: each is an empty message.
    let events = [0x12, 0x00].repeat((1 << 20) + 1);
    let length = |count: usize| {
        let (mut bytes, mut left) = (Vec::new(), count);
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    };
    let bundle = [&[0x0a_u8][..], &length(events.len())[..], &events[..]].concat();
    fs::write(&file, [&[0x0a_u8][..], &length(bundle.len())[..], &bundle[..]].concat()).unwrap();
    import_refused(&["perfetto"], &file, &["byte ", "the limit bundle_events_count of 1048576"]);
}

/// Databases that are changed anywhere are read or refused, and nothing hangs or panics.
#[test]
fn random_damage_of_a_database_never_panics() {
    let directory = tempfile::tempdir().unwrap();
    let ingero = directory.path().join("ingero.db");
    ingero_with_one_slow_free(&ingero);
    let mut random = analyze_run::random::Random(0x51_17e5);
    let mut refused_count = 0;
    for (format, file) in [("ingero", ingero), ("nsys", export(directory.path(), ""))] {
        let whole = fs::read(&file).unwrap();
        for _ in 0..15 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(30) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            fs::write(&file, &bytes).unwrap();
            let out = directory.path().join("run.parquet");
            let (code, _, message) =
                outcome(&["import", format, path(&file), "--out", path(&out), "--force"]);
            assert!(matches!(code, 0 | 2), "{code}: {message}");
            refused_count += usize::from(code == 2);
        }
    }
    assert!(refused_count > 3, "{refused_count}");
}
