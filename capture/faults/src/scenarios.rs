//! What is tried: recorders, and verbs of `analyze` that write files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use trace_schema::Run;
use trace_writer::{Recorder, WriteError};

use crate::{error::FaultError, fault::FileSystem, outputs::Outputs, recordings::Recording, rows};

/// A file in `testdata/`, as an argument.
fn testdata(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name);
    path.to_string_lossy().into_owned()
}

/// Recorders of so many made rows: into one file and into parts, in place of an older run, on every kind of file system.
pub fn recorders(record_rows: &Path, rows_count: i64) -> Vec<Recording> {
    let whole = || Recording::rows(record_rows, rows_count, None, false);
    let parts = || Recording::rows(record_rows, rows_count, Some(PART_BYTES), false);
    vec![
        whole(),
        whole().replacing(),
        whole().on(FileSystem::Network),
        whole().replacing().on(FileSystem::Simple),
        parts(),
        parts().on(FileSystem::Network),
    ]
}

/// The size from which a recording is one of several parts: a flush or two of these rows.
const PART_BYTES: i64 = 32 << 10;

/// The bytes of a recording that was interrupted.
fn interrupted() -> Result<Vec<u8>, FaultError> {
    let directory = tempfile::tempdir().map_err(FaultError::test("a temporary folder"))?;
    let out = directory.path().join("run.parquet");
    let wrong = |error: WriteError| FaultError::Wrong(error.to_string());
    let mut recorder = Recorder::record(&out, false, &Run::default()).map_err(wrong)?;
    for number in 0..2_000 {
        recorder.push(&rows::row(number, number * 1_000_000)).map_err(wrong)?;
        if number % 500 == 499 {
            recorder.flush().map_err(wrong)?;
        }
    }
    // What is dropped unfinished keeps its recording.
    drop(recorder);
    let recording: PathBuf = directory.path().join("run.parquet.recording");
    fs::read(recording).map_err(FaultError::test("an interrupted recording"))
}

/// Verbs that take a tenth of a second in a debug build.
///
/// # Errors
/// Returns an error if one of them fails without a fault.
pub fn quick_verbs(analyze: &Path) -> Result<Vec<Outputs>, FaultError> {
    let (run, profile) = (testdata("h200/compile.parquet"), testdata("kineto/small.json.gz"));
    let counts = "SELECT op, count(*) AS n FROM events GROUP BY op ORDER BY op";
    let events = "SELECT ts, op, tid FROM events ORDER BY ts, op, tid";
    let verb = |args: &[&str]| Outputs::new(analyze, args, []);
    Ok(vec![
        verb(&["sql", &run, counts, "--out", "answer.parquet"])?,
        verb(&["sql", &run, events, "--out", "answer.csv"])?.replacing(),
        verb(&["sql", &run, events, "--out", "answer.ndjson", "--format", "ndjson"])?.on(FileSystem::Network),
        verb(&["slice", &run, "--to", "1s", "--out", "slice.parquet"])?.replacing(),
        verb(&["export", "events", &run, "--out", "events.arrow"])?,
        verb(&["import", &profile, "--out", "imported.parquet"])?.on(FileSystem::Network),
        Outputs::new(
            analyze,
            &["recover", "run.parquet.recording"],
            [("run.parquet.recording", interrupted()?)],
        )?,
    ])
}

/// Verbs that take a second in a debug build.
///
/// # Errors
/// Returns an error if one of them fails without a fault.
pub fn slow_verbs(analyze: &Path) -> Result<Vec<Outputs>, FaultError> {
    let run = testdata("h200/compile.parquet");
    let verb = |args: &[&str]| Outputs::new(analyze, args, []);
    Ok(vec![
        verb(&["report", &run, "--svg", "figures"])?,
        verb(&["baseline", "save", "base.baseline", &run])?,
    ])
}

/// More verbs, for which only a long campaign has the time.
///
/// # Errors
/// Returns an error if one of them fails without a fault.
pub fn other_verbs(analyze: &Path) -> Result<Vec<Outputs>, FaultError> {
    let run = testdata("h200/compile.parquet");
    let verb = |args: &[&str]| Outputs::new(analyze, args, []);
    Ok(vec![
        verb(&["report", &run, "--html", "report.html"])?.replacing(),
        verb(&["report", &run, "--svg", "figures"])?.replacing(),
        verb(&["baseline", "export", &run, "--out", "figures.csv"])?.replacing(),
        verb(&["baseline", "export", &run, "--out", "figures.parquet"])?.on(FileSystem::Simple),
        verb(&["export", "perfetto", &run, "--out", "timeline.pftrace.gz"])?,
        verb(&["export", "chrome", &run, "--out", "timeline.json"])?.on(FileSystem::Network),
        verb(&["export", "pprof", &run, "--out", "profile.pb.gz"])?.replacing(),
        verb(&["export", "events", &run, "--out", "events.csv.gz"])?,
        verb(&["demo", "starved-loader", "--html"])?,
        verb(&["demo", "starved-loader", "--html"])?.replacing(),
    ])
}
