//! The messages of Perfetto's trace format, with the fields that this program writes. Names, numbers and
//! types are those of `perfetto/trace/*.proto`. A `required` field is written also if it is zero.

use prost::Message;

/// A trace. Encoded traces that follow each other are one trace.
#[derive(Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(super) packet: Vec<TracePacket>,
}

/// One packet of a trace.
#[derive(Message)]
pub(super) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub(super) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint64, required, tag = "10")]
    pub(super) trusted_packet_sequence_id: u64,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint64, optional, tag = "13")]
    pub(super) sequence_flags: Option<u64>,
    #[prost(message, optional, tag = "59")]
    pub(super) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
    #[prost(bool, optional, tag = "87")]
    pub(super) first_packet_on_sequence: Option<bool>,
}

/// Readings of several clocks at one moment.
#[derive(Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
    #[prost(uint64, required, tag = "2")]
    pub(super) primary_trace_clock: u64,
}

/// The reading of one clock, in ns.
#[derive(Message)]
pub(super) struct Clock {
    #[prost(uint64, required, tag = "1")]
    pub(super) clock_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub(super) timestamp: u64,
}

/// Defaults of the packets of a sequence.
#[derive(Message)]
pub(super) struct TracePacketDefaults {
    #[prost(uint64, required, tag = "58")]
    pub(super) timestamp_clock_id: u64,
}

/// A track of the timeline.
#[derive(Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, required, tag = "1")]
    pub(super) uuid: u64,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
}

/// The process of a track.
#[derive(Message)]
pub(super) struct ProcessDescriptor {
    #[prost(uint32, required, tag = "1")]
    pub(super) pid: u32,
    #[prost(string, repeated, tag = "2")]
    pub(super) cmdline: Vec<String>,
    /// Left out if it is empty.
    #[prost(string, tag = "6")]
    pub(super) process_name: String,
}

/// The thread of a track.
#[derive(Message)]
pub(super) struct ThreadDescriptor {
    #[prost(uint32, required, tag = "1")]
    pub(super) pid: u32,
    #[prost(uint32, required, tag = "2")]
    pub(super) tid: u32,
    /// Left out if it is empty.
    #[prost(string, tag = "5")]
    pub(super) thread_name: String,
}

/// The counter of a track.
#[derive(Message)]
pub(super) struct CounterDescriptor {
    #[prost(uint64, optional, tag = "3")]
    pub(super) unit: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub(super) unit_name: Option<String>,
}

/// The begin or end of a slice, an instant, or a value of a counter.
#[derive(Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, optional, tag = "3")]
    pub(super) category_iids: Option<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) debug_annotations: Vec<DebugAnnotation>,
    #[prost(uint64, required, tag = "9")]
    pub(super) kind: u64,
    #[prost(uint64, optional, tag = "10")]
    pub(super) name_iid: Option<u64>,
    #[prost(uint64, required, tag = "11")]
    pub(super) track_uuid: u64,
    #[prost(string, optional, tag = "22")]
    pub(super) categories: Option<String>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(super) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(super) terminating_flow_ids: Vec<u64>,
}

/// An argument of an event.
#[derive(Message)]
pub(super) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(super) name_iid: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub(super) int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    pub(super) double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub(super) string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub(super) name: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    pub(super) string_value_iid: Option<u64>,
}

/// Strings that the sequence refers to from this packet on.
#[derive(PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<InternedString>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "29")]
    pub(super) debug_annotation_string_values: Vec<InternedString>,
}

/// A string and its ID.
#[derive(PartialEq, Message)]
pub(super) struct InternedString {
    #[prost(uint64, required, tag = "1")]
    pub(super) iid: u64,
    #[prost(string, required, tag = "2")]
    pub(super) name: String,
}
