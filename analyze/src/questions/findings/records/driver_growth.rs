//! The growth of the memory that processes allocated from the driver, by whatever allocator.

use std::collections::BTreeMap;

use trace_schema::Kind;

use crate::{questions::info::ProcessCount, trace::Trace};
use analyze_memory::leaks::driver::{self, DriverGrowth};
use analyze_run::error::AnalyzeError;

/// Analyzes one run, if a process of it made enough calls that allocate device memory. `processes` are the numbers of its rows.
pub(super) async fn read(
    trace: &Trace,
    processes: &[ProcessCount],
) -> Result<Vec<DriverGrowth>, AnalyzeError> {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    for of in processes.iter().filter(|of| of.kind == Kind::Call.name()) {
        if driver::allocating().any(|op| op == of.op) {
            *counts.entry(of.pid).or_default() += of.rows_count;
        }
    }
    if counts.values().any(|count| *count >= driver::MIN_ALLOCATIONS) {
        driver::run(&trace.events(), trace.files()).await
    } else {
        Ok(Vec::new())
    }
}
