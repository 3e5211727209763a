//! Exports, read back by readers that know the formats only.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod events;
mod packets;
mod profiles;
mod support;
mod timelines;
