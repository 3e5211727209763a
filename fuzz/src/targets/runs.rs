//! Files of this product: runs, recordings, baselines.

use std::{path::Path, sync::LazyLock};

use analyze::{
    compare::baseline as baselines,
    questions::{
        chains::{self, EXAMPLES},
        info,
    },
    trace::Trace,
};
use analyze_run::{error::AnalyzeError, memory_budget};
use analyze_verdict::params::Params;
use tokio::runtime::{Builder, Runtime};

use super::check::{blames_the_input, every_row, is_about_the_input};
use crate::{scratch, target::Outcome};

/// The largest run about which questions are asked, in rows: the others take longer than an input may.
const ROWS_COUNT: u64 = 20_000;
/// Memory in bytes that queries may take before they spill to the disk.
const QUERY_BYTES: usize = 512 << 20;

/// The runtime of all questions.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    memory_budget::set(QUERY_BYTES);
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

async fn answers(path: &Path) -> Result<(), AnalyzeError> {
    let trace = Trace::open_one(path).await?;
    info::run(&trace).await?;
    chains::run(&trace, Params::default(), EXAMPLES).await?;
    Ok(())
}

/// Reads all of a run, and asks what it is and why its slow calls were slow.
pub(super) fn asked(path: &Path) -> Outcome {
    let answered = every_row(path).and_then(|rows_count| match rows_count <= ROWS_COUNT {
        true => RUNTIME.block_on(answers(path)),
        false => Ok(()),
    });
    Outcome::of(answered.inspect_err(blames_the_input).is_ok())
}

/// A run: Parquet. What begins otherwise is a file of another tool, for which there are other targets.
pub fn run(bytes: &[u8]) -> Outcome {
    if !bytes.starts_with(b"PAR1") {
        return Outcome::Refused;
    }
    asked(&scratch::write("run.parquet", bytes))
}

/// A recording that was interrupted. What is recovered of it may be a run that cannot be opened, if its metadata was forged.
pub fn recording(bytes: &[u8]) -> Outcome {
    let recording = scratch::write("interrupted.parquet.recording", bytes);
    let out = scratch::absent("interrupted.parquet");
    match trace_writer::recover(&recording, &out, false) {
        Ok(finished) => {
            match every_row(&out) {
                Ok(rows_count) => assert_eq!(rows_count, finished.rows_count, "rows are lost"),
                Err(error) => blames_the_input(&error),
            }
            Outcome::Read
        }
        Err(error) => {
            assert!(is_about_the_input(&error), "it is no error of the recording: {error:?}");
            assert!(!out.exists(), "something is left of a recording that is none");
            Outcome::Refused
        }
    }
}

/// A baseline.
pub fn baseline(bytes: &[u8]) -> Outcome {
    let path = scratch::write("figures.baseline", bytes);
    Outcome::of(baselines::open(&path).inspect_err(blames_the_input).is_ok())
}
