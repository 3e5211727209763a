//! Forms of a report. Each renders blocks, and escapes text that comes from the trace.

pub mod html;
pub mod markdown;
pub mod terminal;
