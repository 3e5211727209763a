//! `_calls`: a table of every call with its place on its thread, its phase, and the exact split of its time.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer},
    rows,
    rows::{Rows, Word},
};
use analyze_run::{error::AnalyzeError, reading::Names};
use analyze_verdict::{
    blocker::{self, Blocker},
    call::{Call, Sink},
    derived::Source,
    schedule::Schedule,
    time_split::Parts,
};
use trace_schema::Kind;

use super::def::TableDef;

/// The table.
pub(crate) const TABLE: TableDef = TableDef {
    name: "_calls",
    needs: &[Kind::Call],
    schema: CallRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

/// Columns that are passed through and that no analysis uses.
const EXTRA: [&str; 5] = ["ret", "addr", "src_addr", "stream", "caller"];

/// Returns the name of the column of a class of blocking.
fn blocked_column(blocker: Blocker) -> String {
    format!("blocked_{}_ns", blocker.name().replace('-', "_"))
}

rows! {
    /// A call; times are in nanoseconds.
    struct CallRow<'a> => CallRows {
        run: &'a str,
        pid: u32,
        tid: u32,
        ts: i64,
        dur: Option<i64>,
        op: Word<'a>,
        layer: Option<Word<'a>>,
        class: Option<Word<'a>>,
        ret: Option<i32>,
        addr: Option<u64>,
        src_addr: Option<u64>,
        size_bytes: Option<i64>,
        direction: Option<Word<'a>>,
        stream: Option<u64>,
        func: Option<u64>,
        caller: Option<Word<'a>>,
        nested_in: Option<Word<'a>>,
        child_op: Option<Word<'a>>,
        phase: Option<Word<'a>>,
        first_call: bool,
        depth: i64,
        child_ns: i64,
        on_cpu_ns: Option<i64>,
        preempted_ns: Option<i64>,
        runnable_ns: Option<i64>,
        throttled_ns: Option<i64>,
        blocked_ns: Option<i64>,
        stopped_ns: Option<i64>,
        unknown_ns: Option<i64>,
        blocked_syscall: Option<i64>,
        ..blocked: [Option<i64>; blocker::COUNT] = Blocker::ALL.map(blocked_column),
    }
}

/// The sink that makes a row of each call.
struct Calls(Writer<CallRows>);

impl Sink for Calls {
    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let names = &schedule.names;
        let (run, pid, tid) = schedule.key(call.slot);
        let word = |number: u32| Word(names.name(number));
        let on_cpu = || call.dur.map(|on_cpu| Parts { on_cpu, ..Parts::default() });
        let parts = parts.copied().or_else(on_cpu);
        let part = |get: fn(&Parts) -> i64| parts.as_ref().map(get);
        let extra = call.extra.as_deref().copied().unwrap_or_default();
        self.0.push(CallRow {
            run: names.name(run),
            pid,
            tid,
            ts: call.ts,
            dur: call.dur,
            op: word(call.op),
            layer: names.op(call.op).map(|op| Word(op.layer().name())),
            class: names.class(call.op).map(|class| Word(class.name())),
            ret: extra.ret,
            addr: extra.addr,
            src_addr: extra.src_addr,
            size_bytes: call.size,
            direction: call.direction.map(word),
            stream: extra.stream,
            func: extra.func,
            caller: extra.caller.map(word),
            nested_in: call.parent.map(word),
            child_op: call.child.map(|(op, _)| word(op)),
            phase: call.phase.map(word),
            first_call: call.is_first,
            depth: call.depth.into(),
            child_ns: call.child_ns,
            on_cpu_ns: part(|parts| parts.on_cpu),
            preempted_ns: part(|parts| parts.preempted),
            runnable_ns: part(|parts| parts.runnable),
            throttled_ns: part(|parts| parts.throttled),
            blocked_ns: part(Parts::blocked_ns),
            stopped_ns: part(|parts| parts.stopped),
            unknown_ns: part(|parts| parts.unknown),
            blocked_syscall: parts.and_then(|parts| parts.blocked_syscall),
            blocked: parts.map_or([None; blocker::COUNT], |parts| parts.blocked.map(Some)),
        });
        self.0.send(false)
    }

    fn finished(&mut self, _: &Schedule) -> Result<(), AnalyzeError> {
        self.0.send(true)
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let wanted: Vec<&'static str> = EXTRA.into_iter().filter(|name| output.wants(name)).collect();
    // Every reading has the column `func`, but only this one passes it through.
    let hands_extra = !wanted.is_empty() || output.wants("func");
    source.sweep(&wanted, hands_extra, |_: &mut Names| Calls(output.writer())).await?;
    Ok(())
}
