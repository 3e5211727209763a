//! Imports snapshots of PyTorch's caching allocator: the pickle of `torch.cuda.memory._snapshot()`, also
//! compressed with gzip.
//!
//! A reader has to know: times are Unix microseconds; the history is a ring buffer and may have lost its
//! beginning; addresses and sizes of events are those of the allocator's own log; an expandable segment is
//! listed once for each mapped range; the requested size of an inactive block is that of its last allocation.

mod annotations;
mod events;
mod fields;
mod history;
mod keys;
mod settings;
mod snapshot;
mod stacks;
mod state;
#[cfg(test)]
mod tests;

pub(super) use snapshot::TorchSnapshot;
