//! Runs, and other files with rows of runs: recordings, baselines, tables of Arrow and Parquet.

use std::sync::Arc;

use analyze_run::{reading::plain, run_file};
use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    ipc::{
        CompressionType,
        writer::{FileWriter, IpcWriteOptions},
    },
};
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, ZstdLevel},
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion},
    },
};
use trace_schema::{FORMAT_VERSION, Kind, META_RUN, META_VERSION, Row, Run};
use trace_writer::Recorder;

use super::files::file;
use crate::{mutate::frames, scratch, targets::rows::RECORD_BYTES};

/// Returns the first rows of a recorded run, and what the run says about itself.
fn first_rows(name: &str, count: usize) -> (RecordBatch, Run) {
    let path = scratch::write("seed.parquet", &file(&format!("testdata/{name}.parquet")));
    let run = run_file::open(&path).expect("a run").run;
    let batch = plain::batches(vec![path], None).next().expect("a batch").expect("rows");
    (batch.slice(0, count.min(batch.num_rows())), run)
}

/// Writes rows as Parquet with these properties, and the metadata of a run if there is one.
fn parquet(batch: &RecordBatch, run: Option<&Run>, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let pairs = run.map(|run| {
        let json = serde_json::to_string(run).expect("metadata");
        let pairs = [(META_VERSION, FORMAT_VERSION.to_string()), (META_RUN, json)];
        pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value)).into()
    });
    let options = ArrowWriterOptions::new().with_properties(properties.set_key_value_metadata(pairs).build());
    let options = options.with_skip_arrow_metadata(true);
    let mut writer =
        ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options).expect("a writer");
    writer.write(batch).expect("rows");
    writer.into_inner().expect("a file")
}

/// Returns runs: packed and not, with dictionaries and without, with pages of both versions.
pub fn runs() -> Vec<Vec<u8>> {
    let (calls, of_calls) = first_rows("courtroom/h200/futex_convoy", 160);
    let (allocations, of_allocations) = first_rows("memory/pause", 120);
    let order = || Some(vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]);
    let plain = || {
        let properties = WriterProperties::builder().set_sorting_columns(order());
        properties.set_compression(Compression::UNCOMPRESSED)
    };
    let packed = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level")))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_sorting_columns(order());
    vec![
        parquet(&calls, Some(&of_calls), plain()),
        parquet(&calls, Some(&of_calls), plain().set_dictionary_enabled(false)),
        parquet(&allocations, Some(&of_allocations), plain().set_data_page_row_count_limit(16)),
        parquet(&allocations, Some(&of_allocations), packed),
        // Without a declared order, the rows are sorted by a query.
        parquet(&calls, Some(&of_calls), WriterProperties::builder()),
    ]
}

/// Returns rows of runs as tables of Arrow, packed and not.
pub fn arrow() -> Vec<Vec<u8>> {
    let (batch, _) = first_rows("courtroom/h200/futex_convoy", 40);
    let write = |compression| {
        let options = IpcWriteOptions::default().try_with_compression(compression).expect("options");
        let mut writer =
            FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).expect("a writer");
        writer.write(&batch).expect("rows");
        writer.finish().expect("a footer");
        writer.into_inner().expect("a file")
    };
    vec![write(None), write(Some(CompressionType::ZSTD))]
}

/// Returns descriptions of runs, of records that each become a row.
pub fn rows() -> Vec<Vec<u8>> {
    let record = |index: usize| {
        let mut record = [0_u8; RECORD_BYTES];
        // Calls, each followed by an interval in which its thread was off the CPU, and some of everything else.
        record[0] = [0, 2, 0, 3, 0, 1, 5, 0][index % 8];
        record[1] = (index * 7) as u8;
        record[2] = (index % 3 * 16) as u8;
        record[3] = if index.is_multiple_of(2) { 0x38 } else { 0xf0 };
        record[4..6].copy_from_slice(&((index * 131 % 900) as u16).to_le_bytes());
        record[6] = 4;
        record[7..9]
            .copy_from_slice(&((if index.is_multiple_of(29) { 60_000 } else { 400 }) as u16).to_le_bytes());
        record[9] = 3;
        record[10..14].copy_from_slice(&((index * 4096) as u32).to_le_bytes());
        record
    };
    vec![(0..120).flat_map(record).collect(), (0..10).flat_map(record).collect(), vec![0; 4 * RECORD_BYTES]]
}

/// Returns baselines.
pub fn baselines() -> Vec<Vec<u8>> {
    vec![file("testdata/compare/hog.baseline"), file("testdata/compare/sync.baseline")]
}

/// Returns recordings as a kill leaves them.
pub fn recordings() -> Vec<Vec<u8>> {
    let out = scratch::absent("seed-run.parquet");
    let recording = scratch::absent("seed-run.parquet.recording");
    let run = Run { producer: "a fuzz target".to_owned(), lost_is_counted: true, ..Run::default() };
    let mut recorder = Recorder::record(&out, true, &run).expect("a recorder");
    let mut found = Vec::new();
    for upto in [0, 40, 100] {
        for ts in upto / 2..upto {
            let row = Row {
                dur: (ts % 3 != 0).then_some(ts),
                detail: (ts % 5 == 0).then(|| format!("step {ts}").into()),
                addr: Some(u64::MAX - ts as u64),
                ..Row::new(ts, Kind::Call, "cudaMalloc".into(), 7, 8)
            };
            recorder.push(&row).expect("a row");
        }
        recorder.flush().expect("rows on the disk");
        found.push(std::fs::read(&recording).expect("a recording"));
    }
    recorder.discard();
    found
}

/// Returns exports of Nsight Systems that are folders of Parquet files: the texts, and the kernels.
pub fn nsys_folders() -> Vec<Vec<u8>> {
    let number = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["add(float*)", "poll"]));
    let table = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).expect("a table");
    let texts = table(vec![("id", number(&[3, 4])), ("value", texts)]);
    let kernels = table(vec![
        ("start", number(&[160, 300])),
        ("end", number(&[190, 310])),
        ("deviceId", number(&[0, 1])),
        ("demangledName", number(&[3, 4])),
        ("gridX", number(&[64, 1])),
    ]);
    let properties = || WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    vec![frames::join(&[parquet(&texts, None, properties()), parquet(&kernels, None, properties())])]
}
