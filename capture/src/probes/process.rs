//! Life of the traced processes, as rows. The kernel side is `capture/ebpf/src/process.rs`.

use capture_wire::{Process, process};
use trace_schema::{Kind, Row};

use crate::decode::comm;

/// The tracepoints, by the names of their programs.
pub(crate) const TRACEPOINTS: &[&str] = &["sched_process_fork", "sched_process_exec", "sched_process_exit"];

/// The row of a notice. `detail`: the command line of an exec. `None` for a library notice, whose
/// rows come from what was found mapped.
pub(crate) fn row(event: &Process, detail: Option<String>) -> Option<Row> {
    let op = match event.what {
        process::FORK => "fork",
        process::EXEC => "exec",
        process::EXIT => "exit",
        _ => return None,
    };
    Some(Row {
        comm: Some(comm(&event.comm).into()),
        detail: detail.map(Into::into),
        ..Row::new(event.ts as i64, Kind::Process, op.into(), event.pid, event.tid)
    })
}

/// The row of a library in which probes were placed.
pub(crate) fn library_row(ts_ns: i64, pid: u32, path: &str) -> Row {
    Row { detail: Some(path.into()), ..Row::new(ts_ns, Kind::Process, "library".into(), pid, pid) }
}
