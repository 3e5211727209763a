//! `_chain_links`: a table of the links of every slow call's chain: what its thread did from end to end, and while it slept,
//! what the thread did that woke it.

use analyze_engine::{derived_table::Writer, rows, rows::Rows};
use analyze_verdict::{
    causes::Cause,
    classify::SlowCall,
    derived::Derived,
    root_cause::{blamed, cause_of},
    thread_state::State,
    walk::Walker,
};
use trace_schema::{Class, Kind};

use super::{def::TableDef, per_slow_call::fill, slow_calls::named};

pub(crate) const TABLE: TableDef = TableDef {
    name: "_chain_links",
    needs: &[Kind::Call, Kind::OffCpu],
    schema: LinkRows::schema,
    make: |source, output| Box::pin(fill(source, output, push)),
};

rows! {
    /// A link of the chain of a slow call; times are in nanoseconds.
    struct LinkRow<'a> => LinkRows {
        run: &'a str,
        op: &'a str,
        call_ts: i64,
        call_tid: u32,
        ts: i64,
        dur: i64,
        depth: i64,
        pid: u32,
        tid: u32,
        state: &'a str,
        cause: Option<&'a str>,
        cpu: Option<u32>,
        syscall: Option<i64>,
        task_pid: Option<u32>,
        task_tid: Option<u32>,
        task_comm: Option<&'a str>,
        call_pid: u32,
        call_depth: i64,
    }
}

/// Returns the name of a thread state; it is the one in the view `off_cpu`, where that view has the state.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::OnCpu => "on-cpu",
        State::Preempted => "preempted",
        State::Runnable => "runnable",
        State::Throttled => "throttled",
        State::Blocked(_) => "blocked",
        State::Stopped => "stopped",
        State::Unknown => "unknown",
    }
}

fn push(writer: &mut Writer<LinkRows>, derived: &Derived, walker: &mut Walker<'_>, slow: &SlowCall) {
    let names = &derived.schedule.names;
    let (run, call_pid, call_tid) = slow.call.thread(&derived.schedule);
    let op = derived.judgement.kind(slow).op;
    let is_sync = names.class(op) == Some(Class::Sync);
    for link in slow.chain(walker) {
        let task = blamed(link).filter(|_| link.depth > 0 || link.task.is_some());
        let (link_run, pid, tid) = link.thread;
        writer.push(LinkRow {
            run: names.name(run),
            op: names.name(op),
            call_ts: slow.call.ts,
            call_tid,
            ts: link.ts,
            dur: link.end - link.ts,
            depth: link.depth as i64,
            pid,
            tid,
            state: state_name(link.state),
            cause: cause_of(link, is_sync).map(Cause::name),
            cpu: link.cpu,
            syscall: link.syscall,
            task_pid: task.map(|task| task.pid),
            task_tid: task.map(|task| task.tid),
            task_comm: task.and_then(|task| named(derived, link_run, task)),
            call_pid,
            call_depth: slow.call.depth.into(),
        });
    }
}
