//! `_slow_calls`: a table of the slow calls with their verdicts, and their excess latency by cause.

use analyze_engine::{derived_table::Writer, rows, rows::Rows};
use analyze_verdict::{
    causes::{self, Cause},
    classify::SlowCall,
    culprits::thread_name,
    derived::Derived,
    schedule::Task,
    walk::Walker,
};
use trace_schema::Kind;

use super::{def::TableDef, per_slow_call::fill};

pub(crate) const TABLE: TableDef = TableDef {
    name: "_slow_calls",
    needs: &[Kind::Call],
    schema: SlowCallRows::schema,
    make: |source, output| Box::pin(fill(source, output, push)),
};

/// Returns the name of the column of a cause.
fn cause_column(cause: Cause) -> String {
    format!("{}_ns", cause.name().replace([':', '-'], "_"))
}

rows! {
    /// A slow call; times are in nanoseconds.
    struct SlowCallRow<'a> => SlowCallRows {
        run: &'a str,
        op: &'a str,
        ts: i64,
        dur: i64,
        pid: u32,
        tid: u32,
        depth: i64,
        phase: Option<&'a str>,
        baseline_ns: f64,
        excess_ns: f64,
        verdict: &'a str,
        verdict_share_ratio: f64,
        root: &'a str,
        culprit_pid: Option<u32>,
        culprit_tid: Option<u32>,
        culprit_comm: Option<&'a str>,
        ..causes: [f64; causes::COUNT] = Cause::ALL.map(cause_column),
    }
}

/// Returns the name of a task, if it is known.
pub(super) fn named(derived: &Derived, run: u32, task: Task) -> Option<&str> {
    Some(thread_name(derived, run, task)).filter(|name| !name.is_empty())
}

fn push(writer: &mut Writer<SlowCallRows>, derived: &Derived, walker: &mut Walker<'_>, slow: &SlowCall) {
    let names = &derived.schedule.names;
    let (run, pid, tid) = slow.call.thread(&derived.schedule);
    let kind = derived.judgement.kind(slow);
    let division = derived.judgement.division(walker, slow);
    writer.push(SlowCallRow {
        run: names.name(run),
        op: names.name(kind.op),
        ts: slow.call.ts,
        dur: slow.call.dur,
        pid,
        tid,
        depth: slow.call.depth.into(),
        phase: kind.phase.map(|phase| names.name(phase)),
        baseline_ns: slow.baseline_ns,
        excess_ns: slow.excess_ns,
        verdict: slow.verdict.name(),
        verdict_share_ratio: division[slow.verdict.index()] / slow.excess_ns,
        root: slow.root.name(),
        culprit_pid: slow.culprit.map(|task| task.pid),
        culprit_tid: slow.culprit.map(|task| task.tid),
        culprit_comm: slow.culprit.and_then(|task| named(derived, run, task)),
        causes: Cause::ALL.map(|cause| division[cause.index()]),
    });
}
