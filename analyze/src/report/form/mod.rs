//! Forms of a document. Each renders blocks, and escapes text that comes from the trace.

pub mod html;
pub mod markdown;
mod paint;
mod table;
pub mod terminal;
mod wrap;
