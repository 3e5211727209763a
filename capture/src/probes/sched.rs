//! Turns scheduler events into rows. The kernel side is `capture/ebpf/src/sched.rs`.

use capture_wire::{NO_CPU, OffCpu, Run};
use trace_schema::{Kind, Row, Text};

use crate::decode::comm;

/// The tracepoints, by the names of their programs.
pub(crate) const TRACEPOINTS: &[&str] =
    &["sched_switch", "sched_waking", "sched_wakeup", "sched_migrate_task"];

/// `include/linux/sched.h`, the bits that a sleeping task can show.
const INTERRUPTIBLE: u32 = 0x1;
const UNINTERRUPTIBLE: u32 = 0x2;
const STOPPED_OR_TRACED: u32 = 0x4 | 0x8;
const NO_LOAD: u32 = 0x400;

fn state(off: &OffCpu) -> &'static str {
    match off.prev_state {
        0 if off.throttled != 0 => "throttled",
        0 => "preempted",
        state if state & STOPPED_OR_TRACED != 0 => "stopped",
        state if state & UNINTERRUPTIBLE != 0 && state & NO_LOAD != 0 => "idle",
        state if state & UNINTERRUPTIBLE != 0 => "uninterruptible",
        state if state & INTERRUPTIBLE != 0 => "sleeping",
        _ => "unknown",
    }
}

fn name(bytes: &[u8]) -> Option<Text> {
    let name = comm(bytes);
    (!name.is_empty()).then(|| name.into())
}

/// The row of an off-CPU interval. `censored`: the thread was still off CPU when recording ended.
pub(crate) fn off_cpu_row(off: &OffCpu, censored: bool) -> Row {
    let runnable_from = if off.prev_state == 0 { off.out_ts } else { off.wake_ts };
    let woken = off.wake_ts != 0;
    Row {
        dur: (!censored).then(|| off.in_ts.saturating_sub(off.out_ts) as i64),
        comm: name(&off.comm),
        cpu: Some(if off.wait_cpu == NO_CPU { off.out_cpu } else { off.wait_cpu }),
        runnable_ns: (!censored)
            // A thread that came back without a wake-up on record waited for an unknown part.
            .then_some(runnable_from)
            .filter(|from| *from != 0)
            .map(|from| off.in_ts.saturating_sub(from) as i64),
        syscall: (off.syscall >= 0).then_some(off.syscall),
        waker_pid: woken.then_some(off.waker_pid),
        waker_tid: woken.then_some(off.waker_tid),
        waker_comm: woken.then(|| name(&off.waker_comm)).flatten(),
        next_pid: Some(off.next_pid),
        next_tid: Some(off.next_tid),
        next_comm: name(&off.next_comm),
        in_cpu: (!censored).then_some(off.in_cpu),
        ..Row::new(off.out_ts as i64, Kind::OffCpu, state(off).into(), off.pid, off.tid)
    }
}

/// The row of a scheduling slice of some task on a CPU that a traced thread waited for.
pub(crate) fn run_row(run: &Run) -> Row {
    Row {
        dur: Some(run.end_ts.saturating_sub(run.start_ts) as i64),
        comm: name(&run.comm),
        cpu: Some(run.cpu),
        ..Row::new(run.start_ts as i64, Kind::Run, "run".into(), run.pid, run.tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(prev_state: u32, wake_ts: u64) -> OffCpu {
        OffCpu { prev_state, wake_ts, out_ts: 100, in_ts: 180, ..bytemuck::Zeroable::zeroed() }
    }

    #[test]
    fn parts_of_an_interval() {
        let preempted = off_cpu_row(&off(0, 0), false);
        assert_eq!((&*preempted.op, preempted.dur, preempted.runnable_ns), ("preempted", Some(80), Some(80)));
        let throttled = off_cpu_row(&OffCpu { throttled: 1, ..off(0, 0) }, false);
        assert_eq!((&*throttled.op, throttled.dur, throttled.runnable_ns), ("throttled", Some(80), Some(80)));
        let slept = off_cpu_row(&off(1, 150), false);
        assert_eq!((&*slept.op, slept.dur, slept.runnable_ns), ("sleeping", Some(80), Some(30)));
        let unknown = off_cpu_row(&off(2, 0), false);
        assert_eq!((&*unknown.op, unknown.runnable_ns), ("uninterruptible", None));
        let open = off_cpu_row(&off(1, 150), true);
        assert_eq!((open.dur, open.runnable_ns), (None, None));
    }
}
