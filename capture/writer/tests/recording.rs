//! Rows in, file out; a cut recording is recovered up to the cut.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::Int64Type,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use trace_schema::{Kind, Row, Run};
use trace_writer::{Recorder, WriteError, recover};

fn row(ts: i64) -> Row {
    Row {
        dur: (ts % 3 != 0).then_some(ts * 2),
        comm: (ts % 2 == 0).then(|| "python3".into()),
        addr: Some(u64::MAX - ts as u64),
        size_bytes: Some(-ts),
        ret: Some(-1),
        ..Row::new(ts, Kind::Call, "cudaMalloc".into(), 7, u32::MAX)
    }
}

fn read(path: &Path) -> RecordBatch {
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let schema = builder.schema().clone();
    let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
    arrow::compute::concat_batches(&schema, &batches).unwrap()
}

#[test]
fn rows_come_back_sorted_and_whole() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let mut recorder = Recorder::create(&out, false, &Run::default()).unwrap();
    for ts in (0..200_000).rev() {
        recorder.push(&row(ts)).unwrap();
    }
    let finished = recorder.finish(&Run { producer: "test".to_owned(), ..Run::default() }).unwrap();
    assert_eq!(finished.rows_count, 200_000);
    assert_eq!(finished.size_bytes, fs::metadata(&out).unwrap().len());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    let batch = read(&out);
    let column = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    let (ts, dur) = (column("ts"), column("dur"));
    for i in 0..200_000 {
        assert_eq!(ts.value(i), i as i64);
        assert_eq!(dur.is_null(i), i % 3 == 0);
    }
    assert_eq!(
        batch.column_by_name("addr").unwrap().as_primitive::<arrow::datatypes::UInt64Type>().value(5),
        u64::MAX - 5
    );
}

/// Rows in no order at all, in more than two row groups.
#[test]
fn row_groups_of_unsorted_rows_do_not_overlap() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    const ROWS: i64 = (5 << 20) / 2;
    // Two rows a time, the second of which comes much later: they keep their order.
    let time = |number: i64| (number * 7_654_321) % (ROWS / 2);
    let mut recorder = Recorder::create(&out, false, &Run::default()).unwrap();
    for number in 0..ROWS {
        let op = if number < ROWS / 2 { "cudaMalloc" } else { "cudaFree" };
        let row = Row { size_bytes: Some(number), ..Row::new(time(number), Kind::Call, op.into(), 7, 7) };
        recorder.push(&row).unwrap();
    }
    let finished = recorder.finish_sorted(&Run { producer: "test".to_owned(), ..Run::default() }).unwrap();
    assert_eq!(finished.rows_count, ROWS as u64);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&out).unwrap()).unwrap();
    assert_eq!(builder.metadata().num_row_groups(), 3);
    let batch = read(&out);
    let column = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    let (ts, number) = (column("ts"), column("size_bytes"));
    for row in 0..ROWS as usize {
        assert_eq!(ts.value(row), row as i64 / 2);
        assert_eq!(time(number.value(row)), ts.value(row));
        assert_eq!(number.value(row) < ROWS / 2, row % 2 == 0);
    }
}

#[test]
fn a_cut_recording_keeps_what_was_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    let mut recorder =
        Recorder::create(&out, false, &Run { producer: "test".to_owned(), ..Run::default() }).unwrap();
    for ts in 0..1000 {
        recorder.push(&row(ts)).unwrap();
    }
    recorder.flush().unwrap();
    let flushed = fs::metadata(&recording).unwrap().len();
    for ts in 1000..5000 {
        recorder.push(&row(ts)).unwrap();
    }
    recorder.flush().unwrap();
    let bytes = fs::read(&recording).unwrap();
    std::mem::forget(recorder);
    // Cut at every kind of place: after a flush, inside a batch, inside the header.
    for (cut, rows) in [(flushed, 1000), (flushed + 100, 1000), (bytes.len() as u64, 5000)] {
        fs::write(&recording, &bytes[..cut as usize]).unwrap();
        assert_eq!(recover(&recording, &out, true).unwrap().rows_count, rows, "cut at {cut}");
    }
    fs::write(&recording, &bytes[..20]).unwrap();
    assert!(matches!(recover(&recording, &out, true), Err(WriteError::NotARecording { .. })));
    fs::write(&recording, b"something else entirely").unwrap();
    assert!(matches!(recover(&recording, &out, true), Err(WriteError::NotARecording { .. })));
}

/// Whatever byte is another: what stands before its frame is recovered, and nothing else.
#[test]
fn a_damaged_recording_keeps_what_stands_before_the_damage() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    let mut recorder = Recorder::create(&out, false, &Run::default()).unwrap();
    // Where frames end, and the rows up to there.
    let mut frames = Vec::new();
    for upto in [0, 100, 300, 700] {
        (frames.last().map_or(0, |(_, rows)| *rows)..upto).for_each(|ts| recorder.push(&row(ts)).unwrap());
        recorder.flush().unwrap();
        frames.push((fs::metadata(&recording).unwrap().len(), upto));
    }
    let bytes = fs::read(&recording).unwrap();
    std::mem::forget(recorder);
    let mut seed = 11_u64;
    for round in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Every byte of the beginning, and any other.
        let place = if round < 40 { round } else { (seed >> 33) as usize % bytes.len() };
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (seed >> 29 & 7);
        fs::write(&recording, &damaged).unwrap();
        let found = recover(&recording, &out, true).map(|found| found.rows_count);
        let whole = frames.iter().rev().find(|(end, _)| *end <= place as u64);
        match (found, whole) {
            (Ok(rows), Some((_, expected))) => assert_eq!(rows, *expected as u64, "byte {place}"),
            (Err(WriteError::NotARecording { .. }), None) => (),
            (found, _) => panic!("byte {place}: {found:?}"),
        }
    }
}

#[test]
fn nothing_is_overwritten_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    fs::write(&out, "precious").unwrap();
    assert!(matches!(Recorder::create(&out, false, &Run::default()), Err(WriteError::Exists(_))));
    fs::remove_file(&out).unwrap();
    let recorder = Recorder::create(&out, false, &Run::default()).unwrap();
    std::mem::forget(recorder);
    assert!(matches!(Recorder::create(&out, false, &Run::default()), Err(WriteError::Unfinished(_))));
    Recorder::create(&out, true, &Run::default()).unwrap().discard();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
