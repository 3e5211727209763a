//! `launch_gaps`: the time of a thread between one launch and the next, during which it gave the GPU no new
//! work.
//!
//! ```text
//! thread  ┤ launch ├──on-CPU──┤─ sync ─├─ preempted ─├──on-CPU──┤ cudaMalloc ├──┤ launch ├
//! gap              ├──────────────────────────────────────────────────────────┤
//! ```
//! A gap is cut from end to end: time in another top-level call belongs to the class of that call, and the
//! rest to what the thread did, so the parts of a gap sum to its length. A trace without device rows does not
//! tell whether the GPU was idle meanwhile, because work may have been queued.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer},
    rows,
    rows::Rows,
};
use analyze_run::{coverage::Coverage, error::AnalyzeError, reading::Names};
use analyze_verdict::{
    blocker::Blocker,
    call::{Call, Sink},
    derived::Source,
    schedule::{Schedule, ThreadKey},
    thread_state::{LATEST, ThreadState},
    time_split::{Parts, parts},
};
use trace_schema::{Class, Kind, Layer};

use super::def::TableDef;

/// Names of the parts, in the order of columns.
const PARTS: [&str; 12] = [
    "host_ns",
    "sync_ns",
    "alloc_ns",
    "copy_ns",
    "nccl_ns",
    "other_call_ns",
    "waiting_ns",
    "throttled_ns",
    "page_fault_ns",
    "blocked_ns",
    "stopped_ns",
    "unknown_ns",
];

rows! {
    /// A gap, in nanoseconds, with the function of the launch that ends it and the phase that this launch began in.
    struct GapRow<'a> => GapRows {
        run: &'a str,
        pid: u32,
        tid: u32,
        ts: i64,
        dur: i64,
        next_op: &'a str,
        phase: Option<&'a str>,
        ..parts: [Option<i64>; PARTS.len()] = PARTS,
    }
}

/// A gap that no launch has ended so far, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Gap {
    thread: ThreadKey,
    ts: i64,
    parts: [i64; PARTS.len()],
    /// Whether the error of the scheduler's clock leaves open what is inside of a call in the gap, and what between calls.
    is_blurred: bool,
}

/// Index of the part of which the record does not tell what the thread did.
const UNKNOWN: usize = PARTS.len() - 1;

/// Returns the index of the part that a call of this class belongs to.
fn part_of(class: Option<Class>) -> usize {
    match class {
        Some(Class::Sync) => 1,
        Some(Class::Alloc | Class::Free | Class::Map) => 2,
        Some(Class::Copy | Class::Set) => 3,
        Some(Class::Collective | Class::PointToPoint | Class::Communicator) => 4,
        _ => 5,
    }
}

impl Gap {
    /// Adds the time from `from` to `to`, in which the thread was in no call.
    fn outside(&mut self, pieces: &[ThreadState], from: i64, to: i64) {
        if from >= to {
            return;
        }
        let parts = parts(pieces, LATEST, from, to);
        let page_fault = parts.blocked[Blocker::PageFault as usize];
        let own = [
            parts.preempted + parts.runnable,
            parts.throttled,
            page_fault,
            parts.blocked_ns() - page_fault,
            parts.stopped,
            parts.unknown,
        ];
        self.parts[0] += parts.on_cpu;
        for (part, ns) in self.parts[6..].iter_mut().zip(own) {
            *part += ns;
        }
    }
}

impl Gap {
    /// Returns the parts that are on record of the gap, which ends at `end`. Where the scheduler is not, nothing is known of
    /// the time outside of calls; where some calls are not, nothing is known of any time.
    fn known(&self, end: i64, coverage: &Coverage) -> [Option<i64>; PARTS.len()] {
        let (run, pid, _) = self.thread;
        let has_calls = coverage.has_calls((run, pid), self.ts, end, |_| true);
        if has_calls && !self.is_blurred && coverage.has_schedule(self.thread, self.ts, end) {
            return self.parts.map(Some);
        }
        let is_known = |part: &usize| has_calls && (1..6).contains(part);
        let unknown: i64 = (0..PARTS.len()).filter(|part| !is_known(part)).map(|part| self.parts[part]).sum();
        std::array::from_fn(|part| match part {
            UNKNOWN => Some(unknown),
            _ => is_known(&part).then_some(self.parts[part]),
        })
    }
}

pub(crate) const TABLE: TableDef = TableDef {
    name: "_launch_gaps",
    needs: &[Kind::Call],
    schema: GapRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

/// The state of one thread during the reading.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The gap since the last launch, if there was one.
    open: Option<Gap>,
    /// The latest end of the thread's calls so far.
    at: i64,
}

/// The sink that makes a row of each gap.
struct Gaps {
    writer: Writer<GapRows>,
    /// State by the number of the thread.
    places: Vec<Place>,
    coverage: Coverage,
}

impl Gaps {
    /// Processes a top-level call.
    fn outermost(&mut self, call: &Call, schedule: &Schedule) {
        if self.places.len() <= call.slot {
            self.places.resize(call.slot + 1, Place { open: None, at: i64::MIN });
        }
        let Place { open, at } = &mut self.places[call.slot];
        let class = schedule.names.class(call.op);
        let is_launch = class == Some(Class::Launch);
        if let Some(gap) = open {
            gap.outside(schedule.pieces_of(call.slot), *at, call.ts);
            let names = &schedule.names;
            let (run, pid, tid) = gap.thread;
            // Between two launches on record there may be others that are not, or a call of NCCL that makes them.
            let is_launch_op = |op| {
                let makes_launches = names.op(op).is_some_and(|op| op.layer() == Layer::Nccl);
                makes_launches || names.class(op) == Some(Class::Launch)
            };
            let is_gap = is_launch && self.coverage.has_calls((run, pid), gap.ts, call.ts, is_launch_op);
            if is_gap && self.coverage.has_kernel_launches(run) {
                self.writer.push(GapRow {
                    run: names.name(run),
                    pid,
                    tid,
                    ts: gap.ts,
                    dur: call.ts.max(*at) - gap.ts,
                    next_op: names.name(call.op),
                    phase: call.phase.map(|phase| names.name(phase)),
                    parts: gap.known(call.ts.max(*at), &self.coverage),
                });
            }
        }
        // What follows a call that never returned is not a gap.
        if call.dur.is_none() {
            *open = None;
            return;
        }
        let end = call.end();
        if is_launch {
            // A launch may overlap a longer call; the gap then begins at that call's end.
            let (thread, ts) = (schedule.key(call.slot), end.max(*at));
            *open = Some(Gap { thread, ts, parts: [0; PARTS.len()], is_blurred: false });
        } else if let Some(gap) = open {
            gap.is_blurred |= self.coverage.blur().touches(gap.thread, call.ts, end);
            // Time in which calls overlap counts once.
            gap.parts[part_of(class)] += (end - call.ts.max(*at)).max(0);
        }
        *at = end.max(*at);
    }
}

impl Sink for Gaps {
    fn entered(&mut self, call: &Call, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if call.depth == 0 {
            self.outermost(call, schedule);
        }
        self.writer.send(false)
    }

    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn finished(&mut self, _: &Schedule) -> Result<(), AnalyzeError> {
        self.writer.send(true)
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let gaps = |_: &mut Names, coverage| Gaps { writer: output.writer(), places: Vec::new(), coverage };
    source.sweep(&[], false, gaps).await
}
