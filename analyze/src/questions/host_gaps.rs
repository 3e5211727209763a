//! What the host did between launches: totals of the view `launch_gaps`, and its longest rows. Gaps of different threads
//! overlap, so that their total may be longer than the run.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use serde::Serialize;
use trace_schema::{Class, Kind, Layer, Op};

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// Number of longest gaps that are kept.
const LONGEST: usize = 12;

/// The parts that a gap is divided into. Each is the view's column, its name, and its meaning.
pub const PARTS: [(&str, &str, &str); 12] = [
    ("host_ns", "host", "outside of CUDA calls, on CPU: Python, or other code"),
    ("sync_ns", "gpu-wait", "waited for the GPU, which had work"),
    ("alloc_ns", "allocation", "allocated, freed or mapped memory"),
    ("copy_ns", "size", "in copies and sets"),
    ("nccl_ns", "nccl", "in NCCL calls"),
    ("other_call_ns", "nested", "in other CUDA calls"),
    ("waiting_ns", "scheduler", "outside of calls, runnable while another task had the CPU"),
    ("throttled_ns", "throttled", "outside of calls, runnable while its control group had used up its time"),
    ("page_fault_ns", "page-fault", "outside of calls, while a page was brought in"),
    ("blocked_ns", "blocked", "outside of calls, asleep"),
    ("stopped_ns", "stopped", "outside of calls, stopped by a signal"),
    ("unknown_ns", "inconclusive", "outside of calls; the record does not say what the thread did"),
];

/// One gap: the time of a thread between the return of one launch and the start of the next.
#[derive(Clone, Debug, Serialize)]
pub struct Gap {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// Return of the earlier launch, in nanoseconds.
    pub ts_ns: i64,
    /// Length in nanoseconds.
    pub dur_ns: i64,
    /// Function of the launch that ends the gap.
    pub next_op: String,
    /// The innermost marked range that the launch began in, if any.
    pub phase: Option<String>,
    /// Name of the largest part.
    pub main: &'static str,
    /// Share of the largest part in the gap, from 0 to 1.
    pub main_ratio: f64,
}

/// All gaps of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gaps {
    /// Number of gaps.
    pub gaps_count: i64,
    /// Number of threads that have them.
    pub threads_count: i64,
    /// Sum of their lengths in nanoseconds; time in which several threads have a gap counts once for each of them.
    pub total_ns: i64,
    /// Total of each part in nanoseconds, in the order of [`PARTS`]; they sum to `total_ns`. `None`: no gap has the part on
    /// record. What is not known of a gap is in the last part.
    pub parts_ns: Vec<Option<i64>>,
    /// The longest gaps, longest first.
    pub longest: Vec<Gap>,
    /// Launches that have rows, and the number of launches that there were, at least, if not all have rows: between two
    /// launches that are not stored side by side, no gap is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_launches: Option<(u64, u64)>,
}

/// Returns whether a function launches work.
pub fn is_launch(op: &str) -> bool {
    Op::from_name(op).is_some_and(|op| op.class() == Class::Launch)
}

/// Returns the number of launches that have rows and of those that there were, if a run states that not all are stored.
fn stored_launches(trace: &Trace) -> Option<(u64, u64)> {
    // A launch of the runtime makes one of the driver, so the layer with more of them tells.
    let of_layer = |layer: Layer| {
        let stored = trace.files().iter().flat_map(|file| &file.run.stored);
        let of = stored.filter(|stored| stored.is_of(Kind::Call) && is_launch(&stored.op));
        let of = of.filter(|stored| Op::from_name(&stored.op).is_some_and(|op| op.layer() == layer));
        of.fold((0_u64, 0_u64), |(rows, made), stored| {
            let more = stored.made_count.unwrap_or(stored.stored_count);
            (rows.saturating_add(stored.stored_count), made.saturating_add(more))
        })
    };
    let (rows, made) =
        [Layer::Runtime, Layer::Driver].map(of_layer).into_iter().max_by_key(|(_, made)| *made)?;
    (made > rows).then_some((rows, made))
}

impl Gaps {
    /// Returns the name, the meaning and the total in nanoseconds of each part that is known.
    pub fn parts(&self) -> Vec<(&'static str, &'static str, i64)> {
        let all = PARTS.iter().zip(&self.parts_ns);
        all.filter_map(|((_, name, meaning), ns)| Some((*name, *meaning, (*ns)?))).collect()
    }
}

/// Summarizes the launch gaps of a run.
pub async fn run(trace: &Trace) -> Result<Gaps, AnalyzeError> {
    let mut gaps = Gaps {
        parts_ns: vec![None; PARTS.len()],
        stored_launches: stored_launches(trace),
        ..Gaps::default()
    };
    let columns = PARTS.map(|(column, ..)| column).join(", ");
    let query = format!("SELECT pid, tid, ts, dur, next_op, phase, {columns} FROM launch_gaps");
    let mut threads = BTreeSet::new();
    // Read once, one row after the other.
    let mut batches = trace.events().select(&query);
    while let Some(batch) = batches.try_next().await? {
        let whole = |name: &str| integers(&batch, name);
        let parts = PARTS.iter().map(|(column, ..)| whole(column)).collect::<Result<Vec<_>, _>>()?;
        let (pid, tid, ts, dur) = (whole("pid")?, whole("tid")?, whole("ts")?, whole("dur")?);
        let (ops, phases) = (strings(&batch, "next_op")?, strings(&batch, "phase")?);
        gaps.gaps_count += batch.num_rows() as i64;
        threads.extend(pid.iter().zip(&tid));
        gaps.total_ns = dur.iter().flatten().fold(gaps.total_ns, i64::saturating_add);
        for (ns, column) in gaps.parts_ns.iter_mut().zip(&parts) {
            let known = column.iter().flatten().reduce(i64::saturating_add);
            *ns = ns.map_or(known, |sum| Some(sum.saturating_add(known.unwrap_or(0))));
        }
        for row in 0..batch.num_rows() {
            let least = gaps.longest.get(LONGEST - 1).map_or(i64::MIN, |gap| gap.dur_ns);
            if dur.value(row) < least {
                continue;
            }
            let main = PARTS.iter().zip(&parts).max_by_key(|(_, ns)| ns.at(row).unwrap_or(0));
            let (name, ns) = main.map_or(("", 0), |((_, name, _), ns)| (*name, ns.at(row).unwrap_or(0)));
            let gap = Gap {
                pid: pid.value(row),
                tid: tid.value(row),
                ts_ns: ts.value(row),
                dur_ns: dur.value(row),
                next_op: ops.value(row).to_owned(),
                phase: phases.at(row).map(str::to_owned),
                main: name,
                main_ratio: ns as f64 / dur.value(row).max(1) as f64,
            };
            let order = |gap: &Gap| (std::cmp::Reverse(gap.dur_ns), gap.ts_ns, gap.tid);
            let place = gaps.longest.partition_point(|other| order(other) < order(&gap));
            gaps.longest.insert(place, gap);
            gaps.longest.truncate(LONGEST);
        }
    }
    gaps.threads_count = threads.len() as i64;
    // Where there is no gap, each part is known to be 0.
    if gaps.gaps_count == 0 {
        gaps.parts_ns.fill(Some(0));
    }
    Ok(gaps)
}
