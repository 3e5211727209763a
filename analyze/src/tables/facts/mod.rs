//! Tables of what the files' metadata and the trace format itself say.

pub(super) mod lost;
pub(super) mod ops;
pub(super) mod processes;
pub(super) mod runs;
pub(super) mod threads;
