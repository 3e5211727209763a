//! Rows in, file out; a cut recording is recovered up to the cut.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Field, Int64Type, Schema},
    ipc::writer::StreamWriter,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::{collection::vec, option, prelude::*, sample::select};
use trace_schema::{
    Bytes, Clock, FORMAT_VERSION, Kind, META_VERSION, Row, Run, TIME_LIMIT_NS, Text, arrow_schema,
};
use trace_writer::{Parts, Recorder, WriteError, part_path, recover, write};

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

fn some_row() -> impl Strategy<Value = Row> {
    let comm = option::of(select(vec!["python3", "größe", ""]).prop_map(Text::new));
    let (op, kind) = (select(vec!["cudaMalloc", "alloc", ""]), select(Kind::ALL.to_vec()));
    let numbers = (
        option::of(0..=TIME_LIMIT_NS),
        option::of(any::<u64>()),
        option::of(any::<i32>()),
        option::of(0..3_u32),
    );
    (-20..20_i64, kind, op, any::<u32>(), comm, numbers).prop_map(
        |(ts, kind, op, tid, comm, (dur, addr, ret, stack))| Row {
            dur,
            comm,
            addr,
            ret,
            stack,
            ..Row::new(ts, kind, op.into(), 7, tid)
        },
    )
}

/// Returns the values of a column as text.
fn column(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let texts = cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    texts.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Rows of any values, flushed at any places, of a recording that is finished or that ends with its recorder.
    #[test]
    fn any_rows_come_back_sorted_and_whole(
        mut rows in vec(some_row(), 0..40),
        flushes in vec(any::<bool>(), 40),
        is_finished: bool,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("run.parquet");
        let mut recorder = Recorder::record(&out, false, &Run::default()).unwrap();
        for (row, is_last) in rows.iter().zip(flushes) {
            recorder.push(row).unwrap();
            if is_last {
                recorder.flush().unwrap();
            }
        }
        let finished = if is_finished {
            recorder.finish(&Run::default()).unwrap()
        } else {
            recorder.flush().unwrap();
            drop(recorder);
            recover(&directory.path().join("run.parquet.recording"), &out, false).unwrap()
        };
        prop_assert_eq!(finished.rows_count, rows.len() as u64);
        // Rows of one time keep their order.
        rows.sort_by_key(|row| row.ts);
        let batch = read(&out);
        type Value = fn(&Row) -> Option<String>;
        let columns: [(&str, Value); 11] = [
            ("ts", |row| Some(row.ts.to_string())),
            ("dur", |row| row.dur.map(|dur| dur.to_string())),
            ("kind", |row| Some(row.kind.name().to_owned())),
            ("op", |row| Some(row.op.to_string())),
            ("pid", |row| Some(row.pid.to_string())),
            ("tid", |row| Some(row.tid.to_string())),
            ("comm", |row| row.comm.as_ref().map(|comm| comm.to_string())),
            ("addr", |row| row.addr.map(|addr| addr.to_string())),
            ("ret", |row| row.ret.map(|ret| ret.to_string())),
            ("stack", |row| row.stack.map(|stack| stack.to_string())),
            ("value", |_| None),
        ];
        for (name, value) in columns {
            let expected: Vec<_> = rows.iter().map(value).collect();
            prop_assert_eq!(column(&batch, name), expected, "{}", name);
        }
    }
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
        Recorder::record(&out, false, &Run { producer: "test".to_owned(), ..Run::default() }).unwrap();
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
    fs::remove_file(&out).unwrap();
    for cut in [0, 1, 7, 20] {
        fs::write(&recording, &bytes[..cut]).unwrap();
        let refused = recover(&recording, &out, true);
        assert!(matches!(refused, Err(WriteError::NothingRecorded(_))), "cut at {cut}: {refused:?}");
    }
    assert!(!out.exists());
    fs::write(&recording, b"something else entirely").unwrap();
    assert!(matches!(recover(&recording, &out, true), Err(WriteError::NotARecording { .. })));
}

/// Whatever byte is another: what stands before its frame is recovered, and nothing else.
#[test]
fn a_damaged_recording_keeps_what_stands_before_the_damage() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    let mut recorder = Recorder::record(&out, false, &Run::default()).unwrap();
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

/// Records some rows and ends as a kill does.
fn interrupted(out: &Path, rows_count: i64) {
    let mut recorder = Recorder::record(out, false, &Run::default()).unwrap();
    (0..rows_count).for_each(|ts| recorder.push(&row(ts)).unwrap());
    recorder.flush().unwrap();
}

#[test]
fn nothing_is_overwritten_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    fs::write(&out, "precious").unwrap();
    assert!(matches!(Recorder::record(&out, false, &Run::default()), Err(WriteError::Exists(_))));
    assert!(matches!(Recorder::create(&out, false, &Run::default()), Err(WriteError::Exists(_))));
    fs::remove_file(&out).unwrap();
    interrupted(&out, 1);
    assert!(matches!(Recorder::record(&out, false, &Run::default()), Err(WriteError::Unfinished(_))));
    Recorder::record(&out, true, &Run::default()).unwrap().discard();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_recording_without_rows_is_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    // The metadata is there as soon as the file is.
    interrupted(&out, 0);
    assert_eq!(recover(&recording, &out, false).unwrap().rows_count, 0);
    fs::remove_file(&out).unwrap();
    let head = fs::read(&recording).unwrap();
    for length in [head.len(), 30, 3, 0] {
        fs::write(&recording, &head[..length]).unwrap();
        interrupted(&out, 0);
        assert_eq!(fs::metadata(&recording).unwrap().len(), head.len() as u64, "cut at {length}");
    }
    // What is no recording is not thrown away.
    fs::write(&recording, "precious").unwrap();
    assert!(matches!(Recorder::record(&out, false, &Run::default()), Err(WriteError::Unfinished(_))));
    assert_eq!(fs::read_to_string(&recording).unwrap(), "precious");
}

#[test]
fn a_recording_in_progress_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let mut recorder = Recorder::record(&out, false, &Run::default()).unwrap();
    for force in [false, true] {
        let refused = Recorder::record(&out, force, &Run::default());
        assert!(matches!(refused, Err(WriteError::BeingRecorded(_))), "force {force}");
    }
    recorder.push(&row(1)).unwrap();
    assert_eq!(recorder.finish(&Run::default()).unwrap().rows_count, 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Links at the names that a recording uses, as another user of a shared folder could make them.
#[test]
fn links_at_the_names_of_a_recording_change_nothing_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let precious = directory.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let nothing = directory.path().join("nothing");
    let one_part = Some(Bytes(1 << 20));
    for (number, max_size) in [(0, None), (1, one_part), (2, one_part)] {
        let shared = directory.path().join(format!("shared{number}"));
        fs::create_dir(&shared).unwrap();
        let out = shared.join("run.parquet");
        let part = if number == 0 { out.clone() } else { part_path(&out, number) };
        let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", part.display()));
        // Names that were once predictable are not used at all.
        symlink(&precious, beside(".tmp")).unwrap();
        symlink(&precious, beside(".unsorted")).unwrap();
        for force in [false, true] {
            let links: [fn(&Path, &Path) -> std::io::Result<()>; 2] =
                [|to, at| symlink(to, at), |to, at| fs::hard_link(to, at)];
            for link in links {
                link(&precious, &beside(".recording")).unwrap();
                let refused = Parts::create(&out, force, max_size, &Run::default());
                assert!(matches!(refused, Err(WriteError::NotAFile { .. })), "part {number}, force {force}");
                fs::remove_file(beside(".recording")).unwrap();
            }
            symlink(&nothing, beside(".recording")).unwrap();
            let refused = Parts::create(&out, force, max_size, &Run::default());
            assert!(matches!(refused, Err(WriteError::NotAFile { .. })), "part {number}, force {force}");
            fs::remove_file(beside(".recording")).unwrap();
        }
        symlink(&precious, &part).unwrap();
        let refused = Parts::create(&out, false, max_size, &Run::default());
        assert!(matches!(refused, Err(WriteError::Exists(_))), "part {number}");
        let mut parts = Parts::create(&out, true, max_size, &Run::default()).unwrap();
        parts.begun().unwrap();
        parts.push(&row(1)).unwrap();
        if max_size.is_some() {
            parts.next(&Run::default()).unwrap();
        }
        parts.finish(&Run::default()).unwrap();
        assert!(fs::symlink_metadata(&part).unwrap().is_file(), "part {number}");
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(!nothing.exists());
}

/// Whoever makes such a link while a recording is under way only stops that recording.
#[test]
fn a_link_at_the_next_part_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (out, precious) = (directory.path().join("run.parquet"), directory.path().join("precious"));
    fs::write(&precious, "precious").unwrap();
    let mut parts = Parts::create(&out, true, Some(Bytes(1 << 20)), &Run::default()).unwrap();
    parts.begun().unwrap();
    parts.push(&row(1)).unwrap();
    symlink(&precious, directory.path().join("run.0002.parquet.recording")).unwrap();
    assert!(matches!(parts.next(&Run::default()), Err(WriteError::NotAFile { .. })));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn runs_are_for_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let recorder = Recorder::record(&out, false, &Run::default()).unwrap();
    assert_eq!(mode(&directory.path().join("run.parquet.recording")), 0o600);
    recorder.finish(&Run::default()).unwrap();
    assert_eq!(mode(&out), 0o600);
    fs::set_permissions(&out, fs::Permissions::from_mode(0o644)).unwrap();
    let rows = std::iter::empty::<Result<RecordBatch, WriteError>>();
    write(&out, true, rows, Run::default).unwrap();
    assert_eq!(mode(&out), 0o600);
}

#[test]
fn a_run_that_fails_leaves_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    fs::write(&out, "precious").unwrap();
    let rows = std::iter::once(Err::<RecordBatch, _>(WriteError::NothingRecorded(PathBuf::from("rows"))));
    assert!(write(&out, true, rows, Run::default).is_err());
    // A run that is made in one go has no recording to recover.
    let mut recorder = Recorder::create(&out, true, &Run::default()).unwrap();
    recorder.push(&row(1)).unwrap();
    recorder.flush().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    recorder.discard();
    assert_eq!(fs::read_to_string(&out).unwrap(), "precious");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// A forged recording: its checksums are right, and what they cover is not. It is recovered up to there, or refused, and never
/// makes the program panic.
#[test]
fn a_forged_recording_is_recovered_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    let mut recorder = Recorder::record(&out, false, &Run::default()).unwrap();
    for upto in [0..50, 50..120] {
        upto.for_each(|ts| recorder.push(&row(ts)).unwrap());
        recorder.flush().unwrap();
    }
    let bytes = fs::read(&recording).unwrap();
    std::mem::forget(recorder);
    // Where the content of each frame begins and ends: it stands after 12 bytes, of which four are its length.
    let mut frames = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let length = u32::from_le_bytes(bytes[start + 4..start + 8].try_into().unwrap()) as usize;
        frames.push(start + 12..start + 12 + length);
        start += 12 + length;
    }
    assert_eq!(frames.len(), 3);
    let mut seed = 5_u64;
    let (mut recovered, mut refused) = (0, 0);
    for round in 0..600 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let frame = frames[round % frames.len()].clone();
        let mut forged = bytes.clone();
        forged[frame.start + (seed >> 33) as usize % frame.len()] = (seed >> 20) as u8;
        let sum = crc32fast::hash(&forged[frame.clone()]);
        forged[frame.start - 4..frame.start].copy_from_slice(&sum.to_le_bytes());
        fs::write(&recording, &forged).unwrap();
        match recover(&recording, &out, true) {
            Ok(finished) => {
                assert!(finished.rows_count <= 120);
                recovered += 1;
            }
            // It is the recording that is wrong, and neither reading nor writing has failed.
            Err(WriteError::NotARecording { .. } | WriteError::NothingRecorded(_)) => refused += 1,
            Err(error) => panic!("round {round}: {error:?}"),
        }
    }
    assert!(recovered > 50 && refused > 5, "{recovered} recovered, {refused} refused");
}

/// Puts the head of a frame before its content.
fn frame(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_le_bytes();
    [&b"INQr"[..], &length, &crc32fast::hash(content).to_le_bytes(), content].concat()
}

/// Returns a stream of Arrow IPC with a row of nulls, or without rows.
fn stream(schema: Schema, rows_count: usize) -> Vec<u8> {
    let schema = std::sync::Arc::new(schema);
    let nulls =
        schema.fields().iter().map(|field| arrow::array::new_null_array(field.data_type(), rows_count));
    let batch = RecordBatch::try_new(schema.clone(), nulls.collect()).unwrap();
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
    if rows_count > 0 {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    bytes
}

/// What is forged with right checksums is refused, and the message says at which byte it stands.
#[test]
fn what_is_forged_is_said_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    let recorded = |run: &Run, rows: &[Row]| {
        let mut recorder = Recorder::record(&out, true, run).unwrap();
        rows.iter().for_each(|row| recorder.push(row).unwrap());
        recorder.flush().unwrap();
        drop(recorder);
        let bytes = fs::read(&recording).unwrap();
        fs::remove_file(&recording).unwrap();
        bytes
    };
    let refused = |bytes: Vec<u8>, byte: usize, words: &str| {
        fs::write(&recording, bytes).unwrap();
        let error = recover(&recording, &out, true).unwrap_err();
        assert!(matches!(error, WriteError::NotARecording { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.contains(&format!(": byte {byte}: ")) && said.contains(words), "{said}");
        assert!(!out.exists());
        fs::remove_file(&recording).unwrap();
    };
    let head = recorded(&Run::default(), &[]);
    let whole = recorded(&Run::default(), &[row(1), row(2)]);
    assert!(whole.starts_with(&head));

    let long = Row { dur: Some(-5), ..row(1) };
    refused(recorded(&Run::default(), &[row(0), long]), head.len(), "row 1: dur is -5 ns");
    for ts in [i64::MIN, i64::MAX, TIME_LIMIT_NS + 1] {
        let late = Row { ts, dur: None, ..row(1) };
        refused(recorded(&Run::default(), &[late]), head.len(), &format!("ts is {ts} ns"));
    }
    let backwards = Clock { start_ns: 5, end_ns: 4, ..Clock::default() };
    refused(recorded(&Run { clock: backwards, ..Run::default() }, &[row(1)]), 0, "the end 4 ns is before");

    // A message that states more metadata than there is, behind rows that are whole.
    let long = frame(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    refused([whole.clone(), long].concat(), whole.len(), "a message of a frame is longer than the frame");

    // Columns of other types, in the rows and in the head.
    let other = || Schema::new(vec![Field::new("ts", DataType::Float64, true)]);
    let rows = frame(&[stream(other(), 1), stream(other(), 1)].concat());
    refused([whole.clone(), rows].concat(), whole.len(), "the columns are not those of a recording");
    let version = HashMap::from([(META_VERSION.to_owned(), FORMAT_VERSION.to_string())]);
    refused(frame(&stream(other().with_metadata(version.clone()), 0)), 0, "column ts of type Float64");
    let unknown =
        Schema::new(vec![Field::new("secret", DataType::Int64, true)]).with_metadata(version.clone());
    refused(frame(&stream(unknown, 0)), 0, "column secret of type Int64");

    // A head of the format itself passes.
    fs::write(&recording, frame(&stream(arrow_schema().with_metadata(version), 0))).unwrap();
    assert_eq!(recover(&recording, &out, true).unwrap().rows_count, 0);
}
