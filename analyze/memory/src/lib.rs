//! Replays the events of PyTorch's CUDA caching allocator to reconstruct its segments and blocks at every
//! instant.
//!
//! ```text
//! segment  ├────────────────────────── 20 MiB from the driver ───────────────────────────┤
//! blocks   ├─ active ─┼──── inactive ────┼─ active ─┼─ pending free ─┼───── inactive ──────┤
//! ```
//! Every event carries the address that the allocator chose, so the replay never searches for a free block.
//! It needs to know only how large a block is ([`settings`]) and when neighbouring free blocks merge
//! ([`allocator`]). An event that contradicts the replayed state means that an earlier event was lost or that
//! the settings differ; the replay counts it as a [`fault`] and continues from what the event says.

pub mod allocator;
pub mod cause;
pub mod check;
pub mod decode;
pub mod device;
pub mod event;
pub mod fault;
mod frees;
pub mod history;
pub mod initial_state;
pub mod input;
pub mod knowledge;
pub mod leaks;
mod listener_pair;
pub mod oom;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_late;
pub mod pool_split;
pub mod pools;
mod prepared;
pub mod release;
mod segments;
mod setting_keys;
pub mod settings;
pub mod span;
pub mod totals;
pub mod what_if;
