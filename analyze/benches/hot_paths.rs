//! What most of the time of an answer goes to, on bundled runs: `cargo bench -p analyze`.
//!
//! The figures compare two builds on one quiet machine; peers and large runs are measured by the scripts in `testdata/bench`.

#![expect(clippy::panic, reason = "a bench that cannot run has nothing to report")]

use std::{
    hint::black_box,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use analyze::trace::Trace;
use analyze_memory::input::{Input, Listener};
use analyze_run::{
    error::AnalyzeError,
    reading::{self, Consumer, Names, Origin, Rows, TASK_COLUMNS},
};
use analyze_verdict::{derived::Source, params::Params};
use divan::Bencher;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Runtime::new().unwrap_or_else(|error| panic!("no runtime: {error}"))
}

fn run(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name)
}

fn open(runtime: &Runtime, name: &str) -> Trace {
    runtime.block_on(Trace::open(&[run(name)])).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Counts rows.
#[derive(Default)]
struct Count {
    names: Names,
    rows_count: usize,
}

impl Consumer for Count {
    fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    fn run(&mut self, _: &str) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn rows(&mut self, _: &Rows, range: Range<usize>) -> Result<(), AnalyzeError> {
        self.rows_count += range.len();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        Ok(())
    }
}

/// Rows of a run in the order of time, decoded and merged.
#[divan::bench]
fn read_rows(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let trace = open(&runtime, "h200/qwen2-hogs.parquet");
    bencher.bench_local(|| {
        let origin = Origin::of(trace.files(), trace.events());
        let read = runtime.block_on(reading::read(origin, TASK_COLUMNS, Count::default()));
        black_box(read.map(|count| count.rows_count).unwrap_or_else(|error| panic!("{error}")))
    });
}

/// All calls of a run, classified, with the chains of the slow ones.
#[divan::bench]
fn classify_calls(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let trace = open(&runtime, "h200/qwen2-hogs.parquet");
    bencher.bench_local(|| {
        let source = Source::new(trace.events(), trace.files(), false);
        let derived = runtime.block_on(source.get(Params::default()));
        black_box(derived.map(|derived| derived.totals.len()).unwrap_or_else(|error| panic!("{error}")))
    });
}

/// Hears nothing.
struct Silent;

impl Listener for Silent {}

/// The allocator's events of a run, replayed.
#[divan::bench]
fn replay_allocator(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let trace = open(&runtime, "h200/mixed-7gb.parquet");
    bencher.bench_local(|| {
        let input = Input::new(trace.events(), trace.files());
        let replayed = runtime.block_on(input.replay(Vec::new(), Silent));
        black_box(
            replayed.map(|(replay, _)| replay.allocators().count()).unwrap_or_else(|error| panic!("{error}")),
        )
    });
}

/// Queries: a sum by function, and calls with what interrupted them (the interval join).
#[divan::bench(args = [
    "SELECT op, sum(dur) FROM ops GROUP BY op",
    "SELECT count(*) FROM events c JOIN events o ON c.tid = o.tid AND c.ts < o.ts + o.dur AND o.ts < c.ts + c.dur \
     WHERE c.kind = 'call' AND o.kind = 'off_cpu'",
])]
fn query(bencher: Bencher<'_, '_>, sql: &str) {
    let runtime = runtime();
    let trace = Arc::new(open(&runtime, "h200/qwen2-hogs.parquet"));
    bencher.bench_local(|| {
        let rows = runtime.block_on(trace.batches(sql));
        black_box(rows.map(|batches| batches.len()).unwrap_or_else(|error| panic!("{error}")))
    });
}
