//! How far the scans of a plan are, for the line of progress.

use std::{collections::HashMap, sync::Arc};

use analyze_run::progress::{self, Amount};
use datafusion::{
    datasource::{
        listing::PartitionedFile,
        physical_plan::{FileGroup, ParquetSource},
        source::DataSourceExec,
    },
    physical_plan::ExecutionPlan,
};

/// Shows the progress of a plan that is about to be executed.
pub fn register(plan: &Arc<dyn ExecutionPlan>) {
    let plan = Arc::clone(plan);
    progress::watch(Box::new(move || scanned(&plan)));
}

/// Returns the rows of files that a plan has read, with those that its filters have left out.
fn scanned(plan: &Arc<dyn ExecutionPlan>) -> Amount {
    let inputs = plan.children().into_iter().map(scanned);
    let mut sum = inputs.fold(Amount::default(), |sum, input| Amount {
        done: sum.done + input.done,
        total: sum.total + input.total,
    });
    let files = plan.downcast_ref::<DataSourceExec>();
    if let Some((files, _)) = files.and_then(|files| files.downcast_to_file_source::<ParquetSource>()) {
        let metrics = plan.metrics().unwrap_or_default();
        let left_out = metrics.sum_by_name("pushdown_rows_pruned").map_or(0, |value| value.as_usize());
        sum.done += (metrics.output_rows().unwrap_or_default() + left_out) as u64;
        // A file may be in several groups, a part of it in each.
        let files = files.file_groups.iter().flat_map(FileGroup::iter);
        let rows_of = |file: &PartitionedFile| file.statistics.as_ref()?.num_rows.get_value().copied();
        let rows: HashMap<_, _> =
            files.map(|file| (file.path(), rows_of(file).unwrap_or_default())).collect();
        sum.total += rows.values().sum::<usize>() as u64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use analyze_run::run_file;
    use datafusion::physical_plan::execute_stream;
    use futures::StreamExt;

    use super::*;
    use crate::session::Session;

    #[tokio::test]
    async fn a_scan_counts_every_row_of_its_file() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/h200/compile.parquet");
        let file = run_file::open(&path).expect("a run");
        let rows = file.rows_count;
        let session = Session::open(&[file], None).await.expect("a session");
        // Each row once per scan, also one that is filtered out.
        for (query, scans) in [
            ("SELECT op FROM events", 1),
            ("SELECT kind FROM events WHERE op = 'cudaMalloc'", 1),
            ("SELECT a.op FROM events a JOIN events b ON a.ts = b.ts AND b.pid > 0", 2),
        ] {
            let rows = scans * rows;
            let frame = session.sql(query).await.expect("a query");
            let plan = frame.create_physical_plan().await.expect("a plan");
            assert_eq!(scanned(&plan), Amount { done: 0, total: rows }, "{query}");
            let mut batches = execute_stream(Arc::clone(&plan), session.context().task_ctx()).expect("rows");
            while let Some(batch) = batches.next().await {
                batch.expect("a batch");
            }
            assert_eq!(scanned(&plan), Amount { done: rows, total: rows }, "{query}");
        }
    }
}
