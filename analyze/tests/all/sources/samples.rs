//! A few small runs of every source: of `capture` in each profile, and of every format that `analyze import` reads.
//!
//! A profile has all probes of those before it (capture/PROBES.md), so that the samples of `default` are samples of `full`,
//! too, and samples of `light` without the rows of what `light` does not probe.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use analyze_import::FORMATS;
use analyze_run::{columns::strings, coverage::is_version_of, error::AnalyzeError, reading::plain, run_file};
use arrow::{
    array::{BooleanArray, RecordBatch, StringArray},
    compute::{cast, filter_record_batch},
    datatypes::DataType,
};
use trace_schema::{Kind, Run};

use crate::{
    causes::ingero_with_one_slow_free,
    imports::export,
    support::{path, stdout, testdata},
};

/// The profiles of `capture`, and a run of one program in each.
const PROFILES: [(&str, &str); 3] =
    [("light", "align/aligned-light"), ("default", "align/aligned"), ("full", "align/aligned-full")];
/// Runs of the default profile of what that program does not do: NCCL and marks, leaks with call stacks, failed requests and
/// releases, CUDA graphs, memory of other processes, pauses.
const MORE: [&str; 6] =
    ["h200/nccl", "leaks/leak-10", "memory/plain", "h200/graphs", "memory/lent", "memory/pause"];

/// The columns of the table that [`csv`] makes.
const CSV_OPTIONS: [&str; 2] =
    ["--map", "ts=time_us:us,dur=took_us:us,op=func,tid=tid,addr=ptr,size_bytes=size,kind='call',pid='9'"];

/// A source: what wrote the events that a run has.
pub(super) struct Source {
    /// `capture` with a profile, or the name of a format.
    pub(super) name: String,
    /// The samples.
    pub(super) runs: Vec<PathBuf>,
    /// Another source whose samples are samples of this one, too.
    pub(super) contains: Option<String>,
}

fn recorded(name: &str) -> PathBuf {
    testdata(&format!("{name}.parquet")).into()
}

fn metadata(run: &Path) -> Run {
    run_file::open(run).unwrap().run
}

fn texts(batch: &RecordBatch, name: &str) -> StringArray {
    let column = cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    strings(&RecordBatch::try_from_iter([(name, column)]).unwrap(), name).unwrap()
}

/// Leaves those rows in a run of the default profile that it would have in the profile of `like`, by the probes of `like`.
fn reduced(run: &Path, like: &Run, out: &Path) {
    let symbols: HashSet<&str> = like.probes.iter().map(|probe| probe.symbol.as_str()).collect();
    let is_probed = |op: &str| symbols.iter().any(|symbol| is_version_of(symbol, op));
    let mut metadata = metadata(run);
    metadata.probes.retain(|probe| symbols.contains(probe.symbol.as_str()));
    metadata.profile.clone_from(&like.profile);
    metadata.not_captured.clone_from(&like.not_captured);
    let rows = plain::batches(vec![run.to_owned()], None).map(|batch| -> Result<RecordBatch, AnalyzeError> {
        let batch = batch?;
        let (kinds, ops) = (texts(&batch, "kind"), texts(&batch, "op"));
        let stays = |row: usize| match Kind::from_name(kinds.value(row)) {
            Some(Kind::Call) => is_probed(ops.value(row)),
            Some(Kind::Alloc) => ops.value(row) == "empty_cache",
            _ => true,
        };
        let mask: BooleanArray = (0..batch.num_rows()).map(stays).map(Some).collect();
        Ok(filter_record_batch(&batch, &mask).unwrap())
    });
    trace_writer::write(out, true, rows, || metadata).unwrap();
}

fn captured(directory: &Path) -> Vec<Source> {
    let source = |(profile, own): (&str, &str)| {
        let mut runs = vec![recorded(own)];
        let like = metadata(&runs[0]);
        assert_eq!(like.profile, profile, "{own}");
        match profile {
            "light" => runs.extend(MORE.map(|more| {
                let run = recorded(more);
                let out = directory.join(run.file_name().unwrap());
                reduced(&run, &like, &out);
                out
            })),
            "default" => runs.extend(MORE.map(recorded)),
            _ => {}
        }
        let contains = (profile == "full").then(|| "capture default".to_owned());
        Source { name: format!("capture {profile}"), runs, contains }
    };
    PROFILES.into_iter().map(source).collect()
}

/// Calls, switches and the life of a process, with a slow `cudaFree` in which the thread was off the CPU.
fn ingero(directory: &Path) -> PathBuf {
    let file = directory.join("ingero.db");
    ingero_with_one_slow_free(&file);
    let more = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39),
            start(ts) AS (SELECT timestamp FROM events WHERE id = 0),
            made(op, shift_ns, duration, arg0, arg1) AS (VALUES (1, -900000, 20000, 1048576, 32512), (3, -800000, 5000, 77, 0),
                (4, -700000, 30000, 4096, 1), (5, -600000, 10000, 0, 0))
        INSERT INTO events SELECT 1000 + i * 10 + op, ts + i * 5000000 + shift_ns, 100, 101, 1, op, duration, 0, arg0, arg1, 0
            FROM n, start, made;
        INSERT INTO events SELECT 9000, timestamp + 151500000, 101, 101, 3, 1, 1000000, 0, 0, 0, 0 FROM events WHERE id = 0;
        INSERT INTO events SELECT 9001, timestamp + 300000000, 100, 100, 3, 6, 0, 0, 0, 0, 0 FROM events WHERE id = 0;
        INSERT INTO ops VALUES (1, 1, 'cudaMalloc'), (1, 3, 'cudaLaunchKernel'), (1, 4, 'cudaMemcpy'), (1, 5, 'cudaStreamSync');";
    rusqlite::Connection::open(&file).unwrap().execute_batch(more).unwrap();
    file
}

/// Launches, synchronizing calls and kernels of a thread whose switches are on record, with a slow launch in which it was off
/// the CPU.
fn nsys(directory: &Path) -> PathBuf {
    let (main, process) = ((1_i64 << 56) | (4242 << 24) | 4242, (1_i64 << 56) | (4242 << 24));
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39)";
    export(
        directory,
        &format!(
            "INSERT INTO StringIds VALUES (7, 'cudaStreamSynchronize_v3020'), (8, 'cudaMalloc_v3020');
             {numbers} INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
                SELECT 1000 + i * 1000, 1050 + i * 1000 + (i = 30) * 450, 0, {main}, 100 + i, 1, 0 FROM n;
             {numbers} INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
                SELECT 1600 + i * 1000, 1700 + i * 1000, 0, {main}, 200 + i, 7, 0 FROM n;
             {numbers} INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
                SELECT 1800 + i * 1000, 1820 + i * 1000, 0, {main}, 300 + i, 8, 0 FROM n;
             {numbers} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
                SELECT 1510 + i * 1000, 1650 + i * 1000, 0, 7, 100 + i, {process}, 3, 3, 64 FROM n;
             INSERT INTO SCHED_EVENTS VALUES (500, 2, 1, {main}), (31100, 2, 0, {main}), (31400, 2, 1, {main}), (60000, 2, 0, {main})"
        ),
    )
}

/// A table of calls as any tool may write it.
fn csv(directory: &Path) -> PathBuf {
    let mut text = String::from("time_us,took_us,func,tid,ptr,size\n");
    for number in 0..40_u64 {
        let (at, free_us) = (number * 5_000, if number == 30 { 2_000 } else { 10 });
        for (after, took, func, size) in [
            (0, 20, "cudaMalloc", "1048576"),
            (100, 5, "cudaLaunchKernel", ""),
            (200, 30, "cudaMemcpy", "4096"),
            (300, 10, "cudaStreamSynchronize", ""),
            (400, free_us, "cudaFree", ""),
        ] {
            let pointer = if matches!(func, "cudaMalloc" | "cudaFree") { "0x7f00" } else { "" };
            text += &format!("{},{took},{func},7,{pointer},{size}\n", at + after);
        }
    }
    let file = directory.join("csv.csv");
    fs::write(&file, text).unwrap();
    file
}

/// Returns the files of a format, and what `analyze import` needs to know about them.
fn files(format: &str, directory: &Path) -> (Vec<PathBuf>, &'static [&'static str]) {
    let stored =
        |names: &[&str]| -> Vec<PathBuf> { names.iter().map(|name| testdata(name).into()).collect() };
    let files = match format {
        "torch-snapshot" => stored(&["snapshots/mixed-7gb.pickle.gz", "snapshots/small.p4.pickle"]),
        "ingero" => vec![ingero(directory)],
        "nsys" => vec![nsys(directory)],
        "kineto" => stored(&["kineto/small.json.gz", "align/aligned.kineto.json.gz"]),
        "events" => {
            let file = directory.join("events.csv");
            stdout(&["export", "events", &testdata("align/aligned.parquet"), "--out", path(&file)]);
            vec![file]
        }
        "perfetto" => stored(&["sched/duty.pftrace"]),
        "perf" => stored(&["sched/duty.perf.txt.gz", "sched/duty.perf-pid.txt.gz"]),
        "ftrace" => stored(&["sched/duty.ftrace.txt.gz"]),
        "csv" => {
            return (vec![csv(directory)], &CSV_OPTIONS);
        }
        other => panic!("the format {other} has no sample here, and its column in SOURCES.md needs one"),
    };
    (files, &[])
}

fn imported(format: &str, directory: &Path) -> Source {
    let (files, options) = files(format, directory);
    let import = |(number, file): (usize, &PathBuf)| {
        let out = directory.join(format!("{format}-{number}.parquet"));
        let words = ["import", format, path(file), "--out", path(&out)];
        stdout(&[&words[..], options].concat());
        out
    };
    let runs = files.iter().enumerate().map(import).collect();
    Source { name: format.to_owned(), runs, contains: None }
}

/// Makes the samples of every source, in a directory that must be kept.
pub(super) fn all(directory: &Path) -> Vec<Source> {
    let mut sources = captured(directory);
    sources.extend(FORMATS.iter().map(|format| imported(format.name(), directory)));
    sources
}

/// Every profile of `capture` has its column.
#[test]
fn every_profile_has_a_sample() {
    let probes =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../capture/PROBES.md")).unwrap();
    let profiles: HashSet<&str> =
        probes.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(2)).collect();
    let listed: HashSet<&str> = PROFILES.iter().map(|(profile, _)| *profile).chain(["profile"]).collect();
    assert_eq!(profiles, listed);
}
