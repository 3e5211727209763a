//! Perfetto's packets: every field is one that its format has, and what packets refer to is there before them.

use std::{collections::HashMap, fs};

use super::{
    support::{Field, content, fields, number, text},
    timelines::exported,
};
use crate::support::testdata;

/// Wire types: a varint, eight bytes, what has a length; a message.
enum Ty {
    Varint,
    Fixed,
    Text,
    Message(&'static str),
}
use Ty::{Fixed, Message, Text, Varint};

/// The fields that each message may have, as `perfetto/trace/*.proto` have them.
const MESSAGES: [(&str, &[(u64, Ty)]); 13] = [
    ("Trace", &[(1, Message("TracePacket"))]),
    (
        "TracePacket",
        &[
            (6, Message("ClockSnapshot")),
            (8, Varint),
            (10, Varint),
            (11, Message("TrackEvent")),
            (12, Message("InternedData")),
            (13, Varint),
            (59, Message("TracePacketDefaults")),
            (60, Message("TrackDescriptor")),
            (87, Varint),
        ],
    ),
    ("ClockSnapshot", &[(1, Message("Clock")), (2, Varint)]),
    ("Clock", &[(1, Varint), (2, Varint)]),
    ("TracePacketDefaults", &[(58, Varint)]),
    (
        "TrackDescriptor",
        &[
            (1, Varint),
            (2, Text),
            (3, Message("ProcessDescriptor")),
            (4, Message("ThreadDescriptor")),
            (5, Varint),
            (8, Message("CounterDescriptor")),
        ],
    ),
    ("ProcessDescriptor", &[(1, Varint), (2, Text), (6, Text)]),
    ("ThreadDescriptor", &[(1, Varint), (2, Varint), (5, Text)]),
    ("CounterDescriptor", &[(3, Varint), (6, Text)]),
    (
        "TrackEvent",
        &[
            (3, Varint),
            (4, Message("DebugAnnotation")),
            (9, Varint),
            (10, Varint),
            (11, Varint),
            (22, Text),
            (23, Text),
            (30, Varint),
            (47, Fixed),
            (48, Fixed),
        ],
    ),
    ("DebugAnnotation", &[(1, Varint), (4, Varint), (5, Fixed), (6, Text), (10, Text), (17, Varint)]),
    (
        "InternedData",
        &[
            (1, Message("Interned")),
            (2, Message("Interned")),
            (3, Message("Interned")),
            (29, Message("Interned")),
        ],
    ),
    ("Interned", &[(1, Varint), (2, Text)]),
];

fn check(message: &str, bytes: &[u8]) {
    let (_, known) = MESSAGES.iter().find(|(name, _)| *name == message).unwrap();
    for field in fields(bytes) {
        let (_, ty) = known.iter().find(|(number, _)| *number == field.number).unwrap_or_else(|| {
            panic!("{message} has a field {}", field.number);
        });
        match ty {
            Varint => assert_eq!(field.wire, 0, "{message}.{}", field.number),
            Fixed => assert_eq!(field.wire, 1, "{message}.{}", field.number),
            Text => assert!(std::str::from_utf8(field.content).is_ok() && field.wire == 2),
            Message(inner) => {
                assert_eq!(field.wire, 2, "{message}.{}", field.number);
                check(inner, field.content);
            }
        }
    }
}

/// What has been introduced so far.
#[derive(Default)]
struct Known {
    tracks: HashMap<u64, bool>,
    /// By field of `InternedData` and number.
    interned: HashMap<(u64, u64), String>,
    /// Begins of open slices, by track.
    open: HashMap<u64, Vec<u64>>,
    /// Time of the last value, by counter.
    values: HashMap<u64, u64>,
}

impl Known {
    fn has(&self, kind: u64, event: &[Field<'_>], by_number: u64, by_name: u64) {
        match number(event, by_number) {
            Some(number) => assert!(self.interned.contains_key(&(kind, number)), "{kind}: {number}"),
            None => assert!(text(event, by_name).is_some(), "neither a number nor a name"),
        }
    }

    fn event(&mut self, ts: u64, event: &[Field<'_>]) {
        let track = number(event, 11).unwrap();
        let is_counter = self.tracks[&track];
        let kind = number(event, 9).unwrap();
        assert_eq!(kind == 4, is_counter, "values are on counters' tracks, and nothing else");
        match kind {
            1 | 3 => {
                self.has(1, event, 3, 22);
                self.has(2, event, 10, 23);
                for arg in event.iter().filter(|field| field.number == 4) {
                    let arg = fields(arg.content);
                    self.has(3, &arg, 1, 10);
                    if let Some(number) = number(&arg, 17) {
                        assert!(self.interned.contains_key(&(29, number)));
                    } else {
                        assert!([4, 5, 6].iter().any(|value| content(&arg, *value).is_some()));
                    }
                }
                if kind == 1 {
                    let open = self.open.entry(track).or_default();
                    assert!(open.last().is_none_or(|around| *around <= ts), "slices nest");
                    open.push(ts);
                }
            }
            2 => assert!(self.open.get_mut(&track).unwrap().pop().unwrap() <= ts),
            _ => {
                assert!(number(event, 30).is_some());
                assert!(self.values.insert(track, ts).is_none_or(|last| last <= ts), "values are in order");
            }
        }
    }
}

#[test]
fn every_packet_is_as_the_format_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = exported("perfetto", &testdata("h200/shared.parquet"), directory.path(), "a.pftrace");
    let trace = fs::read(out).unwrap();
    check("Trace", &trace);
    let mut known = Known::default();
    let mut is_begun = false;
    for packet in fields(&trace) {
        let packet = fields(packet.content);
        assert_eq!(number(&packet, 10), Some(1), "one sequence");
        if number(&packet, 13) == Some(1) {
            let defaults = fields(content(&packet, 59).unwrap());
            assert_eq!(number(&defaults, 58), Some(3), "times are on CLOCK_MONOTONIC");
            is_begun = true;
        }
        for data in content(&packet, 12).map(fields).unwrap_or_default() {
            let entry = fields(data.content);
            let place = (data.number, number(&entry, 1).unwrap());
            assert!(place.1 > 0 && known.interned.insert(place, text(&entry, 2).unwrap()).is_none());
        }
        if let Some(track) = content(&packet, 60).map(fields) {
            let id = number(&track, 1).unwrap();
            assert!(number(&track, 5).is_none_or(|parent| known.tracks.contains_key(&parent)));
            assert!(known.tracks.insert(id, content(&track, 8).is_some()).is_none());
        }
        if let Some(event) = content(&packet, 11).map(fields) {
            assert!(is_begun && number(&packet, 13) == Some(2));
            known.event(number(&packet, 8).unwrap(), &event);
        }
    }
    assert!(is_begun && known.open.len() > 2 && known.values.len() > 2 && !known.interned.is_empty());
}
