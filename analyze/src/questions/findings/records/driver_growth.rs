//! The growth of the memory that processes allocated from the driver, by whatever allocator.

use trace_schema::Kind;

use crate::{questions::info::Present, trace::Trace};
use analyze_memory::leaks::driver::{self, DriverGrowth};
use analyze_run::error::AnalyzeError;

/// Analyzes one run, if it has a call that allocates device memory.
pub(super) async fn read(trace: &Trace, present: &Present) -> Result<Vec<DriverGrowth>, AnalyzeError> {
    if driver::allocating().any(|op| present.has(Kind::Call, op)) {
        driver::run(&trace.events(), trace.files()).await
    } else {
        Ok(Vec::new())
    }
}
