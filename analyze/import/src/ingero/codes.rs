//! Numbers of ingero.

/// Values of `events.source`.
pub(super) const SOURCE_RUNTIME: i64 = 1;
pub(super) const SOURCE_HOST: i64 = 3;
pub(super) const SOURCE_DRIVER: i64 = 4;
/// Values of `events.op` in host events.
pub(super) const HOST_SWITCH: i64 = 1;
pub(super) const HOST_EXEC: i64 = 5;
pub(super) const HOST_EXIT: i64 = 6;
pub(super) const HOST_FORK: i64 = 7;
