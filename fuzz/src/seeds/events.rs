//! Events as the eBPF programs put them into the ring buffer.

use bytemuck::{Zeroable, bytes_of};
use capture_wire::{
    Call, Fault, NO_CPU, NO_STACK, Name, OffCpu, Process, Run, ShortCall, probe, process, tag,
};

use crate::mutate::frames;

/// Number of function probes that have an event in the seeds; there are fewer.
const PROBES_COUNT: u32 = 220;
/// Number of events in a seed.
const CHUNK_COUNT: usize = 44;

fn comm(name: &str) -> [u8; capture_wire::COMM_BYTES] {
    let mut comm = [0; capture_wire::COMM_BYTES];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    comm
}

fn call(number: u32) -> Call {
    Call {
        tag: tag::CALL,
        probe: number as u16,
        pid: 4242,
        tid: 4243,
        ts: 1_000_000 + 100 * u64::from(number),
        dur_ns: 50,
        out: 0x7f00_0000,
        caller: 0x5555_0000,
        args: [0x7f00_0000, 4096, 1, 2, 3, 4],
        stack_id: if number.is_multiple_of(3) { NO_STACK } else { 7 },
        more: [1, 2, 3, 4, 5, 6, 7],
        ..Zeroable::zeroed()
    }
}

/// Returns sequences of events: a call and a name of every probe, and one event of every other kind.
pub fn events() -> Vec<Vec<u8>> {
    let calls: Vec<Vec<u8>> = (probe::FIRST_CALL..probe::FIRST_CALL + PROBES_COUNT)
        .map(|number| {
            let call = call(number);
            let bytes = bytes_of(&call);
            // Most functions have no more than the words on the stack.
            let length = if number.is_multiple_of(2) { bytes.len() } else { size_of::<ShortCall>() };
            bytes[..length].to_vec()
        })
        .collect();
    let off = OffCpu {
        tag: tag::OFF_CPU,
        pid: 4242,
        tid: 4243,
        prev_state: 1,
        out_ts: 100,
        in_ts: 400,
        wake_ts: 300,
        syscall: 202,
        wait_cpu: NO_CPU,
        comm: comm("python3"),
        waker_comm: comm("cuda-EvtHandlr"),
        ..Zeroable::zeroed()
    };
    let run = Run {
        tag: tag::RUN,
        pid: 9,
        tid: 9,
        start_ts: 100,
        end_ts: 200,
        comm: comm("hog"),
        ..Zeroable::zeroed()
    };
    let notice =
        Process { tag: tag::PROCESS, what: process::EXEC, pid: 4242, tid: 4242, ts: 5, ..Zeroable::zeroed() };
    let fault = Fault { tag: tag::FAULT, pid: 4242, tid: 4243, ts: 7, addr: 0x1000, ..Zeroable::zeroed() };
    let mut name = Name { tag: tag::NAME, pid: 4242, tid: 4243, length: 5, ts: 9, ..Zeroable::zeroed() };
    name.text[..4].copy_from_slice(b"step");
    let mut others: Vec<Vec<u8>> = vec![
        bytes_of(&off).to_vec(),
        bytes_of(&run).to_vec(),
        bytes_of(&notice).to_vec(),
        bytes_of(&fault).to_vec(),
    ];
    for number in probe::FIRST_CALL..probe::FIRST_CALL + PROBES_COUNT {
        let name = Name { probe: number as u16, ..name };
        others.push(bytes_of(&name).to_vec());
    }
    let (rest, names) = others.split_at(4);
    calls.chunks(CHUNK_COUNT).chain([rest]).chain(names.chunks(CHUNK_COUNT)).map(frames::join).collect()
}
