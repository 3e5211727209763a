//! Runs a query that somebody wrote: it can only read, a panic in it is an error of the query, and it ends in time.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::{
    execution::SendableRecordBatchStream,
    physical_plan::{execute_stream, stream::RecordBatchReceiverStream},
    prelude::DataFrame,
    scalar::ScalarValue,
};
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use trace_schema::Nanos;

use crate::trace::Trace;
use analyze_engine::{error::query_error, scan_progress, session::guessed};
use analyze_run::{error::AnalyzeError, panics};

/// Plans a query with values for its parameters.
///
/// # Errors
/// Returns an error if the query cannot be planned, is not a query, or does not have a parameter of that type.
pub async fn plan(
    trace: &Trace,
    query: &str,
    params: &[(String, String)],
) -> Result<DataFrame, AnalyzeError> {
    let frame = answered(trace.sql(query)).await?;
    let values: Vec<_> = params.iter().map(|(name, value)| (name.clone(), guessed(value))).collect();
    if values.is_empty() { Ok(frame) } else { frame.with_param_values(values).map_err(query_error) }
}

/// Awaits work on a query. A panic in it is an error of the query, such as a text of more than 2 GiB.
///
/// # Errors
/// Returns the error of the work, or one that says what it panicked with.
pub async fn answered<T>(work: impl Future<Output = Result<T, AnalyzeError>>) -> Result<T, AnalyzeError> {
    FutureExt::catch_unwind(AssertUnwindSafe(work)).await.unwrap_or_else(|panic| {
        let what = panics::message(panic.as_ref());
        Err(AnalyzeError::Query(format!("the query cannot be answered: {what}")))
    })
}

/// Awaits work on a query for at most this time. `option` is what the user set the time with.
///
/// # Errors
/// Returns the error of the work, or one that says that the time is over.
pub async fn in_time<T>(
    limit: Nanos,
    option: &str,
    work: impl Future<Output = Result<T, AnalyzeError>>,
) -> Result<T, AnalyzeError> {
    let allowed = Duration::from_nanos(u64::try_from(limit.0).unwrap_or_default());
    // By a thread of its own: the runtime looks at its clock when one of its threads has nothing to do.
    let (ended, is_ended) = mpsc::channel::<()>();
    let (over, is_over) = oneshot::channel();
    thread::spawn(move || {
        if is_ended.recv_timeout(allowed) == Err(RecvTimeoutError::Timeout) {
            let _ = over.send(());
        }
    });
    let result = tokio::select! {
        result = work => result,
        Ok(()) = is_over => Err(AnalyzeError::Query(format!("the query took longer than {limit} ({option})"))),
    };
    drop(ended);
    result
}

/// Starts a query. Its rows are computed on other threads, so that a reader can stop waiting for a join that yields none for
/// hours; they stop when the stream is dropped.
///
/// # Errors
/// Returns an error if the query cannot be run.
pub async fn start(frame: DataFrame) -> Result<SendableRecordBatchStream, AnalyzeError> {
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.map_err(query_error)?;
    scan_progress::register(&plan);
    let mut rows = execute_stream(plan, context).map_err(query_error)?;
    let mut apart = RecordBatchReceiverStream::builder(rows.schema(), 2);
    let to = apart.tx();
    apart.spawn(async move {
        while let Some(batch) = rows.next().await {
            if to.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    Ok(apart.build())
}

/// Returns whether a batch is one row of nulls, zeros and empty lists, as aggregates over nothing are.
pub fn says_nothing(row: &RecordBatch) -> bool {
    let is_nothing = |value: ScalarValue| match &value {
        ScalarValue::List(list) => list.values().is_empty(),
        value if value.is_null() => true,
        value => ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero == *value),
    };
    let of = |column: &ArrayRef| ScalarValue::try_from_array(column, 0).is_ok_and(is_nothing);
    row.num_rows() == 1 && row.columns().iter().all(of)
}
