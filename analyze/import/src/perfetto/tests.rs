//! Imports short traces, written field by field, both whole and damaged.

use std::{fs, io::Write};

use flate2::{Compression, write::ZlibEncoder};
use trace_schema::Run;

use super::{import, sniff};
use crate::{
    protobuf::Message,
    sched::tests::{Found, rows, said},
};
use analyze_run::random::Random;

fn packet(build: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut trace = Message::default();
    trace.with(1, build);
    trace.encoded().to_vec()
}

/// A snapshot of the clocks: CLOCK_BOOTTIME is 1000 ns ahead of CLOCK_MONOTONIC, and Unix time is one second
/// ahead of the latter.
fn clocks() -> Vec<u8> {
    packet(|packet| {
        packet.with(6, |snapshot| {
            for (clock, time) in [(6, 51_000), (3, 50_000), (1, 1_000_050_000)] {
                snapshot.with(1, |reading| {
                    reading.number(1, clock);
                    reading.number(2, time);
                });
            }
        });
    })
}

fn tree() -> Vec<u8> {
    packet(|packet| {
        packet.with(2, |tree| {
            tree.with(1, |process| {
                process.number(1, 9);
                process.bytes(3, b"hog");
                process.bytes(3, b"--hard");
            });
            for tid in [10, 20] {
                tree.with(2, |thread| {
                    thread.number(1, tid);
                    thread.number(3, 9);
                });
            }
        });
    })
}

type Switch = (u64, (u64, &'static str), u64, (u64, &'static str));

fn bundle(cpu: u64, switches: &[Switch], wakings: &[(u64, u64, u64, u64)], has_lost: bool) -> Vec<u8> {
    packet(|packet| {
        packet.with(1, |bundle| {
            bundle.number(1, cpu);
            if has_lost {
                bundle.number(3, 1);
            }
            for (time, prev, state, next) in switches {
                bundle.with(2, |event| {
                    event.number(1, *time);
                    event.number(2, prev.0);
                    event.with(4, |switch| {
                        switch.bytes(1, prev.1.as_bytes());
                        switch.number(2, prev.0);
                        switch.number(4, *state);
                        switch.bytes(5, next.1.as_bytes());
                        switch.number(6, next.0);
                    });
                });
            }
            for (time, by, flags, woken) in wakings {
                bundle.with(2, |event| {
                    event.number(1, *time);
                    event.number(2, *by);
                    event.number(5, *flags);
                    event.with(20, |waking| waking.number(2, *woken));
                });
            }
        });
    })
}

/// Builds a bundle of the same events as compact lists.
fn compact(cpu: u64, switches: &[Switch], wakings: &[(u64, u64, u64, u64)]) -> Vec<u8> {
    let deltas = |times: Vec<u64>| {
        let earlier = std::iter::once(0).chain(times.clone());
        times.iter().zip(earlier).map(|(time, earlier)| time - earlier).collect::<Vec<u64>>()
    };
    packet(|packet| {
        packet.with(1, |bundle| {
            bundle.number(1, cpu);
            bundle.with(4, |lists| {
                lists.packed(1, &deltas(switches.iter().map(|switch| switch.0).collect()));
                lists.packed(2, &switches.iter().map(|switch| switch.2).collect::<Vec<_>>());
                lists.packed(3, &switches.iter().map(|switch| switch.3.0).collect::<Vec<_>>());
                lists.packed(6, &(0..switches.len() as u64).collect::<Vec<_>>());
                switches.iter().for_each(|switch| lists.bytes(5, switch.3.1.as_bytes()));
                lists.packed(7, &deltas(wakings.iter().map(|waking| waking.0).collect()));
                lists.packed(8, &wakings.iter().map(|waking| waking.3).collect::<Vec<_>>());
                lists.packed(12, &wakings.iter().map(|waking| waking.2).collect::<Vec<_>>());
            });
        });
    })
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
    assert_eq!(run.processes[0].command, ["hog", "--hard"]);
    assert!(run.lost_is_counted && run.lost.is_empty());
}

#[test]
fn compact_and_compressed_packets_say_the_same() {
    let mut inner = ZlibEncoder::new(Vec::new(), Compression::default());
    inner.write_all(&compact(1, SECOND, &[])).unwrap();
    inner.write_all(&bundle(0, &[], WAKING, false)).unwrap();
    let inner = inner.finish().unwrap();
    let compressed = packet(|packet| packet.bytes(50, &inner));
    let bytes = [clocks(), compact(1, FIRST, &[]), compressed, tree()].concat();
    let (found, _) = converted(&bytes).unwrap();
    // Compact events do not say which thread left first.
    let expected = EXPECTED.replace("99000 10000 preempted 10 1 1 10000 - 20\n", "");
    assert_eq!(sorted(&said(&found)), sorted(&expected));
    let damaged = packet(|packet| packet.bytes(50, &inner[..inner.len() - 8]));
    let why = converted(&[clocks(), damaged].concat()).unwrap_err();
    assert!(why.contains("in the compressed packets here") && why.contains(": byte "), "{why}");
    let zstd = packet(|packet| packet.bytes(133, b"x"));
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
    let event = packet(|packet| packet.with(11, |event| event.number(9, 1)));
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
    let uneven = packet(|packet| {
        packet.with(1, |bundle| bundle.with(4, |lists| lists.packed(1, &[5, 6])));
    });
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
            assert!(why.contains(": byte ") || why.contains("tells nothing"), "{why}");
        }
    }
}
