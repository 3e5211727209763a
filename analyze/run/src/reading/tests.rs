//! Overlapping row groups are merged, files that declare a false order are refused, and both ways to read
//! give the same rows.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use arrow::{
    array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::Int32Type,
};
use futures::{StreamExt, stream};
use parquet::{
    arrow::ArrowWriter,
    file::{metadata::SortingColumn, properties::WriterProperties},
};

use super::{columns::KEY_COLUMNS, *};
use crate::{
    error::AnalyzeError,
    events::{Batches, Events},
    random::Random,
    run_file::RunFile,
};

/// A consumer that collects `ts` and `tid` of each row, in the order in which the rows come.
#[derive(Default)]
struct Collected {
    names: Names,
    runs: Vec<String>,
    rows: Vec<(i64, u32)>,
    /// The number of rows after which it needs no more; `None`: it needs all.
    enough: Option<usize>,
    ended: bool,
}

impl Consumer for Collected {
    fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    fn run(&mut self, name: &str) -> Result<(), AnalyzeError> {
        self.runs.push(name.to_owned());
        Ok(())
    }

    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError> {
        assert!(!range.is_empty());
        self.rows.extend(range.map(|row| (rows.ts.value(row), rows.tid.at(row).expect("tid"))));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.enough.is_some_and(|enough| self.rows.len() >= enough)
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.ended = true;
        Ok(())
    }
}

/// Writes a file with one row group for each list of times; `tid` is the number of the row.
fn write(path: &Path, groups: &[Vec<i64>], is_declared: bool) {
    let order = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
    let properties =
        WriterProperties::builder().set_sorting_columns(is_declared.then(|| vec![order])).build();
    let mut writer: Option<ArrowWriter<File>> = None;
    let mut number = 0..;
    for times in groups {
        let all = |word| Arc::new(times.iter().map(|_| word).collect::<DictionaryArray<Int32Type>>());
        let tids: UInt32Array = times.iter().zip(&mut number).map(|(_, number)| number).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("ts", Arc::new(Int64Array::from(times.clone()))),
            ("kind", all("call")),
            ("op", all("cudaFree")),
            ("pid", Arc::new(UInt32Array::from(vec![1; times.len()]))),
            ("tid", Arc::new(tids)),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("batch");
        let writer = writer.get_or_insert_with(|| {
            let file = File::create(path).expect("file");
            ArrowWriter::try_new(file, batch.schema(), Some(properties.clone())).expect("writer")
        });
        writer.write(&batch).expect("write");
        writer.flush().expect("flush");
    }
    writer.expect("a group").close().expect("close");
}

/// A session's table: batches that it has sorted, or none at all.
struct Sorted(Vec<RecordBatch>);

impl Events for Sorted {
    fn select(&self, query: &str) -> Batches {
        panic!("a reading asks for no query: {query}")
    }

    fn ordered(&self, columns: &[&str]) -> Batches {
        assert_eq!(columns, KEY_COLUMNS);
        stream::iter(self.0.clone().into_iter().map(Ok)).boxed()
    }
}

async fn collect(origin: Origin) -> Result<Collected, AnalyzeError> {
    let collected = read(origin, &[], Collected::default()).await?;
    assert!(collected.ended);
    Ok(collected)
}

fn of_file(path: &Path) -> Origin {
    let file = RunFile { name: "r".to_owned(), paths: vec![path.to_owned()], ..RunFile::default() };
    Origin::of(&[file], Arc::new(Sorted(Vec::new())))
}

/// Row groups have all sizes and any overlap, and rows of several row groups share their times.
#[tokio::test]
async fn overlapping_groups_are_merged() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("r.parquet");
    let mut random = Random(5);
    // Each case has a number of row groups, the most rows of each, their distance, and the spread of the
    // times in each.
    for (groups, rows, step, spread) in [
        (1, 10, 0, 5),
        (40, 30, 10, 40),
        (3, 100_000, 60_000, 150_000),
        (12, 3000, 0, 100),
        (5, 2000, 5000, 10),
    ] {
        let groups: Vec<Vec<i64>> = (0..groups)
            .map(|group| {
                let count = 1 + random.below(rows);
                let mut times: Vec<i64> =
                    (0..count).map(|_| group * step + random.below(spread) as i64).collect();
                // This is the call that lasts for the whole run.
                times[0] = times[0].min(random.below(50) as i64);
                times.sort_unstable();
                times
            })
            .collect();
        write(&path, &groups, true);
        let Origin::Files(_) = of_file(&path) else { panic!("it says that it is sorted") };
        let found = collect(of_file(&path)).await.expect("rows");
        assert_eq!(found.runs, ["r"]);
        assert!(found.rows.is_sorted_by_key(|(ts, _)| *ts));
        let times: Vec<i64> = groups.concat();
        assert_eq!(found.rows.len(), times.len());
        let mut by_row = found.rows;
        by_row.sort_unstable_by_key(|(_, tid)| *tid);
        let expected: Vec<(i64, u32)> = times.into_iter().zip(0..).collect();
        assert_eq!(by_row, expected, "each row once");
    }
}

#[tokio::test]
async fn a_consumer_that_has_enough_ends_the_reading() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("r.parquet");
    let groups: Vec<Vec<i64>> =
        vec![(0..30_000).collect(), (30_000..60_000).collect(), (60_000..90_000).collect()];
    write(&path, &groups, true);
    let enough = |enough| Collected { enough: Some(enough), ..Collected::default() };
    let found = read(of_file(&path), &[], enough(10_000)).await.expect("rows");
    assert!(found.ended && (10_000..30_000).contains(&found.rows.len()), "{}", found.rows.len());
    assert_eq!(read(of_file(&path), &[], enough(usize::MAX)).await.expect("rows").rows.len(), 90_000);
}

#[tokio::test]
async fn a_file_that_is_not_in_the_order_that_it_declares_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("r.parquet");
    let mut late: Vec<i64> = (0..70_000).collect();
    late[69_000] = 3;
    for times in [vec![5, 7, 6], late] {
        write(&path, &[vec![1, 2], times], true);
        let error = collect(of_file(&path)).await.err().expect("an error").to_string();
        assert!(error.contains("row group 1: it says that it is sorted by ts, and is not"), "{error}");
        assert!(error.contains("r.parquet"), "{error}");
    }
}

/// Rows in any order are valid, too: they are sorted first.
#[tokio::test]
async fn a_file_that_declares_no_order_is_read_through_the_session() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("r.parquet");
    write(&path, &[vec![5, 7, 6], vec![1, 9, 2]], false);
    let Origin::Events(_) = of_file(&path) else { panic!("it does not say that it is sorted") };
    let batch = |rows: &[(&str, i64, u32)]| {
        let all = |word| Arc::new(rows.iter().map(|_| word).collect::<DictionaryArray<Int32Type>>());
        let runs: Vec<&str> = rows.iter().map(|(run, ..)| *run).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("run", Arc::new(StringArray::from(runs))),
            ("ts", Arc::new(rows.iter().map(|(_, ts, _)| Some(*ts)).collect::<Int64Array>())),
            ("kind", all("call")),
            ("op", all("cudaFree")),
            ("pid", Arc::new(UInt32Array::from(vec![1; rows.len()]))),
            ("tid", Arc::new(rows.iter().map(|(.., tid)| Some(*tid)).collect::<UInt32Array>())),
        ];
        RecordBatch::try_from_iter(columns).expect("batch")
    };
    let batches = vec![batch(&[("a", 1, 3), ("a", 2, 5), ("b", 0, 7)]), batch(&[("b", 6, 2)])];
    let found = collect(Origin::Events(Arc::new(Sorted(batches)))).await.expect("rows");
    assert_eq!(found.runs, ["a", "b"]);
    assert_eq!(found.rows, [(1, 3), (2, 5), (0, 7), (6, 2)]);
}
