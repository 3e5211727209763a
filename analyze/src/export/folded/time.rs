//! Time on and off CPU by stack of calls. A single pass in order of time tracks the calls that each thread is
//! in.

use std::collections::{HashMap, HashSet};

use futures::TryStreamExt;

use super::stacks::{Folded, Names};
use crate::{export::timeline::off_cpu_name, trace::Trace};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// Calls, and off-CPU intervals after the calls that begin at the same time.
const QUERY: &str = "
    SELECT * FROM (
        SELECT pid, tid, ts, dur, depth, CAST(op AS VARCHAR) AS op, on_cpu_ns, CAST(NULL AS BIGINT) AS syscall,
            true AS is_call, CAST(stack AS BIGINT) AS stack
        FROM _calls
        UNION ALL
        SELECT pid, tid, ts, dur, 9223372036854775807, CAST(op AS VARCHAR), NULL, CAST(syscall AS BIGINT), false, CAST(stack AS BIGINT)
        FROM events WHERE kind = 'off_cpu'
    ) ORDER BY ts, depth";

/// A call that a thread is in.
struct Call {
    op: String,
    end: i64,
    /// Time on CPU within the call; `None` if it did not end, or if the scheduler was not recorded.
    on_cpu_ns: Option<i64>,
    /// On-CPU time of the calls nested directly in it.
    inner_ns: i64,
    stack: Option<u32>,
}

/// Returns the frames of a thread and its enclosing calls.
fn frames<'a>(
    task: &'a [String; 2],
    calls: &'a [Call],
    stack: Option<u32>,
    pid: u32,
    names: &'a Names,
) -> impl Iterator<Item = &'a str> {
    let stack = calls.iter().find_map(|call| call.stack).or(stack);
    task.iter().chain(names.stack(pid, stack)).chain(calls.iter().map(|call| &call.op)).map(String::as_str)
}

/// State of one thread.
#[derive(Default)]
struct Thread {
    task: [String; 2],
    calls: Vec<Call>,
}

impl Thread {
    /// Ends the calls that are over at `ts`, and adds their on-CPU time.
    fn advance(&mut self, ts: i64, pid: u32, names: &Names, folded: &mut Folded) {
        while self.calls.last().is_some_and(|call| call.end <= ts) {
            let path = frames(&self.task, &self.calls, None, pid, names);
            let own_ns = self.calls.last().and_then(|call| Some(call.on_cpu_ns? - call.inner_ns));
            folded.add(path, u64::try_from(own_ns.unwrap_or_default()).unwrap_or_default());
            let ended = self.calls.pop();
            if let (Some(around), Some(ended)) = (self.calls.last_mut(), ended) {
                around.inner_ns += ended.on_cpu_ns.unwrap_or_default();
            }
        }
    }
}

/// Sums of a run's time, in ns.
#[derive(Default)]
pub(super) struct Times {
    /// Time on CPU by call.
    pub(super) on_cpu: Folded,
    /// Time off CPU by call, state and system call.
    pub(super) off_cpu: Folded,
}

/// Sums up the time of a run.
pub(super) async fn run(trace: &Trace, names: &Names) -> Result<Times, AnalyzeError> {
    let (mut on_cpu, mut off_cpu) = (Folded::default(), Folded::default());
    let (mut open_calls_count, mut unknown_count, mut open_off_cpu_count) = (0_u64, 0_u64, 0_u64);
    let mut watched = HashSet::new();
    for batch in trace.batches("SELECT DISTINCT pid FROM events WHERE kind = 'off_cpu'").await? {
        watched.extend(integers(&batch, "pid")?.values().iter().map(|pid| *pid as u32));
    }
    let mut threads: HashMap<(u32, u32), Thread> = HashMap::new();
    let mut batches = trace.sorted(QUERY);
    while let Some(batch) = batches.try_next().await? {
        let column = |name| integers(&batch, name);
        let (pids, tids, ts, dur) = (column("pid")?, column("tid")?, column("ts")?, column("dur")?);
        let (on_cpu_ns, syscall, stack) = (column("on_cpu_ns")?, column("syscall")?, column("stack")?);
        let is_call = column("is_call")?;
        let op = strings(&batch, "op")?;
        for row in 0..batch.num_rows() {
            let (pid, tid, ts) = (pids.value(row) as u32, tids.value(row) as u32, ts.value(row));
            let thread = threads.entry((pid, tid)).or_insert_with(|| Thread {
                task: [names.process(pid), names.thread(pid, tid)],
                calls: Vec::new(),
            });
            thread.advance(ts, pid, names, &mut on_cpu);
            let (dur, stack) = (dur.at(row), stack.at(row).map(|stack| stack as u32));
            if is_call.value(row) == 1 {
                open_calls_count += u64::from(dur.is_none());
                let on_cpu_ns = on_cpu_ns.at(row).filter(|_| dur.is_some() && watched.contains(&pid));
                unknown_count += u64::from(dur.is_some() && on_cpu_ns.is_none());
                thread.calls.push(Call {
                    op: op.value(row).to_owned(),
                    end: dur.map_or(i64::MAX, |dur| ts.saturating_add(dur)),
                    on_cpu_ns,
                    inner_ns: 0,
                    stack,
                });
            } else if let Some(dur) = dur {
                let state = off_cpu_name(op.value(row), syscall.at(row));
                let path = frames(&thread.task, &thread.calls, stack, pid, names);
                off_cpu.add(path.chain([state.as_str()]), u64::try_from(dur).unwrap_or_default());
            } else {
                open_off_cpu_count += 1;
            }
        }
    }
    for ((pid, _), thread) in &mut threads {
        thread.advance(i64::MAX - 1, *pid, names, &mut on_cpu);
        // A call that did not end may contain others that did.
        while let Some(open) = thread.calls.pop() {
            if open.end != i64::MAX {
                thread.calls.push(open);
                thread.advance(i64::MAX - 1, *pid, names, &mut on_cpu);
            }
        }
    }
    on_cpu
        .note(open_calls_count, "calls had not ended by the end of the run: how long they took is not known");
    on_cpu.note(
        unknown_count,
        "calls of processes without a record of the scheduler: not known how long they had a CPU",
    );
    off_cpu.note(
        open_off_cpu_count,
        "intervals off CPU had not ended by the end of the run: how long they are is not known",
    );
    Ok(Times { on_cpu, off_cpu })
}
