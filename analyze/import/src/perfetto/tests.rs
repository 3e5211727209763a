//! Imports short traces, written field by field, both whole and damaged.

mod proto;

use std::{fs, io::Write};

use flate2::{Compression, write::ZlibEncoder};
use prost::Message;
use trace_schema::Run;

use self::proto::{
    Bundle, Clocks, Compact, Event, Packet, Process, Reading, SchedSwitch, SchedWaking, Thread, Trace,
    TrackEvent, Tree,
};
use super::{begins_long, import, sniff, survey::Survey};
use crate::{
    perfetto::bundle::Current,
    protobuf::Stream,
    sched::tests::{Found, rows, said},
};
use analyze_run::random::Random;

fn packet(packet: Packet) -> Vec<u8> {
    Trace { packet: vec![packet] }.encode_to_vec()
}

fn snapshot(readings: Vec<Reading>) -> Vec<u8> {
    packet(Packet { clocks: Some(Clocks { readings }), ..Packet::default() })
}

/// A snapshot of the clocks: CLOCK_BOOTTIME is 1000 ns ahead of CLOCK_MONOTONIC, and Unix time is one second
/// ahead of the latter.
fn clocks() -> Vec<u8> {
    let readings = [(6, 51_000), (3, 50_000), (1, 1_000_050_000)];
    snapshot(readings.map(|(clock, time)| Reading { clock, time, ..Reading::default() }).into())
}

fn tree() -> Vec<u8> {
    let tree = Tree {
        processes: vec![Process { pid: 9, command: vec!["hog".to_owned(), "--hard".to_owned()] }],
        threads: [10, 20].map(|tid| Thread { tid, pid: 9 }).into(),
    };
    packet(Packet { tree: Some(tree), ..Packet::default() })
}

type Switch = (u64, (u64, &'static str), u64, (u64, &'static str));

fn bundle(cpu: u64, switches: &[Switch], wakings: &[(u64, u64, u64, u64)], has_lost: bool) -> Vec<u8> {
    let switches = switches.iter().map(|(time, prev, state, next)| Event {
        time: *time,
        tid: prev.0,
        switch: Some(SchedSwitch {
            prev_comm: prev.1.to_owned(),
            prev_tid: prev.0,
            prev_state: *state,
            next_comm: next.1.to_owned(),
            next_tid: next.0,
        }),
        ..Event::default()
    });
    let wakings = wakings.iter().map(|(time, by, flags, woken)| Event {
        time: *time,
        tid: *by,
        flags: Some(*flags),
        waking: Some(SchedWaking { tid: *woken }),
        ..Event::default()
    });
    let events = switches.chain(wakings).collect();
    packet(Packet { bundle: Some(Bundle { cpu, events, has_lost, compact: None }), ..Packet::default() })
}

/// Builds a bundle of the same events as compact lists.
fn compact(cpu: u64, switches: &[Switch], wakings: &[(u64, u64, u64, u64)]) -> Vec<u8> {
    let deltas = |times: Vec<u64>| {
        let earlier = std::iter::once(0).chain(times.clone());
        times.iter().zip(earlier).map(|(time, earlier)| time - earlier).collect::<Vec<u64>>()
    };
    listed(
        cpu,
        Compact {
            switch_times: deltas(switches.iter().map(|switch| switch.0).collect()),
            prev_states: switches.iter().map(|switch| switch.2).collect(),
            next_tids: switches.iter().map(|switch| switch.3.0).collect(),
            names: switches.iter().map(|switch| switch.3.1.to_owned()).collect(),
            next_names: (0..switches.len() as u64).collect(),
            waking_times: deltas(wakings.iter().map(|waking| waking.0).collect()),
            woken_tids: wakings.iter().map(|waking| waking.3).collect(),
            waking_flags: wakings.iter().map(|waking| waking.2).collect(),
        },
    )
}

fn listed(cpu: u64, compact: Compact) -> Vec<u8> {
    let bundle = Bundle { cpu, compact: Some(compact), ..Bundle::default() };
    packet(Packet { bundle: Some(bundle), ..Packet::default() })
}

const HOG: (u64, &str) = (10, "hog");
const NAP: (u64, &str) = (20, "nap");
const IDLE: (u64, &str) = (0, "swapper/0");
/// The hog is preempted and comes back; then a sleep ends with a waking on another CPU.
const FIRST: &[Switch] = &[(100_000, HOG, 256, NAP), (110_000, NAP, 1, HOG)];
const SECOND: &[Switch] = &[(150_000, HOG, 0, NAP), (160_000, NAP, 1, IDLE)];
const WAKING: &[(u64, u64, u64, u64)] = &[(140_000, 40, 1, 20)];

fn trace() -> Vec<Vec<u8>> {
    // The bundle of the other CPU comes after one that it precedes in time.
    vec![
        clocks(),
        bundle(1, FIRST, &[], false),
        bundle(1, SECOND, &[], false),
        bundle(0, &[], WAKING, false),
        tree(),
    ]
}

fn converted(bytes: &[u8]) -> Result<(Vec<Found>, Run), String> {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("trace"), directory.path().join("run.parquet"));
    fs::write(&file, bytes).unwrap();
    let result = import(&file, &out, false);
    let left = fs::read_dir(directory.path()).unwrap().count();
    result.map(|_| rows(&out)).map_err(|error| {
        assert_eq!(left, 1, "something is left beside the trace");
        error.to_string()
    })
}

const EXPECTED: &str = "\
99000 10000 preempted 10 1 1 10000 - 20
99000 10000 run 20 1 - - - -
109000 40000 sleeping 20 1 1 10000 40 10
109000 40000 run 10 1 - - - -
149000 - preempted 10 1 - - - 20
149000 10000 run 20 1 - - - -
159000 - sleeping 20 1 - - - 0
";

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn bundles_in_no_order_become_rows_on_the_monotonic_clock() {
    let (found, run) = converted(&trace().concat()).unwrap();
    assert_eq!(sorted(&said(&found)), sorted(EXPECTED));
    assert!(found.iter().all(|row| row["pid"] == "9"), "{found:?}");
    assert_eq!((run.clock.start_ns, run.clock.wall_offset_ns), (99_000, 1_000_000_000));
    assert_eq!(run.clock_base(), Some("CLOCK_MONOTONIC"));
    assert_eq!(run.processes[0].command, ["hog", "--hard"]);
    assert!(run.lost_is_counted && run.lost.is_empty());
}

#[test]
fn compact_and_compressed_packets_say_the_same() {
    let mut inner = ZlibEncoder::new(Vec::new(), Compression::default());
    inner.write_all(&compact(1, SECOND, &[])).unwrap();
    inner.write_all(&bundle(0, &[], WAKING, false)).unwrap();
    let inner = inner.finish().unwrap();
    let compressed = packet(Packet { deflated: Some(inner.clone()), ..Packet::default() });
    let bytes = [clocks(), compact(1, FIRST, &[]), compressed, tree()].concat();
    let (found, _) = converted(&bytes).unwrap();
    // Compact events do not say which thread left first.
    let expected = EXPECTED.replace("99000 10000 preempted 10 1 1 10000 - 20\n", "");
    assert_eq!(sorted(&said(&found)), sorted(&expected));
    let damaged = packet(Packet { deflated: Some(inner[..inner.len() - 8].to_vec()), ..Packet::default() });
    let why = converted(&[clocks(), damaged].concat()).unwrap_err();
    assert!(why.contains("in the compressed packets here") && why.contains(": byte "), "{why}");
    let zstd = packet(Packet { zstandard: Some(b"x".to_vec()), ..Packet::default() });
    assert!(converted(&zstd).unwrap_err().contains("Zstandard"));
}

#[test]
fn losses_and_interrupts_are_told() {
    let bytes = [clocks(), bundle(1, FIRST, &[], false), bundle(1, SECOND, WAKING, true)].concat();
    let (found, run) = converted(&bytes).unwrap();
    assert_eq!((run.lost.len(), run.lost[0].count, run.lost[0].to_ns), (1, 1, 139_000));
    assert!(said(&found).contains("109000 - sleeping 20"), "it spans the loss: {}", said(&found));
    let by_interrupt = [(140_000, 40, 8, 20)];
    let bytes = [bundle(1, FIRST, &[], false), bundle(1, SECOND, &by_interrupt, false)].concat();
    let (found, run) = converted(&bytes).unwrap();
    assert!(said(&found).contains("110000 40000 sleeping 20 1 1 10000 0 10"), "{}", said(&found));
    assert!(run.not_captured.iter().any(|what| what.contains("CLOCK_BOOTTIME")), "{:?}", run.not_captured);
}

#[test]
fn what_has_no_switches_or_is_none_is_refused() {
    let event = packet(Packet { track_event: Some(TrackEvent { kind: 1 }), ..Packet::default() });
    let why = converted(&[clocks(), event].concat()).unwrap_err();
    assert!(why.contains("no sched_switch") && why.contains("track_event (1)"), "{why}");
    for (bytes, words) in [
        (&b"\x0a\x05ab"[..], "byte 0: the file is cut off in a message of 5 bytes"),
        (&b"hello"[..], "byte 0: "),
        (&b"\x0a\x02\x0b\x00"[..], "byte 2: a field has the type 3"),
    ] {
        let why = converted(bytes).unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    }
    let uneven = listed(0, Compact { switch_times: vec![5, 6], ..Compact::default() });
    assert!(converted(&uneven).unwrap_err().contains("different lengths"));
    assert!(sniff(&trace().concat()) && sniff(&trace().concat()[..30]));
    for text in [&b"\nhello, this is a text"[..], b"", b"\x0a", b"PAR1", b"{}", b"\x0a\x00"] {
        assert!(!sniff(text), "{}", String::from_utf8_lossy(text));
    }
}

/// A trace that is cut anywhere but between packets is refused with the byte; one that is changed anywhere
/// never causes a panic.
#[test]
fn no_damage_passes_for_a_packet_or_panics() {
    let packets = trace();
    let whole = packets.concat();
    let ends: Vec<usize> = packets
        .iter()
        .scan(0, |end, packet| {
            *end += packet.len();
            Some(*end)
        })
        .collect();
    for end in (1..whole.len()).filter(|end| !ends.contains(end)) {
        let why = converted(&whole[..end]).unwrap_err();
        assert!(why.contains(": byte "), "{end}: {why}");
    }
    let mut random = Random(7);
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.below(256) as u8),
            }
        }
        if let Err(why) = converted(&bytes) {
            assert!(why.contains(": byte ") || why.contains("no sched_switch"), "{why}");
        }
    }
}

/// A reading with another unit stays unused, even if it also says that it is not incremental.
#[test]
fn clocks_that_are_incremental_or_scaled_are_not_used() {
    let offsets = |is_incremental, unit_ns| {
        let plain = |clock, time| Reading { clock, time, ..Reading::default() };
        let other = Reading { is_incremental, unit_ns, ..plain(3, 50_000) };
        let bytes = snapshot(vec![plain(6, 51_000), other]);
        let (mut survey, mut stream) = (Survey::default(), Stream::new(&bytes[..], 0));
        let (_, packet) = stream.next().unwrap().unwrap();
        survey.packet(packet, &mut Current::new()).unwrap();
        survey.offsets().map(|offsets| offsets.monotonic_ns)
    };
    assert_eq!(offsets(None, None), Some(-1000));
    assert_eq!(offsets(Some(false), Some(1)), Some(-1000));
    for (is_incremental, unit_ns) in [(Some(true), None), (Some(true), Some(1)), (Some(false), Some(1000))] {
        assert_eq!(offsets(is_incremental, unit_ns), None, "{is_incremental:?} {unit_ns:?}");
    }
}

/// A first packet that is cut off is one of Perfetto's; one with a field that cannot be is not.
#[test]
fn a_long_first_packet_is_recognized_by_its_fields() {
    // A packet of 127 bytes: a number, then a field that is cut off, or has no type, or the number 0.
    assert!(begins_long(b"\x0a\x7f\x40\x01\x0a\x70ab"));
    for wrong in [&b"\x0a\x7f\x40\x01\x0b\x00"[..], b"\x0a\x7f\x40\x01\x00\x00", b"\x0a\x7f\x08"] {
        assert!(!begins_long(wrong), "{wrong:?}");
    }
}
