//! Defines tracks, slices, counters and flows of a run: the content that all timeline formats show.
//!
//! | track | content |
//! |---|---|
//! | thread | its calls, nested; lifecycle events of its process |
//! | thread / off CPU | off-CPU intervals: state, system call, waker, and the task that ran instead |
//! | thread / marks | ranges that the workload named |
//! | thread / delayed others | links of chains behind others' slow calls; a flow leads here from the call |
//! | thread / host | operators and functions of imported profiles; those without a thread share a track |
//! | GPU, stream | GPU work of imported profiles; a flow leads here from the call that caused it |
//! | process | counters: memory of its allocators per device; samples of the process |
//! | no process | samples of devices, lost events, and the circumstances of the recording |
//!
//! Everything is streamed: sorts and joins may spill to disk, and only the slices that are open are held in memory.

mod beside;
mod calls;
mod columns;
mod content;
mod imported;
mod model;

use std::path::Path;

pub(super) use self::content::off_cpu_name;
pub use self::model::Counts;
use self::model::Timeline;
pub(super) use self::model::{Kind, Sink, Slice, Value};
use crate::trace::Trace;
use analyze_run::error::AnalyzeError;

/// Writes the only run of `trace`.
///
/// # Errors
/// Returns an error if its data cannot be read, or if the timeline cannot be written.
pub(super) async fn write(trace: &Trace, sink: impl Sink, out: &Path) -> Result<Counts, AnalyzeError> {
    let run = trace.files().first().map(|file| file.run.clone()).unwrap_or_default();
    let mut timeline = Timeline::new(sink, out, run);
    content::write(trace, &mut timeline).await?;
    timeline.finish()
}
