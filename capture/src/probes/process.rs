//! Turns events in the life of traced processes into rows. The kernel side is `capture/ebpf/src/process.rs`.

use capture_wire::{Fault, Process, process};
use trace_schema::{Kind, Row, Text};

use crate::decode::comm;

/// The tracepoints, by the names of their programs.
pub(crate) const TRACEPOINTS: &[&str] = &["sched_process_fork", "sched_process_exec", "sched_process_exit"];

/// The tracepoint of out-of-memory kills, attached if the kernel names the victim in it.
pub(crate) const OOM_TRACEPOINT: &str = "mark_victim";
/// Linux version since which that tracepoint names the task; before, it has a number only.
pub(crate) const OOM_SINCE: (u8, u8) = (6, 9);
/// The program on the counter of major page faults.
pub(crate) const FAULT_PROGRAM: &str = "major_fault";

/// The row of a major page fault or an out-of-memory kill.
pub(crate) fn fault_row(event: &Fault) -> Row {
    let kill = event.oom_kill != 0;
    let op = if kill { "oom_kill" } else { "major_fault" };
    Row {
        addr: (!kill).then_some(event.addr),
        ..Row::new(event.ts as i64, Kind::Process, op.into(), event.pid, event.tid)
    }
}

/// The row of a notice, with the command line of an exec as `detail`. `None` for a library notice, whose
/// rows come from the mapped files.
pub(crate) fn row(event: &Process, detail: Option<String>) -> Option<Row> {
    let op = match event.what {
        process::FORK => "fork",
        process::EXEC => "exec",
        process::EXIT => "exit",
        _ => return None,
    };
    Some(Row {
        comm: Some(comm(&event.comm).into()),
        ret: (event.what == process::EXIT).then(|| exit_status(event.other)),
        detail: detail.map(Into::into),
        ..Row::new(event.ts as i64, Kind::Process, op.into(), event.pid, event.tid)
    })
}

/// The exit status in a code of the kernel, or the negated number of the signal that killed the thread.
fn exit_status(code: u32) -> i32 {
    match (code & 0x7f) as i32 {
        0 => ((code >> 8) & 0xff) as i32,
        signal => -signal,
    }
}

/// The row of a library in which probes were placed.
pub(crate) fn library_row(ts_ns: i64, pid: u32, path: &str) -> Row {
    Row { detail: Some(Text::new(path)), ..Row::new(ts_ns, Kind::Process, "library".into(), pid, pid) }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;

    use super::*;

    #[test]
    fn the_exit_status_is_a_number_and_a_signal_a_negative_one() {
        // Codes of wait(2): exit(3), SIGSEGV with a core dump, SIGKILL, exit(255), exit(0).
        for (code, ret) in [(3 << 8, 3), (11 | 0x80, -11), (9, -9), (0xff00, 255), (0, 0)] {
            let event = Process { what: process::EXIT, other: code, ..Process::zeroed() };
            assert_eq!(row(&event, None).and_then(|row| row.ret), Some(ret));
        }
        let fork = Process { what: process::FORK, other: 3 << 8, ..Process::zeroed() };
        assert_eq!(row(&fork, None).map(|row| row.ret), Some(None));
    }
}
