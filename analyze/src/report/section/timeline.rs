//! How each thread spent the run.

use crate::{analysis::timeline, error::AnalyzeError, report::svg};

/// The figure.
pub(crate) struct Timeline {
    pub(crate) svg: String,
    pub(crate) shown: usize,
    pub(crate) threads: usize,
}

/// `None` if no thread made a call.
pub(crate) fn build(timeline: &timeline::Timeline) -> Result<Option<Timeline>, AnalyzeError> {
    if timeline.lanes.is_empty() {
        return Ok(None);
    }
    Ok(Some(Timeline {
        svg: svg::timeline(timeline)?,
        shown: timeline.lanes.len(),
        threads: timeline.threads_count,
    }))
}
