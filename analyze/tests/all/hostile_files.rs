//! Files with odd names, forged files and damaged ones: each gives the right answer or an error that names it.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use analyze_run::{random::Random, reading::plain, run_file};
use arrow::{
    array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt32Array},
    datatypes::Int32Type,
};
use parquet::{
    arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter, arrow_writer::ArrowWriterOptions},
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::{EnabledStatistics, WriterProperties},
    },
};
use serde_json::{Value, json};
use trace_schema::{FORMAT_VERSION, Kind, META_RUN, META_VERSION, Row, Run};
use trace_writer::Recorder;

use super::support::{json as answer, numbers, outcome, path, refused, stdout, testdata};

/// Columns of a file by name; a name may be there twice.
type Columns = Vec<(&'static str, ArrayRef)>;

/// Calls of one thread at these times, as (ts, dur).
fn calls(times: &[(i64, i64)]) -> Columns {
    let text = |word: &str| -> ArrayRef {
        Arc::new(times.iter().map(|_| word).collect::<DictionaryArray<Int32Type>>())
    };
    let number = |value: u32| -> ArrayRef { Arc::new(UInt32Array::from(vec![value; times.len()])) };
    vec![
        ("ts", Arc::new(Int64Array::from_iter_values(times.iter().map(|(ts, _)| *ts)))),
        ("dur", Arc::new(Int64Array::from_iter_values(times.iter().map(|(_, dur)| *dur)))),
        ("kind", text("call")),
        ("op", text("cudaMalloc")),
        ("pid", number(7)),
        ("tid", number(8)),
    ]
}

/// How a file is forged.
#[derive(Clone)]
struct Forged {
    run: Value,
    arrow_schema: Option<String>,
    statistics: EnabledStatistics,
    groups_count: usize,
}

impl Default for Forged {
    fn default() -> Self {
        let run = serde_json::to_value(Run::default()).unwrap();
        Self { run, arrow_schema: None, statistics: EnabledStatistics::Page, groups_count: 1 }
    }
}

impl Forged {
    /// Writes a file with these columns, in as many row groups as asked for, each of which has all rows.
    fn write(&self, out: &Path, columns: &Columns) {
        let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let mut pairs =
            vec![pair(META_VERSION, FORMAT_VERSION.to_string()), pair(META_RUN, self.run.to_string())];
        pairs.extend(self.arrow_schema.iter().map(|schema| pair(ARROW_SCHEMA_META_KEY, schema.clone())));
        let order = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(pairs))
            .set_statistics_enabled(self.statistics)
            .set_sorting_columns(Some(vec![order]))
            .build();
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let batch = RecordBatch::try_from_iter(columns.clone()).unwrap();
        let file = File::create(out).unwrap();
        let mut writer = ArrowWriter::try_new_with_options(file, batch.schema(), options).unwrap();
        for _ in 0..self.groups_count {
            writer.write(&batch).unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
    }
}

/// Counts the rows by statistics and by reading them all.
const COUNTS: [&str; 2] =
    ["SELECT count(*) AS n FROM events", "SELECT count(*) AS n FROM events WHERE ts % 2 > -2"];

#[test]
fn a_file_name_is_no_pattern() {
    let folder = tempfile::tempdir().unwrap();
    let run = testdata("memory/pause.parquet");
    let rows_count = answer(&["info", "--json", &run])[0]["rows_count"].as_u64().unwrap();
    let expected = format!("n\n{rows_count}\n");
    let names: [&[u8]; 10] = [
        b"run[1].parquet",
        b"a?b.parquet",
        b"a*b.parquet",
        b"x%20y.parquet",
        b"50%.parquet",
        b"h#x.parquet",
        b"with space.parquet",
        b"new\nline.parquet",
        b"file:run.parquet",
        b"bad\xff\xfe.parquet",
    ];
    for name in names {
        let file = folder.path().join(OsString::from_vec(name.to_vec()));
        fs::copy(&run, &file).unwrap();
        for query in COUNTS {
            let mut command = Command::new(env!("CARGO_BIN_EXE_analyze"));
            let output = command.arg("sql").arg(&file).arg(query).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name:?} {query}: {said}");
        }
        let output = Command::new(env!("CARGO_BIN_EXE_analyze")).arg("summary").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Where nothing has the name, it is a pattern.
    let pattern = format!("{}/a[?*]b.parquet", folder.path().display());
    assert_eq!(numbers(&pattern, COUNTS[1]), [2 * i64::try_from(rows_count).unwrap()]);
    let none = refused(&["info", &format!("{}/none[12].parquet", folder.path().display())]);
    assert!(none.contains("it holds no run") && !none.contains("Parquet file"), "{none}");
}

#[test]
fn an_embedded_arrow_schema_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.parquet");
    let columns = calls(&[(1, 2), (5, 3), (9, 1)]);
    let long = ["/".repeat(4096), "QUFBQUFB".repeat(500)];
    for schema in ["", "!", "AAAA", "/////wAAAAA=", long[0].as_str(), long[1].as_str()] {
        let forged = Forged { arrow_schema: Some(schema.to_owned()), ..Forged::default() };
        forged.write(&file, &columns);
        let sums =
            numbers(path(&file), "SELECT count(*), sum(dur), min(ts) FROM events WHERE op = 'cudaMalloc'");
        assert_eq!(sums, [3, 6, 1], "{schema:.20}");
        stdout(&["summary", path(&file)]);
    }
}

#[test]
fn columns_of_another_type_or_twice_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.parquet");
    let times = [(1_000, 2), (2_000, 3)];
    let mut columns = calls(&times);
    columns[0].1 = Arc::new(TimestampMicrosecondArray::from(vec![1, 2]));
    Forged::default().write(&file, &columns);
    let said = refused(&["sql", path(&file), COUNTS[0]]);
    assert!(said.contains("its column ts is Timestamp") && said.contains("not int64"), "{said}");
    let mut columns = calls(&times);
    columns.push(columns[0].clone());
    Forged::default().write(&file, &columns);
    let said = refused(&["sql", path(&file), COUNTS[0]]);
    assert!(said.contains("it has the column ts twice"), "{said}");
}

#[test]
fn extreme_times_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.parquet");
    let (bound, beyond) = (1_i64 << 61, (1_i64 << 61) + 1);
    for statistics in [EnabledStatistics::None, EnabledStatistics::Page] {
        let forged = Forged { statistics, ..Forged::default() };
        for (times, column) in [
            ([(0, 1), (i64::MAX, 1)], "ts"),
            ([(i64::MIN, 1), (0, 1)], "ts"),
            ([(0, 1), (beyond, 1)], "ts"),
            ([(0, i64::MAX), (1, 1)], "dur"),
            ([(0, 1), (1, i64::MIN)], "dur"),
        ] {
            forged.write(&file, &calls(&times));
            for words in [
                vec!["sql", path(&file), "SELECT ts, dur FROM events"],
                vec!["summary", path(&file)],
                vec!["chains", path(&file)],
            ] {
                let said = refused(&words);
                let expected = format!("column {column}: ");
                assert!(said.contains(path(&file)) && said.contains(&expected), "{words:?}: {said}");
            }
        }
        forged.write(&file, &calls(&[(-bound, bound), (bound, bound)]));
        let widest = "SELECT max(ts + dur) - min(ts) - max(dur) FROM events";
        assert_eq!(numbers(path(&file), widest), [2 * bound]);
        stdout(&["summary", path(&file)]);
    }
}

#[test]
fn a_clock_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.parquet");
    for (start_ns, end_ns, what) in
        [(0, i64::MAX, "clock.end_ns"), (i64::MIN, 1, "clock.start_ns"), (5, 4, "is before the start")]
    {
        let mut forged = Forged::default();
        forged.run["clock"]["start_ns"] = json!(start_ns);
        forged.run["clock"]["end_ns"] = json!(end_ns);
        forged.write(&file, &calls(&[(1, 1)]));
        let said = refused(&["info", path(&file)]);
        assert!(said.contains(what) && said.contains(path(&file)), "{said}");
    }
}

#[test]
fn a_recording_is_told_from_a_damaged_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.parquet");
    let mut recorder = Recorder::record(&run, false, &Run::default()).unwrap();
    recorder.push(&Row::new(1, Kind::Call, "cudaMalloc".into(), 7, 7)).unwrap();
    recorder.flush().unwrap();
    let recording = folder.path().join("run.parquet.recording");
    for file in [&recording, &run] {
        let said = refused(&["info", path(file)]);
        let command = format!("analyze recover {}", recording.display());
        assert!(said.contains(&command) && said.contains("under way"), "{said}");
    }
    recorder.discard();
    assert!(refused(&["info", path(&run)]).contains("No such file"));
}

/// Reads everything that a file says, as the verbs do. Returns the number of rows.
fn read(file: &Path) -> Option<u64> {
    let run = run_file::open(file).ok()?;
    let batches = plain::batches(run.paths.clone(), None).collect::<Result<Vec<_>, _>>().ok()?;
    let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(found as u64, run.rows_count, "rows are missing");
    Some(run.rows_count)
}

/// Bytes are flipped, cut out, doubled and zeroed. What comes of it is an error or all rows, and never a panic.
#[test]
fn no_mutation_of_a_file_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, file): (PathBuf, PathBuf) =
        (folder.path().join("whole.parquet"), folder.path().join("mutated.parquet"));
    let times: Vec<(i64, i64)> = (0..300).map(|row| (row * 10, row % 7)).collect();
    Forged { groups_count: 3, ..Forged::default() }.write(&whole, &calls(&times));
    assert_eq!(read(&whole), Some(900));
    let bytes = fs::read(&whole).unwrap();
    let mut random = Random::nth(17, 1);
    let mut below = |count: usize| random.below(count);
    let (mut errors, mut answers) = (0, 0);
    for round in 0..3000 {
        let mut mutated = bytes.clone();
        // Half of the mutations hit the footer, which decides how everything else is read.
        let at = match round % 2 {
            0 => below(mutated.len()),
            _ => mutated.len() - 1 - below(mutated.len() / 3),
        };
        match below(5) {
            0 => mutated[at] ^= 1 << below(8),
            1 => mutated[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
            2 => drop(mutated.drain(at..(at + 1 + below(8)).min(bytes.len()))),
            3 => mutated.insert(at, below(256) as u8),
            _ => mutated[at..].iter_mut().take(1 + below(16)).for_each(|byte| *byte = 0),
        }
        fs::write(&file, &mutated).unwrap();
        match read(&file) {
            None => errors += 1,
            Some(_) => answers += 1,
        }
    }
    assert!(errors > 100 && answers > 100, "{errors} errors, {answers} answers");
}

/// Few bytes that stand for many rows, and a text that is larger than any memory.
#[test]
fn what_needs_too_much_memory_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bomb.parquet");
    Forged { groups_count: 40, ..Forged::default() }.write(&file, &calls(&vec![(1_000, 1_000); 50_000]));
    assert!(fs::metadata(&file).unwrap().len() < 1 << 20);
    assert_eq!(numbers(path(&file), COUNTS[1]), [2_000_000]);
    let said = refused(&["chains", "--memory-limit", "1MiB", path(&file)]);
    assert!(said.contains("memory budget of 1.00 MiB exceeded (--memory-limit)"), "{said}");
    let query = "SELECT length(repeat('x', 2000000000) || repeat('x', 2000000000)) AS n";
    let said = refused(&["sql", "--memory-limit", "64MiB", path(&file), query]);
    assert!(said.contains("memory budget of 64.0 MiB exceeded (--memory-limit)"), "{said}");
}

/// Parquet's reader follows columns within columns by recursion, and would end the program here.
#[test]
fn a_footer_without_a_bottom_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep.parquet");
    // Version 1 and a list of 2^17 schema elements, each a group `a` with one child.
    let head = [0x15, 0x02, 0x19, 0xfc, 0x80, 0x80, 0x08];
    let elements = [0x48, 1, b'a', 0x15, 2, 0].repeat(1 << 17);
    let footer = [&head[..], &elements[..], &[0][..]].concat();
    let length = (footer.len() as u32).to_le_bytes();
    fs::write(&file, [&b"PAR1"[..], &footer[..], &length[..], &b"PAR1"[..]].concat()).unwrap();
    for words in [vec!["info", path(&file)], vec!["baseline", "list", path(&file)]] {
        let said = refused(&words);
        assert!(said.contains(path(&file)), "{words:?}: {said}");
    }
    let said = refused(&["info", path(&file)]);
    assert!(said.contains("its footer: byte ") && said.contains("131072 columns are more"), "{said}");
}

#[test]
fn control_characters_of_a_name_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x\u{1b}[31m.parquet");
    fs::write(&file, "PAR1 and nothing else").unwrap();
    let (code, _, said) = outcome(&["info", path(&file)]);
    assert!(code == 2 && !said.contains('\u{1b}') && said.contains("\\u001b[31m"), "{said}");
}
