//! What the allocator held over time.

use trace_schema::Bytes;

use crate::{analysis::memory::Curve, error::AnalyzeError, report::svg};

/// The figure and its figures.
pub(crate) struct Memory {
    pub(crate) svg: String,
    pub(crate) peak_live: String,
    pub(crate) peak_reserved: String,
    pub(crate) gap: String,
    pub(crate) events: i64,
    pub(crate) oom: usize,
}

/// `None` if the run has no allocator events.
pub(crate) fn build(curve: &Curve, origin_ns: i64) -> Result<Option<Memory>, AnalyzeError> {
    let Some(last) = curve.points.last() else { return Ok(None) };
    Ok(Some(Memory {
        svg: svg::memory(curve, origin_ns)?,
        peak_live: Bytes(curve.peak_live_bytes).to_string(),
        peak_reserved: Bytes(curve.peak_reserved_bytes).to_string(),
        gap: Bytes(last.reserved_bytes - last.live_bytes).to_string(),
        events: curve.events_count,
        oom: curve.oom_ts_ns.len(),
    }))
}
