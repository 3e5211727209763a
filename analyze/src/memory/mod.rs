//! What PyTorch's caching allocator held at every instant, replayed from its own events.
//!
//! ```text
//! segment  ├────────────────────────── 20 MiB from the driver ───────────────────────────┤
//! blocks   ├─ active ─┼──── inactive ────┼─ active ─┼─ pending free ─┼───── inactive ──────┤
//! ```
//! The allocator says where it put each block, so nothing is searched: the replay only has to know how far a
//! block reaches ([`settings`]) and when neighbours are joined ([`allocator`]). What does not fit is a lost event
//! or a wrong setting: it is counted ([`fault`]), and the replay goes on from what the events say.

pub mod allocator;
pub mod beginning;
mod both;
pub mod check;
pub mod decode;
pub mod device;
pub mod event;
pub mod fault;
pub mod input;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_late;
pub mod pools;
#[cfg(test)]
mod recorded;
pub mod rests;
mod segments;
pub mod settings;
pub mod span;
pub mod story;
pub mod totals;
pub mod whatif;
