//! What is read of a run for detectors alone: one field and one line a kind of record.

mod calls;
mod driver_growth;
mod failures;
pub(super) mod gpu;
mod gpu_memory;
mod handoffs;
pub(super) mod ranks;

pub use failures::{CallSum, CollectiveSum, End, Failures, OpenCall, OpenSleep};
pub use gpu_memory::GpuMemory;
pub use handoffs::Handoff;

use self::calls::CallRecord;
use crate::{
    questions::info::{Present, ProcessCount},
    trace::{Together, Trace},
};
use analyze_memory::leaks::driver::DriverGrowth;
use analyze_run::error::AnalyzeError;

/// What detectors know besides the answers of other questions.
#[derive(Debug, Default)]
pub struct Records {
    /// How processes ended, and which calls failed or were open.
    pub failures: Failures,
    /// Calls that launch, copy, wait and allocate, what GPUs ran, and throttled clocks.
    pub gpu: gpu::GpuRecord,
    /// Who entered collective operations last.
    pub ranks: ranks::Ranks,
    /// Which threads ended the sleeps of which.
    pub handoffs: Vec<Handoff>,
    /// Growth of the memory that processes allocated from the driver.
    pub driver_growth: Vec<DriverGrowth>,
    /// The memory of GPUs, by their counters.
    pub gpu_memory: GpuMemory,
}

impl Records {
    /// Returns the future of them. `present` says which rows there are, so that what a run has no rows of is not looked for, and
    /// `processes` how many. What reads calls in the order of time is a part of `together`, which is made of `trace`.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub fn read<'a>(
        trace: &'a Trace,
        together: &'a Together,
        present: &'a Present,
        processes: &'a [ProcessCount],
    ) -> impl Future<Output = Result<Self, AnalyzeError>> + Send + 'a {
        let gpu = gpu::GpuRecord::read(trace, together, present);
        async move {
            let of_calls = async {
                let CallRecord { calls, open_calls, launches, sums, copies } =
                    CallRecord::read(trace, present, processes).await?;
                let failures = Failures::read(trace, present, calls, open_calls).await?;
                Ok::<_, AnalyzeError>((failures, launches, sums, copies))
            };
            let ((failures, launches, calls, copies), handoffs, gpu, ranks, driver_growth, gpu_memory) = tokio::try_join!(
                of_calls,
                handoffs::read(trace, present),
                gpu,
                ranks::Ranks::read(trace, processes),
                driver_growth::read(trace, processes),
                GpuMemory::read(trace, present),
            )?;
            let gpu = gpu::GpuRecord { launches, copies, calls, ..gpu };
            Ok(Self { failures, handoffs, gpu, ranks, driver_growth, gpu_memory })
        }
    }
}
