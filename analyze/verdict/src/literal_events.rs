//! Literal rows as the table `events` of a session: tests read them as a run is read.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::{StreamExt, stream};
use trace_schema::{Kind, Row};
use trace_writer::Rows;

use crate::{
    call::Sink,
    derived::{Derived, Source},
    params::Params,
    sweep::Sweep,
    sweep_input::Input,
};
use analyze_run::{
    events::{Batches, Events},
    reading::TASK_COLUMNS,
};

/// The process of all rows.
pub(crate) const PID: u32 = 1;

/// The number of rows in a batch, small enough that rows of one time fall into two.
const BATCH_ROWS: usize = 7;

/// The rows of one run, in order of time.
struct Literal(Vec<Row>);

/// Returns rows with a column that names their run.
fn batch(rows: &[Row]) -> RecordBatch {
    let mut writer = Rows::default();
    rows.iter().for_each(|row| writer.push(row));
    let batch = writer.take().unwrap();
    let run: ArrayRef = Arc::new(StringArray::from(vec!["r"; rows.len()]));
    let names = batch.schema_ref().fields().iter().map(|field| field.name().clone());
    let columns = names.zip(batch.columns().iter().cloned());
    RecordBatch::try_from_iter(columns.chain([("run".to_owned(), run)])).unwrap()
}

impl Events for Literal {
    /// Answers the only query of a reading: which processes have rows of the scheduler, from when to when.
    fn select(&self, query: &str) -> Batches {
        assert!(query.contains("kind = 'off_cpu' GROUP BY run, pid"), "{query}");
        let mut spans: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for row in self.0.iter().filter(|row| row.kind == Kind::OffCpu) {
            let (first, last) = spans.entry(row.pid).or_insert((i64::MAX, i64::MIN));
            *first = row.ts.min(*first);
            *last = row.ts.saturating_add(row.dur.unwrap_or(0)).max(*last);
        }
        let integers = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let columns = [
            ("run", Arc::new(StringArray::from(vec!["r"; spans.len()])) as ArrayRef),
            ("pid", integers(spans.keys().map(|pid| i64::from(*pid)).collect())),
            ("first", integers(spans.values().map(|span| span.0).collect())),
            ("last", integers(spans.values().map(|span| span.1).collect())),
        ];
        stream::iter([Ok(RecordBatch::try_from_iter(columns).unwrap())]).boxed()
    }

    fn ordered(&self, _columns: &[&str]) -> Batches {
        let batches: Vec<_> = self.0.chunks(BATCH_ROWS).map(|rows| Ok(batch(rows))).collect();
        stream::iter(batches).boxed()
    }
}

fn literal(mut rows: Vec<Row>) -> Arc<Literal> {
    rows.sort_by_key(|row| row.ts);
    Arc::new(Literal(rows))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Passes the calls in some rows, which may come in any order, to a sink.
pub(crate) fn sweep<S: Sink + 'static>(rows: Vec<Row>, sink: S) -> Sweep<S> {
    block_on(Input::new(literal(rows), &[], true).sweep(TASK_COLUMNS, true, |_, _| sink)).unwrap()
}

/// Classifies the calls in some rows, which may come in any order.
pub(crate) fn derive(rows: Vec<Row>, params: Params) -> Arc<Derived> {
    block_on(Source::new(literal(rows), &[], true).get(params)).unwrap()
}

/// Returns a call that returned.
pub(crate) fn call(tid: u32, (ts, end): (i64, i64), op: &'static str) -> Row {
    Row { dur: Some(end - ts), ..Row::new(ts, Kind::Call, op.into(), PID, tid) }
}

/// Returns an off-CPU interval; `state` is the one at switch-out.
pub(crate) fn off_cpu(tid: u32, (ts, end): (i64, i64), state: &'static str) -> Row {
    Row { dur: Some(end - ts), ..Row::new(ts, Kind::OffCpu, state.into(), PID, tid) }
}

/// Returns a scheduling slice of a task, given by process ID, thread ID and name.
pub(crate) fn slice(cpu: u32, (ts, end): (i64, i64), (pid, tid, comm): (u32, u32, &'static str)) -> Row {
    let row = Row::new(ts, Kind::Run, "run".into(), pid, tid);
    Row { dur: Some(end - ts), cpu: Some(cpu), comm: Some(comm.into()), ..row }
}

/// Returns a range that the program marked.
pub(crate) fn range(tid: u32, (ts, end): (i64, i64), name: &'static str) -> Row {
    let row = Row::new(ts, Kind::Mark, "range".into(), PID, tid);
    Row { dur: Some(end - ts), detail: Some(name.into()), ..row }
}
