//! What PyTorch's caching allocator held at every instant, replayed from its own events.
//!
//! ```text
//! segment  ├────────────────────────── 20 MiB from the driver ───────────────────────────┤
//! blocks   ├─ active ─┼──── inactive ────┼─ active ─┼─ pending free ─┼───── inactive ──────┤
//! ```
//! The allocator says where it put each block, so nothing is searched: the replay only has to know how far a
//! block reaches ([`settings`]) and when neighbours are joined ([`allocator`]). What does not fit is a lost event
//! or a wrong setting: it is counted ([`fault`]), and the replay goes on from what the events say.

pub(crate) mod allocator;
pub(crate) mod beginning;
mod both;
pub(crate) mod check;
pub(crate) mod decode;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod input;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_late;
pub(crate) mod pools;
#[cfg(test)]
mod recorded;
pub(crate) mod rests;
mod segments;
pub(crate) mod settings;
pub(crate) mod span;
pub(crate) mod story;
pub(crate) mod totals;
pub(crate) mod whatif;
