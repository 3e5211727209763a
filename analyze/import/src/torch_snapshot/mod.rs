//! Snapshots of PyTorch's caching allocator: the pickle of `torch.cuda.memory._snapshot()`, also compressed
//! with gzip.
//!
//! What has to be known to read one rightly: times are Unix microseconds; the history is a ring and may have
//! lost its beginning; addresses and sizes of events are those of the allocator's own log; one expandable
//! segment is listed once per mapped range; the requested size of an inactive block is its last tenant's.

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

pub(super) use snapshot::import;
