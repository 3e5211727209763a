//! Exports, read back by readers that know the formats only.

mod events;
mod large;
mod packets;
mod profiles;
mod support;
mod timelines;
