//! Reads Python pickles, protocols 0 to 5, as data only.
//!
//! Nothing is imported and nothing is called: an opcode that would do so is an error that names it. Elements
//! of the lists in one list of the top dict are streamed to a consumer as soon as they are complete, and then
//! forgotten, so that a file of gigabytes needs memory for what its parts share, and not for all of it.
//!
//! ```text
//! bytes ──► Source ──► Machine (stack, marks) ──► Store (objects, texts, memo) ──► Consumer
//! ```

mod error;
mod machine;
mod memo;
mod number;
mod opcode;
mod rare;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub(super) use error::PickleError;
pub(super) use machine::{Consumer, Keys, Machine, Streamed};
pub(super) use source::Source;
pub(super) use store::Store;
pub(super) use text::TextId;
pub(super) use value::{ObjectId, Shape, Token, Value};
