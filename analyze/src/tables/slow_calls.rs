//! `slow_calls` and `chain_links`: tables of the verdicts, by call and by link of a chain.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};

use crate::tables::TableDef;
use analyze_engine::derived_table::{Output, blocking};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::{Derived, Source};
use analyze_verdict::{
    causes::{Cause, Division},
    classify::SlowCall,
    culprits::thread_name,
    params::Params,
    root_cause::{blamed, cause_of},
    schedule::Task,
    thread_state::State,
    walk::{Link, Walker},
};
use trace_schema::Kind;

/// Number of slow calls in a batch.
const BATCH_CALLS: usize = 2048;

/// Returns the name of the column of a cause.
fn cause_column(cause: Cause) -> String {
    format!("{}_ns", cause.name().replace([':', '-'], "_"))
}

fn field(name: &str, ty: DataType) -> Field {
    Field::new(name, ty, true)
}

/// Schema of the table `slow_calls`.
/// The table.
pub const CALLS: TableDef = TableDef {
    name: "_slow_calls",
    needs: &[Kind::Call],
    schema: calls_schema,
    make: |source, output| Box::pin(fill_calls(source, output)),
};

/// The table.
pub const LINKS: TableDef = TableDef {
    name: "_chain_links",
    needs: &[Kind::Call, Kind::OffCpu],
    schema: links_schema,
    make: |source, output| Box::pin(fill_links(source, output)),
};

/// Returns the schema of the table `slow_calls`.
pub fn calls_schema() -> SchemaRef {
    use DataType::{Float64, Int64, UInt32, Utf8};
    let mut fields: Vec<Field> = [
        ("run", Utf8),
        ("op", Utf8),
        ("ts", Int64),
        ("dur", Int64),
        ("pid", UInt32),
        ("tid", UInt32),
        ("depth", Int64),
        ("phase", Utf8),
        ("baseline_ns", Float64),
        ("excess_ns", Float64),
        ("verdict", Utf8),
        ("verdict_share_ratio", Float64),
        ("root", Utf8),
        ("culprit_pid", UInt32),
        ("culprit_tid", UInt32),
        ("culprit_comm", Utf8),
    ]
    .map(|(name, ty)| field(name, ty))
    .into();
    fields.extend(Cause::ALL.map(|cause| field(&cause_column(cause), Float64)));
    Arc::new(Schema::new(fields))
}

/// Returns the name of a task, if it is known.
fn named(derived: &Derived, run: u32, task: Task) -> Option<String> {
    Some(thread_name(derived, run, task)).filter(|name| !name.is_empty()).map(str::to_owned)
}

fn texts<T: AsRef<str>>(values: impl Iterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn wholes(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn numbers(values: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    Arc::new(values.collect::<UInt32Array>())
}

fn reals(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

fn defect(error: ArrowError) -> AnalyzeError {
    AnalyzeError::Internal(error.to_string())
}

/// Builds the rows of `slow_calls` for some slow calls.
fn calls(derived: &Derived, slow: &[SlowCall]) -> Result<RecordBatch, AnalyzeError> {
    let (schedule, names) = (&derived.schedule, &derived.schedule.names);
    let word = |get: &dyn Fn(&SlowCall) -> Option<u32>| {
        texts(slow.iter().map(|call| get(call).map(|number| names.name(number))))
    };
    let of = |get: &dyn Fn(&SlowCall) -> i64| wholes(slow.iter().map(|call| Some(get(call))));
    let culprit = |get: fn(&Task) -> u32| numbers(slow.iter().map(|call| call.culprit.as_ref().map(get)));
    let thread = |call: &SlowCall| call.call.thread(schedule);
    let mut walker = Walker::new(schedule);
    let divisions: Vec<_> = slow.iter().map(|call| derived.judgement.division(&mut walker, call)).collect();
    let share = |(call, division): (&SlowCall, &Division)| division[call.verdict.index()] / call.excess_ns;
    let mut arrays: Vec<ArrayRef> = vec![
        word(&|call| Some(thread(call).0)),
        word(&|call| Some(derived.judgement.kind(call).op)),
        of(&|call| call.call.ts),
        of(&|call| call.call.dur),
        numbers(slow.iter().map(|call| Some(thread(call).1))),
        numbers(slow.iter().map(|call| Some(thread(call).2))),
        of(&|call| call.call.depth.into()),
        word(&|call| derived.judgement.kind(call).phase),
        reals(slow.iter().map(|call| call.baseline_ns)),
        reals(slow.iter().map(|call| call.excess_ns)),
        texts(slow.iter().map(|call| Some(call.verdict.name()))),
        reals(slow.iter().zip(&divisions).map(share)),
        texts(slow.iter().map(|call| Some(call.root.name()))),
        culprit(|task| task.pid),
        culprit(|task| task.tid),
        texts(slow.iter().map(|call| call.culprit.and_then(|task| named(derived, thread(call).0, task)))),
    ];
    for cause in Cause::ALL {
        arrays.push(reals(divisions.iter().map(|division| division[cause.index()])));
    }
    RecordBatch::try_new(calls_schema(), arrays).map_err(defect)
}

/// Sends the rows of the table `slow_calls` to `output`.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill_calls(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let derived = source.get(Params::default()).await?;
    let work = move || {
        let mut parts = derived.judgement.slow.chunks(BATCH_CALLS);
        parts.try_for_each(|slow| output.send(&calls(&derived, slow)?))
    };
    blocking(work).await
}

/// Returns the schema of the table `chain_links`.
pub fn links_schema() -> SchemaRef {
    use DataType::{Int64, UInt32, Utf8};
    let fields = [
        ("run", Utf8),
        ("op", Utf8),
        ("call_ts", Int64),
        ("call_tid", UInt32),
        ("ts", Int64),
        ("dur", Int64),
        ("depth", Int64),
        ("pid", UInt32),
        ("tid", UInt32),
        ("state", Utf8),
        ("cause", Utf8),
        ("cpu", UInt32),
        ("syscall", Int64),
        ("task_pid", UInt32),
        ("task_tid", UInt32),
        ("task_comm", Utf8),
        ("call_pid", UInt32),
        ("call_depth", Int64),
    ];
    Arc::new(Schema::new(fields.map(|(name, ty)| field(name, ty)).to_vec()))
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

/// Builds the rows of `chain_links` for some slow calls.
fn links(derived: &Derived, slow: &[SlowCall]) -> Result<RecordBatch, AnalyzeError> {
    let (schedule, names) = (&derived.schedule, &derived.schedule.names);
    let mut walker = Walker::new(schedule);
    let mut links: Vec<(&SlowCall, Link)> = Vec::new();
    for call in slow {
        links.extend(call.chain(&mut walker).iter().map(|link| (call, *link)));
    }
    let of_link = |link: &Link| blamed(link).filter(|_| link.depth > 0 || link.task.is_some());
    let task = |get: fn(&Task) -> u32| numbers(links.iter().map(|(_, link)| of_link(link).as_ref().map(get)));
    let thread = |call: &SlowCall| call.call.thread(schedule);
    let arrays: Vec<ArrayRef> = vec![
        texts(links.iter().map(|(call, _)| Some(names.name(thread(call).0)))),
        texts(links.iter().map(|(call, _)| Some(names.name(derived.judgement.kind(call).op)))),
        wholes(links.iter().map(|(call, _)| Some(call.call.ts))),
        numbers(links.iter().map(|(call, _)| Some(thread(call).2))),
        wholes(links.iter().map(|(_, link)| Some(link.ts))),
        wholes(links.iter().map(|(_, link)| Some(link.end - link.ts))),
        wholes(links.iter().map(|(_, link)| Some(link.depth as i64))),
        numbers(links.iter().map(|(_, link)| Some(link.thread.1))),
        numbers(links.iter().map(|(_, link)| Some(link.thread.2))),
        texts(links.iter().map(|(_, link)| Some(state_name(link.state)))),
        texts(links.iter().map(|(_, link)| cause_of(link).map(Cause::name))),
        numbers(links.iter().map(|(_, link)| link.cpu)),
        wholes(links.iter().map(|(_, link)| link.syscall)),
        task(|task| task.pid),
        task(|task| task.tid),
        texts(
            links.iter().map(|(_, link)| of_link(link).and_then(|task| named(derived, link.thread.0, task))),
        ),
        numbers(links.iter().map(|(call, _)| Some(thread(call).1))),
        wholes(links.iter().map(|(call, _)| Some(call.call.depth.into()))),
    ];
    RecordBatch::try_new(links_schema(), arrays).map_err(defect)
}

/// Sends the rows of the table `chain_links` to `output`. The chains are followed anew, for some calls at a
/// time.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill_links(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let derived = source.get(Params::default()).await?;
    let work = move || {
        let mut parts = derived.judgement.slow.chunks(BATCH_CALLS);
        parts.try_for_each(|slow| output.send(&links(&derived, slow)?))
    };
    blocking(work).await
}
