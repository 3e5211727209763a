//! `critical_path`: what the length of each marked range is made of, across threads.
//!
//! ```text
//! range      ├────────────────────────────────────────────────────────────┤
//! its thread ├─ cudaLaunchKernel ─┤─ on-CPU ─┤───── asleep for B ─────┤───┤
//! B                                          ├─ cudaMemcpy ─┤─ on-CPU ─┤ wakes
//! path       │ cudaLaunchKernel   │ on-CPU   │ cudaMemcpy   │ on-CPU   │   │
//! ```
//! The path follows the range's own thread (`walk`) from end to end. While that thread sleeps, the path
//! follows the thread that woke it, and so on. Each link is cut once more at the top-level calls of its
//! thread. The links of a range sum to its length: shortening one of them, and nothing else, would have
//! shortened the range.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer},
    rows,
    rows::Rows,
};
use analyze_run::{
    coverage::Coverage,
    error::AnalyzeError,
    reading::{Names, TASK_COLUMNS},
};
use analyze_verdict::{
    call::{Call, Marked, Sink},
    causes::Cause,
    derived::Source,
    root_cause::cause_of,
    schedule::Schedule,
    thread_state::State,
    time_split::Parts,
    walk::{Link, Walker},
};
use trace_schema::{Class, Kind};

use super::{chain_links::state_name, def::TableDef};

/// A link of a range's path, inside one top-level call or outside of all.
struct Step {
    link: Link,
    /// Function of the top-level call, if the link is inside one.
    op: Option<u32>,
}

/// A top-level call over `[ts, end)`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Outermost {
    ts: i64,
    end: i64,
    op: u32,
}

/// The sink that collects ranges and calls. It keeps every top-level call at 24 bytes each, because a path
/// can lead to any thread.
struct Paths {
    writer: Writer<StepRows>,
    ranges: Vec<Marked>,
    /// Top-level calls by the number of the thread; those of a thread are sorted and do not overlap.
    calls: Vec<Vec<Outermost>>,
    coverage: Coverage,
}

/// Returns the path of a range that has ended.
fn steps(range: &Marked, walker: &mut Walker<'_>, calls: &[Vec<Outermost>]) -> Vec<Step> {
    let (schedule, mut steps) = (walker.schedule(), Vec::new());
    let end = range.dur.map_or(range.ts, |dur| range.ts.saturating_add(dur));
    for link in walker.walk(range.slot, range.ts, end) {
        let slot = schedule.known_slot(link.thread);
        let of_thread = slot.and_then(|slot| calls.get(slot)).map_or(&[][..], Vec::as_slice);
        let first = of_thread.partition_point(|call| call.end <= link.ts);
        let mut at = link.ts;
        let mut step = |ts: i64, end: i64, op| {
            if ts < end {
                steps.push(Step { link: Link { ts, end, ..*link }, op });
            }
        };
        for call in of_thread[first..].iter().take_while(|call| call.ts < link.end) {
            step(at, call.ts, None);
            at = call.end.min(link.end);
            step(call.ts.max(link.ts), at, Some(call.op));
        }
        step(at, link.end, None);
    }
    steps
}

pub(crate) const TABLE: TableDef = TableDef {
    name: "_critical_path",
    needs: &[Kind::Mark],
    schema: StepRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

rows! {
    /// A link of a range's path; times are in nanoseconds.
    struct StepRow<'a> => StepRows {
        run: &'a str,
        phase: &'a str,
        range_ts: i64,
        ts: i64,
        dur: i64,
        depth: i64,
        pid: u32,
        tid: u32,
        op: Option<&'a str>,
        state: &'a str,
        cause: Option<&'a str>,
        task_pid: Option<u32>,
        task_comm: Option<&'a str>,
    }
}

fn push(
    writer: &mut Writer<StepRows>,
    names: &Names,
    range: &Marked,
    Step { link, op }: &Step,
    is_covered: bool,
) {
    // Where the scheduler is not on record, a thread of which nothing is known need not have been running.
    let state = if link.state == State::OnCpu && !is_covered { State::Unknown } else { link.state };
    // Outside of calls, a thread may have any reason to sleep.
    let may_sleep = op.is_none_or(|op| names.class(op) == Some(Class::Sync));
    let cause = if state == link.state { cause_of(link, may_sleep) } else { Some(Cause::Inconclusive) };
    let (run, pid, tid) = link.thread;
    writer.push(StepRow {
        run: names.name(run),
        phase: names.name(range.name),
        range_ts: range.ts,
        ts: link.ts,
        dur: link.end - link.ts,
        depth: link.depth as i64,
        pid,
        tid,
        op: op.map(|op| names.name(op)),
        state: state_name(state),
        cause: cause.map(Cause::name),
        task_pid: link.task.map(|task| task.pid),
        task_comm: link.task.map(|task| names.name(task.comm)).filter(|comm| !comm.is_empty()),
    });
}

impl Sink for Paths {
    fn entered(&mut self, call: &Call, _: &Schedule) -> Result<(), AnalyzeError> {
        if call.depth > 0 {
            return Ok(());
        }
        if self.calls.len() <= call.slot {
            self.calls.resize_with(call.slot + 1, Vec::new);
        }
        let of_thread = &mut self.calls[call.slot];
        if let Some(last) = of_thread.last_mut() {
            last.end = last.end.min(call.ts);
        }
        of_thread.push(Outermost { ts: call.ts, end: call.end(), op: call.op });
        Ok(())
    }

    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn marked(&mut self, range: &Marked) {
        if range.dur.is_some_and(|dur| dur > 0) {
            self.ranges.push(*range);
        }
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let mut walker = Walker::new(schedule);
        for range in &self.ranges {
            for step in steps(range, &mut walker, &self.calls) {
                let link = &step.link;
                let is_covered = self.coverage.has_switches(link.thread, link.ts, link.end);
                push(&mut self.writer, &schedule.names, range, &step, is_covered);
            }
            self.writer.send(false)?;
        }
        self.writer.send(true)
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let paths = |_: &mut Names, coverage| Paths {
        writer: output.writer(),
        ranges: Vec::new(),
        calls: Vec::new(),
        coverage,
    };
    source.sweep(TASK_COLUMNS, false, paths).await
}
