//! Imports damaged and hostile snapshots, through all steps of the import.

use std::{fs, path::PathBuf};

use trace_writer::Recorder;

use super::{events::Events, snapshot};
use crate::pickle::{PickleError, Source};
use analyze_run::random::Random;

fn small(protocol: u32) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../testdata/snapshots/small.p{protocol}.pickle"));
    fs::read(path).unwrap()
}

/// Imports bytes. Returns the reason if they are refused, and leaves no file behind.
fn import(directory: &tempfile::TempDir, bytes: &[u8]) -> Result<(), String> {
    let out = directory.path().join("run.parquet");
    let mut events = Events::new(Recorder::create(&out, true, &Default::default()).unwrap());
    let result = snapshot::convert(Source::new(bytes, Some(bytes.len() as u64)), &mut events);
    events.recorder.discard();
    match result {
        Ok(run) => {
            assert_eq!(run.producer, "torch snapshot");
            Ok(())
        }
        Err(PickleError::At { reason, .. }) => Err(reason),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn every_cut_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    for protocol in [0, 2, 4] {
        let whole = small(protocol);
        assert_eq!(import(&directory, &whole), Ok(()));
        for length in (0..whole.len()).step_by(if protocol == 4 { 1 } else { 7 }) {
            let reason = import(&directory, &whole[..length]).expect_err("it is cut off");
            assert!(reason.contains("cut off") || reason.contains("frame of"), "{length}: {reason}");
        }
    }
}

#[test]
fn random_damage_never_panics() {
    let directory = tempfile::tempdir().unwrap();
    let originals = [small(0), small(2), small(5)];
    let mut random = Random(0xfeed_beef_1234_5678);
    let mut refused = 0;
    for round in 0..3_000 {
        let mut bytes = originals[round % originals.len()].clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            match random.below(5) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, random.below(256) as u8),
                _ => {
                    let end = (at + random.below(40)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
        refused += usize::from(import(&directory, &bytes).is_err());
    }
    assert!(refused > 1000, "{refused}");
}

/// Encodes a dict of short keys and encoded values.
fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"}(".to_vec();
    for (key, value) in pairs {
        bytes.extend([b"\x8c", &[key.len() as u8][..], key.as_bytes(), value].concat());
    }
    bytes.push(b'u');
    bytes
}

fn event(more: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let action = b"\x8c\x05alloc".to_vec();
    let fields = [
        ("action", action),
        ("addr", b"K\x01".to_vec()),
        ("size", b"K\x02".to_vec()),
        ("time_us", b"K\x03".to_vec()),
    ];
    dict(&[&fields[..], more].concat())
}

fn traces(lists: &[u8]) -> Vec<u8> {
    let traces = [b"](", lists, b"e"].concat();
    [dict(&[("device_traces", traces)]), b".".to_vec()].concat()
}

#[test]
fn shapes_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |bytes: Vec<u8>, words: &str| {
        let reason = import(&directory, &bytes).expect_err("it must be refused");
        assert!(reason.contains(words), "{reason}");
    };
    refused(b"].".to_vec(), "no snapshot of PyTorch");
    refused(b"}.".to_vec(), "neither `segments` nor `device_traces`");
    refused(traces(b"K\x01"), "a device's trace is an integer, not a list");
    refused(traces(b"](K\x01e"), "an event of a device's trace is an integer");
    refused(traces(b"]}a"), "has no `action`");
    let with = |more: &[(&str, Vec<u8>)]| traces(&[b"]".to_vec(), event(more), b"a".to_vec()].concat());
    assert_eq!(import(&directory, &with(&[])), Ok(()));
    assert_eq!(import(&directory, &with(&[("frames", b"]".to_vec())])), Ok(()));
    refused(with(&[("addr", b"J\xff\xff\xff\xff".to_vec())]), "`addr` of what begins here is -1, below zero");
    refused(with(&[("addr", b"N".to_vec())]), "`addr` of what begins here is None");
    refused(with(&[("size", b"\x8a\x09\0\0\0\0\0\0\0\xff\0".to_vec())]), "too large");
    refused(with(&[("time_us", b"\x8a\x08\0\0\0\0\0\0\0\x7f".to_vec())]), "`time_us`");
    refused(with(&[("frames", b"](K\x01e".to_vec())]), "not a list of frames");
    refused(with(&[("segment_pool_id", b"K\x01\x85".to_vec())]), "1 parts, not two");
    // This list of frames contains itself.
    refused(with(&[("frames", b"]\x94h\x00a".to_vec())]), "not a list of frames");
    // This list continues after it was read.
    let late = [b"]".to_vec(), event(&[("frames", b"]q\x07".to_vec())]), b"ah\x07Na".to_vec()].concat();
    refused(traces(&late), "has been read already");
    // Here two devices have one list, an event occurs twice, or a list is dropped again.
    let twice = [b"]q\x00".to_vec(), event(&[]), b"ah\x00".to_vec()].concat();
    refused(traces(&twice), "more than once");
    let again = [b"](".to_vec(), event(&[]), b"q\x012e".to_vec()].concat();
    refused(traces(&again), "something that was read before");
    let anew = [b"]".to_vec(), event(&[]), b"a0]".to_vec(), event(&[]), b"a".to_vec()].concat();
    refused(traces(&anew), "element 0 of a list is there more than once");
    refused(traces(&b"]".repeat(2000)), "2000 devices");
    let dropped = [b"]".to_vec(), event(&[]), b"a0".to_vec()].concat();
    refused(traces(&dropped), "not in its place");
}

/// References to shared parts must not become rows without end, so every part may occur only once.
#[test]
fn memo_bombs_do_not_go_off() {
    let directory = tempfile::tempdir().unwrap();
    let number = || b"K\x08".to_vec();
    let block = dict(&[("size", number()), ("state", b"\x8c\x08inactive".to_vec())]);
    let repeat =
        |part: &[u8], index: u8| [b"](", part, b"q", &[index], &[b'h', index].repeat(30_000), b"e"].concat();
    let segment = dict(&[
        ("device", b"K\x00".to_vec()),
        ("address", number()),
        ("total_size", number()),
        ("blocks", repeat(&block, 1)),
    ]);
    for segments in [repeat(&segment, 2), [b"](", &segment[..], b"e"].concat()] {
        let bytes = [dict(&[("segments", segments)]), b".".to_vec()].concat();
        let reason = import(&directory, &bytes).expect_err("it must be refused");
        assert!(reason.contains("read before"), "{reason}");
    }
    // These are long stacks of one frame with a long name: their text has a limit, and what is left out is
    // reported.
    let name = [&b"X\0\0\x01\0"[..], &[b'f'; 1 << 16]].concat();
    let frame = [dict(&[("name", name)]), b"q\x05".to_vec()].concat();
    let mut events = b"](".to_vec();
    for count in 1..600_usize {
        let first = if count == 1 { frame.clone() } else { b"h\x05".to_vec() };
        let frames = [b"](", &first[..], &b"h\x05".repeat(count - 1), b"e"].concat();
        events.extend(event(&[("frames", frames)]));
    }
    events.push(b'e');
    assert_eq!(import(&directory, &traces(&events)), Ok(()));
}
