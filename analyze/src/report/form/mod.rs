//! The forms of a report. Each shows blocks, and escapes what comes from the trace.

pub(crate) mod html;
pub(crate) mod markdown;
pub(crate) mod terminal;
