//! Forms of a document. Each renders blocks, and escapes text that comes from the trace.

pub(super) mod html;
pub(super) mod markdown;
mod paint;
mod table;
pub(super) mod terminal;
mod wrap;
