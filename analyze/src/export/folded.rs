//! Sums by call stack in the folded format of flame graphs: one line per stack, `outer;inner;innermost 123`.
//!
//! | quantity | frames of a stack | value |
//! |---|---|---|
//! | on-cpu-calls | process, thread, functions (if recorded), enclosing calls, call | ns on CPU |
//! | off-cpu | process, thread, functions, enclosing calls, state and system call | ns off CPU |
//! | allocated-bytes | process, device, thread, functions | bytes of blocks allocated at an instant |
//! | pinned-bytes | as above, for blocks beside free memory | free bytes not releasable at an instant |
//!
//! The values sum to what the views report. The on-CPU time of a call excludes that of calls nested in it.
//! The pinned bytes of a segment are divided equally among its live blocks: each of these blocks alone holds
//! all of them, and the sum counts each byte once.

mod memory;
mod stacks;
mod time;

use std::sync::Arc;

use self::stacks::Names;
pub use self::stacks::{Folded, What};
use crate::{questions::memory::state::At, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Sums up each of the quantities `whats` (without duplicates) for a run. A quantity of which the run has no
/// values is empty.
///
/// # Errors
/// Returns an error if the run's data cannot be read, or if the instant does not exist.
pub async fn run(trace: &Trace, whats: &[What], at: &At) -> Result<Vec<(What, Folded)>, AnalyzeError> {
    let names = Arc::new(Names::load(trace).await?);
    let times = match whats.iter().any(|what| matches!(what, What::OnCpuCalls | What::OffCpu)) {
        true => time::run(trace, &names).await?,
        false => time::Times::default(),
    };
    let (mut on_cpu, mut off_cpu) = (Some(times.on_cpu), Some(times.off_cpu));
    let mut found = Vec::new();
    for what in whats {
        let folded = match what {
            What::OnCpuCalls => on_cpu.take().unwrap_or_default(),
            What::OffCpu => off_cpu.take().unwrap_or_default(),
            What::AllocatedBytes | What::PinnedBytes => {
                memory::run(trace, *what, at, Arc::clone(&names)).await?
            }
        };
        found.push((*what, folded));
    }
    Ok(found)
}
