//! Tables that the replays of PyTorch's allocator and of whole GPUs derive from `events`. Their rows are handed on while the
//! replay runs.

pub(super) mod blocks;
pub(super) mod curve;
mod device_replay;
pub(super) mod driver;
pub(super) mod faults;
mod history;
pub(super) mod ledger;
pub(super) mod ooms;
pub(super) mod pauses;
pub(super) mod pools;
pub(super) mod releases;
pub(super) mod requests;
pub(super) mod segments;
mod sink;
