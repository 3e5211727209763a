//! The forms of a report. Each shows blocks, and escapes what comes from the trace.

pub mod html;
pub mod markdown;
pub mod terminal;
