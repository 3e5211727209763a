//! The forms of a report. Each shows blocks, and escapes what comes from the trace.

pub(super) mod html;
pub(super) mod markdown;
pub(super) mod terminal;
