//! The readers of what traced processes and their neighbours choose, as functions of bytes.
//!
//! A recorder with privileges reads all of this, so a panic or a hang in it is a vulnerability (SECURITY.md). The fuzz targets
//! call these functions; the recorder itself does not. None of them looks at a process.

use std::path::Path;

use capture_wire::{Call, Name, tag};
use trace_schema::{Kind, Row};
use trace_writer::Rows;

use crate::{
    caller::Callers,
    cgroup,
    decode::{self, Event},
    elf::{self, Scope, Symbols},
    environment,
    perf_map::PerfMap,
    probes::{self, calls, marks, process, sched},
    torch_version,
};

/// The bit that no process ID has: the kernel's largest is 2^22. With it, an ID names nobody.
const NOBODY: u32 = 1 << 31;

/// Reads a file as the libraries of a process are read: for probes, for a runtime that is linked in, and for the names of
/// frames. Returns whether it is an ELF file.
pub fn elf(path: &Path) -> bool {
    let all = elf::read(path, Scope::All, |_| true);
    let exported = elf::read(path, Scope::Exported, |name| name.starts_with("cu"));
    elf::has_static_functions(path, &["cudaMalloc", "cudaLaunchKernel"]);
    let symbols = Symbols::read(path);
    for function in all.iter().chain(&exported).flat_map(|elf| &elf.functions) {
        symbols.name(function.offset);
        symbols.name(function.offset.wrapping_add(function.address));
    }
    all.is_ok()
}

/// Reads the map of a runtime's generated code, and looks up these addresses. Returns whether any of them has a name.
pub fn perf_map(text: &str, addresses: &[u64]) -> bool {
    let map = PerfMap::parse(text);
    addresses.iter().filter(|address| map.name(**address).is_some()).count() > 0
}

/// Handles the datagrams of some processes, as (time in nanoseconds, process ID, text), and the end of the processes.
/// Returns the rows that they become.
pub fn marks<'a>(datagrams: impl Iterator<Item = (i64, u32, &'a str)>) -> Vec<Row> {
    let mut marks = marks::Marks::default();
    let mut rows = Vec::new();
    for (ts_ns, pid, text) in datagrams {
        rows.extend(text.lines().filter_map(|line| marks.line(ts_ns, pid, line)));
    }
    let pids: Vec<u32> = marks.pids().collect();
    rows.extend(pids.into_iter().flat_map(|pid| marks.end(pid)));
    assert!(marks.open().is_empty(), "a process that has ended has no open range");
    rows
}

/// Decodes what the eBPF programs put into the ring buffer, and makes rows of it. Returns the number of events.
pub fn events<'a>(events: impl Iterator<Item = &'a [u8]>) -> usize {
    let (mut callers, mut rows, mut marks) = (Callers::default(), Rows::default(), marks::Marks::default());
    let mut count = 0;
    for bytes in events {
        let Ok(event) = decode::decode(bytes) else { continue };
        count += 1;
        match event {
            Event::Call(call) => {
                // A probe that records calls sends whole ones.
                let call = Call { tag: tag::CALL, pid: call.pid | NOBODY, ..call };
                let _ = calls::launched(&call);
                for censored in [false, true] {
                    calls::write(&call, censored, Some(call.stack_id as u32), &mut callers, &mut rows);
                }
            }
            Event::OffCpu(off) => [false, true].iter().for_each(|c| rows.push(&sched::off_cpu_row(&off, *c))),
            Event::Run(run) => rows.push(&sched::run_row(&run)),
            Event::Process(event) => process::row(&event, None).iter().for_each(|row| rows.push(row)),
            Event::Name(name) => named(&name, &mut marks).iter().for_each(|row| rows.push(row)),
            Event::Fault(fault) => rows.push(&process::fault_row(&fault)),
        }
    }
    marks.open().iter().for_each(|row| rows.push(row));
    assert!(rows.is_empty() || rows.take().is_ok(), "rows of events make a batch");
    count
}

fn named(name: &Name, marks: &mut marks::Marks) -> Option<Row> {
    match probes::by_number(u32::from(name.probe))?.event {
        probes::Event::Mark(kind) => marks.nvtx(kind, name),
        _ => {
            let row = Row::new(name.ts as i64, Kind::Name, "kernel".into(), name.pid, name.tid);
            Some(Row { detail: Some(marks::text(name)), ..row })
        }
    }
}

/// Reads texts that describe a process: PyTorch's `version.py`, the path and the counters of its control group, and its
/// environment. Returns whether any of them says something.
pub fn process_texts(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (container_id, pod_uid) = cgroup::identify(&text);
    let settings = environment::kept(bytes);
    torch_version::version(&text).is_some()
        || cgroup::counters(&text).is_some()
        || !container_id.is_empty()
        || !pod_uid.is_empty()
        || !settings.is_empty()
}
