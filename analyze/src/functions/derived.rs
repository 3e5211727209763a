//! Tables that Rust derives from `events` when one of them is first scanned, all from one reading:
//!
//! - `_calls`: every call with its place, its phase and the exact split of its time ([`call_rows`]);
//! - `slow_calls`, `chain_links`: slow calls with their causes, and the chains behind them ([`slow_rows`]);
//! - `critical_path`: what marked ranges are made of ([`critical_path`]);
//! - `launch_gaps`: the time between launches ([`launch_gaps`]);
//! - `data_quality`: what of the input contradicts itself ([`Fault`]).

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use arrow::{
    array::{Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    datasource::{MemTable, TableProvider, TableType},
    error::{DataFusionError, Result},
    execution::SessionState,
    logical_expr::Expr,
    physical_plan::ExecutionPlan,
    prelude::SessionContext,
};
use parking_lot::RwLock;
use tokio::sync::OnceCell;
use trace_schema::Run;

use crate::{
    analysis::{
        call_rows, critical_path,
        judge::{self, Judgement},
        launch_gaps,
        schedule::{Fault, Faults, Input, Schedule},
        slow_rows,
    },
    columns::{integers, strings},
    error::AnalyzeError,
    trace::RunFile,
};

const CALLS: &str = "SELECT run, pid, tid, ts, dur, op, ret, addr, src_addr, size_bytes, direction, stream, func, caller \
     FROM events WHERE kind = 'call' AND IN_RANGE ORDER BY run, pid, tid, ts, dur DESC NULLS FIRST";
const OFF_CPU: &str = "SELECT run, pid, tid, ts, dur, op, runnable_ns, syscall, cpu, waker_pid, waker_tid, waker_comm \
     FROM events WHERE kind = 'off_cpu' AND IN_RANGE ORDER BY run, pid, tid, ts, dur DESC NULLS FIRST";
const STINTS: &str = "SELECT run, cpu, ts, dur, pid, tid, comm FROM events WHERE kind = 'run' AND IN_RANGE ORDER BY run, cpu, ts, dur";
const RANGES: &str = "SELECT run, pid, tid, ts, dur, detail \
     FROM events WHERE kind = 'mark' AND op = 'range' AND IN_RANGE ORDER BY run, pid, ts, dur DESC NULLS FIRST";

/// Times that a clock can tell, so that sums of them do not overflow: see [`Fault::OutOfRange`].
const IN_RANGE: &str = "ts BETWEEN -1152921504606846976 AND 1152921504606846976 \
     AND (dur IS NULL OR dur BETWEEN -9007199254740992 AND 9007199254740992)";
const OUT_OF_RANGE: &str = "SELECT run, count(*) AS n FROM events \
     WHERE kind IN ('call', 'off_cpu', 'run', 'mark') AND NOT (IN_RANGE) GROUP BY run";

/// Everything that is derived.
#[derive(Debug)]
pub(crate) struct Derived {
    pub(crate) calls: RecordBatch,
    pub(crate) schedule: Schedule,
    pub(crate) faults: Faults,
    /// Ranges that workloads marked: run, pid, tid, ts, dur, detail.
    pub(crate) ranges: Vec<RecordBatch>,
    /// What the files say about themselves, by name.
    pub(crate) runs: Vec<(String, Run)>,
    /// Names of the threads of the runs themselves, by the run's number and the thread's.
    pub(crate) thread_names: HashMap<(u32, u32), String>,
    judged: OnceLock<Judgement>,
}

impl Derived {
    /// What a run says about itself, by its number.
    pub(crate) fn run(&self, number: u32) -> Option<&Run> {
        let name = self.schedule.names.name(number);
        self.runs.iter().find(|(of, _)| of == name).map(|(_, run)| run)
    }

    /// The calls judged with the default parameters.
    ///
    /// # Errors
    /// If a column cannot be read.
    pub(crate) fn judged(&self) -> Result<&Judgement, AnalyzeError> {
        if let Some(judged) = self.judged.get() {
            return Ok(judged);
        }
        let judged = judge::judge(self, judge::Params::default())?;
        Ok(self.judged.get_or_init(|| judged))
    }
}

/// Where it comes from.
pub(crate) struct Source {
    // Weak: the session owns the tables.
    state: Weak<RwLock<SessionState>>,
    runs: Vec<(String, Run)>,
    cell: Option<OnceCell<Arc<Derived>>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Source {
    /// Over the `events` of a session. `immutable`: they do not change, so it is derived once.
    pub(crate) fn new(context: &SessionContext, files: &[RunFile], immutable: bool) -> Self {
        Self {
            state: context.state_weak_ref(),
            runs: files.iter().map(|file| (file.name.clone(), file.run.clone())).collect(),
            cell: immutable.then(OnceCell::new),
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// If `events` cannot be read.
    pub(crate) async fn get(&self) -> Result<Arc<Derived>> {
        match &self.cell {
            Some(cell) => cell.get_or_try_init(|| self.derive()).await.cloned(),
            None => self.derive().await,
        }
    }

    async fn derive(&self) -> Result<Arc<Derived>> {
        let gone = || DataFusionError::Internal("the session of the derived tables is gone".to_owned());
        let state = self.state.upgrade().ok_or_else(gone)?.read().clone();
        let context = SessionContext::new_with_state(state);
        let mut answers = Vec::new();
        for query in [OFF_CPU, STINTS, CALLS, RANGES, OUT_OF_RANGE] {
            answers.push(context.sql(&query.replace("IN_RANGE", IN_RANGE)).await?.collect().await?);
        }
        let input = Input { off_cpu: &answers[0], stints: &answers[1] };
        let (mut schedule, mut faults) = Schedule::read(&input).map_err(external)?;
        let calls =
            call_rows::derive(&answers[2], &answers[3], &mut schedule, &mut faults).map_err(external)?;
        let runs = self.runs.clone();
        let mut thread_names = HashMap::new();
        for (name, run) in &runs {
            let number = schedule.names.number(name);
            thread_names.extend(run.threads.iter().map(|t| ((number, t.tid), t.comm.clone())));
        }
        for batch in &answers[4] {
            let (runs, count) = (strings(batch, "run"), integers(batch, "n"));
            let (runs, count) = (runs.map_err(external)?, count.map_err(external)?);
            for row in 0..batch.num_rows() {
                let run = schedule.names.number(runs.value(row));
                faults.insert((run, Fault::OutOfRange), count.value(row).unsigned_abs());
            }
        }
        let ranges = answers.swap_remove(3);
        Ok(Arc::new(Derived { calls, schedule, faults, ranges, runs, thread_names, judged: OnceLock::new() }))
    }
}

fn external(error: AnalyzeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Makes the rows of a table.
type Rows = fn(&Derived) -> Result<RecordBatch, AnalyzeError>;

/// One of the tables.
#[derive(Debug)]
struct Table {
    source: Arc<Source>,
    schema: SchemaRef,
    rows: Rows,
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = (self.rows)(&*self.source.get().await?).map_err(external)?;
        MemTable::try_new(self.schema(), vec![vec![batch]])?.scan(state, projection, filters, limit).await
    }
}

fn quality_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(vec![text("run"), text("problem"), Field::new("rows_count", DataType::Int64, true)]))
}

fn quality(derived: &Derived) -> Result<RecordBatch, AnalyzeError> {
    let damaged = |error: ArrowError| AnalyzeError::Internal(error.to_string());
    let runs = derived.faults.keys().map(|(run, _)| Some(derived.schedule.names.name(*run)));
    let problems = derived.faults.keys().map(|(_, fault)| Some(fault.name()));
    RecordBatch::try_new(
        quality_schema(),
        vec![
            Arc::new(runs.collect::<StringArray>()),
            Arc::new(problems.collect::<StringArray>()),
            Arc::new(derived.faults.values().map(|count| *count as i64).collect::<Int64Array>()),
        ],
    )
    .map_err(damaged)
}

/// The names of the tables, in the order in which they are registered.
pub(crate) const NAMES: [&str; 6] =
    ["_calls", "_slow_calls", "_chain_links", "_launch_gaps", "_critical_path", "_data_quality"];

/// Registers the tables.
///
/// # Errors
/// If a name is taken: a defect of this program.
pub(crate) fn register(context: &SessionContext, source: &Arc<Source>) -> Result<(), AnalyzeError> {
    let tables: [(SchemaRef, Rows); 6] = [
        (call_rows::schema(), |derived| Ok(derived.calls.clone())),
        (slow_rows::calls_schema(), slow_rows::calls),
        (slow_rows::links_schema(), slow_rows::links),
        (launch_gaps::schema(), launch_gaps::rows),
        (critical_path::schema(), critical_path::rows),
        (quality_schema(), quality),
    ];
    for (name, (schema, rows)) in NAMES.into_iter().zip(tables) {
        context.register_table(name, Arc::new(Table { source: Arc::clone(source), schema, rows }))?;
    }
    Ok(())
}
