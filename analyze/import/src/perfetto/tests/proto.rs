//! The messages of Perfetto's trace format that the tests write, with the numbers and types of
//! `perfetto/trace/*.proto`.

use prost::Message;

#[derive(Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(super) packet: Vec<Packet>,
}

#[derive(Message)]
pub(super) struct Packet {
    #[prost(message, optional, tag = "1")]
    pub(super) bundle: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    pub(super) tree: Option<Tree>,
    #[prost(message, optional, tag = "6")]
    pub(super) clocks: Option<Clocks>,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub(super) deflated: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "133")]
    pub(super) zstandard: Option<Vec<u8>>,
}

#[derive(Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, tag = "9")]
    pub(super) kind: u64,
}

#[derive(Message)]
pub(super) struct Clocks {
    #[prost(message, repeated, tag = "1")]
    pub(super) readings: Vec<Reading>,
}

#[derive(Message)]
pub(super) struct Reading {
    #[prost(uint64, tag = "1")]
    pub(super) clock: u64,
    #[prost(uint64, tag = "2")]
    pub(super) time: u64,
    #[prost(bool, optional, tag = "3")]
    pub(super) is_incremental: Option<bool>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) unit_ns: Option<u64>,
}

#[derive(Message)]
pub(super) struct Tree {
    #[prost(message, repeated, tag = "1")]
    pub(super) processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub(super) threads: Vec<Thread>,
}

#[derive(Message)]
pub(super) struct Process {
    #[prost(uint64, tag = "1")]
    pub(super) pid: u64,
    #[prost(string, repeated, tag = "3")]
    pub(super) command: Vec<String>,
}

#[derive(Message)]
pub(super) struct Thread {
    #[prost(uint64, tag = "1")]
    pub(super) tid: u64,
    #[prost(uint64, tag = "3")]
    pub(super) pid: u64,
}

#[derive(Message)]
pub(super) struct Bundle {
    #[prost(uint64, required, tag = "1")]
    pub(super) cpu: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) events: Vec<Event>,
    #[prost(bool, tag = "3")]
    pub(super) has_lost: bool,
    #[prost(message, optional, tag = "4")]
    pub(super) compact: Option<Compact>,
}

#[derive(Message)]
pub(super) struct Event {
    #[prost(uint64, tag = "1")]
    pub(super) time: u64,
    #[prost(uint64, tag = "2")]
    pub(super) tid: u64,
    #[prost(message, optional, tag = "4")]
    pub(super) switch: Option<SchedSwitch>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) flags: Option<u64>,
    #[prost(message, optional, tag = "20")]
    pub(super) waking: Option<SchedWaking>,
}

#[derive(Message)]
pub(super) struct SchedSwitch {
    #[prost(string, tag = "1")]
    pub(super) prev_comm: String,
    #[prost(uint64, required, tag = "2")]
    pub(super) prev_tid: u64,
    #[prost(uint64, required, tag = "4")]
    pub(super) prev_state: u64,
    #[prost(string, tag = "5")]
    pub(super) next_comm: String,
    #[prost(uint64, required, tag = "6")]
    pub(super) next_tid: u64,
}

#[derive(Message)]
pub(super) struct SchedWaking {
    #[prost(uint64, tag = "2")]
    pub(super) tid: u64,
}

/// Lists of the fields of switches and of wakings; times are differences.
#[derive(Message)]
pub(super) struct Compact {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) switch_times: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    pub(super) prev_states: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    pub(super) next_tids: Vec<u64>,
    #[prost(string, repeated, tag = "5")]
    pub(super) names: Vec<String>,
    #[prost(uint64, repeated, tag = "6")]
    pub(super) next_names: Vec<u64>,
    #[prost(uint64, repeated, tag = "7")]
    pub(super) waking_times: Vec<u64>,
    #[prost(uint64, repeated, tag = "8")]
    pub(super) woken_tids: Vec<u64>,
    #[prost(uint64, repeated, tag = "12")]
    pub(super) waking_flags: Vec<u64>,
}
