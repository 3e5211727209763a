//! The table of one file of a run: DataFusion's own Parquet table, extended by what DataFusion does not know
//! of runs.
//!
//! **Order.** The rows of each row group are sorted by `ts`; neighbouring row groups may overlap in time, by
//! as much as the longest call. DataFusion takes the order that the row groups declare for the order of the
//! file. Where they overlap, the file is therefore read as chains of row groups that do not:
//!
//! ```text
//! file     ├── 0 ──┤   ├─── 2 ───┤         chains: 0, 2 and 1, 3; each is in order, and merging
//!               ├── 1 ──┤     ├─── 3 ──┤   them gives all rows in order
//! ```
//!
//! **Late materialisation** decodes the columns that are filtered by first, and of the other columns only the
//! rows that pass. It pays if there are many other columns, and costs a third of the time of a query that
//! reads few. (The session must not enable it: DataFusion enables it if either the session or the table
//! does.)

use std::sync::Arc;

use analyze_run::row_groups::{ORDER, RowGroup};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{ColumnStatistics, Statistics, stats::Precision},
    datasource::{
        listing::PartitionedFile,
        physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource},
        source::DataSourceExec,
    },
    error::Result,
    logical_expr::{Expr, TableProviderFilterPushDown, TableType},
    physical_plan::ExecutionPlan,
    scalar::ScalarValue,
};

/// So many columns are decoded as a whole.
const FEW_COLUMNS: usize = 8;

/// Row groups that follow each other without overlap, as few chains as that takes.
fn chains(groups: &[RowGroup]) -> Vec<Vec<&RowGroup>> {
    let mut chains: Vec<Vec<&RowGroup>> = Vec::new();
    for group in groups {
        let fits =
            |chain: &&mut Vec<&RowGroup>| chain.last().is_none_or(|last| last.last_ts <= group.first_ts);
        match chains.iter_mut().find(fits) {
            Some(chain) => chain.push(group),
            None => chains.push(vec![group]),
        }
    }
    chains
}

/// A table over one file of a run.
#[derive(Debug)]
pub struct RunTable {
    inner: Arc<dyn TableProvider>,
    /// The row groups, or `None` if the file does not declare its order.
    groups: Option<Vec<RowGroup>>,
}

impl RunTable {
    /// Wraps DataFusion's table of one file. `groups` is the result of [`analyze_run::row_groups::row_groups`] for that file.
    pub fn new(inner: Arc<dyn TableProvider>, groups: Option<Vec<RowGroup>>) -> Self {
        Self { inner, groups }
    }

    /// Returns the chains as file groups, each a list of ranges of the file. The row groups are first divided
    /// into several contiguous parts, so that up to `threads` threads have work.
    fn file_groups(&self, file: &PartitionedFile, groups: &[RowGroup], threads: usize) -> Vec<FileGroup> {
        let schema = self.inner.schema();
        let part = |group: &&RowGroup| {
            let mut statistics = Statistics::new_unknown(&schema);
            if let Ok(index) = schema.index_of(ORDER) {
                let time = |ts| Precision::Exact(ScalarValue::Int64(Some(ts)));
                statistics.column_statistics[index] = ColumnStatistics {
                    null_count: Precision::Exact(0),
                    min_value: time(group.first_ts),
                    max_value: time(group.last_ts),
                    ..ColumnStatistics::new_unknown()
                };
            }
            let mut part = file.clone().with_range(group.bytes.start, group.bytes.end);
            part.statistics = Some(Arc::new(statistics));
            part
        };
        let chains_count = chains(groups).len().max(1);
        let piece = groups.len().div_ceil(threads.div_ceil(chains_count)).max(1);
        let pieces = groups.chunks(piece).flat_map(chains);
        pieces.map(|chain| FileGroup::new(chain.iter().map(part).collect())).collect()
    }
}

#[async_trait]
impl TableProvider for RunTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.inner.supports_filters_pushdown(filters)
    }

    fn statistics(&self) -> Option<Statistics> {
        self.inner.statistics()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.inner.scan(state, projection, filters, limit).await?;
        let source = plan.downcast_ref::<DataSourceExec>();
        let Some((config, source)) =
            source.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>)
        else {
            return Ok(plan);
        };
        let columns = projection.map_or(usize::MAX, Vec::len);
        let source = source.clone().with_pushdown_filters(columns > FEW_COLUMNS);
        let mut builder = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
        let file = config.file_groups.first().and_then(|group| group.files().first());
        builder = match (&self.groups, file) {
            (Some(groups), _) if groups.is_sorted_by(|a, b| a.last_ts <= b.first_ts) => builder,
            (Some(groups), Some(file)) => {
                let threads = state.config().target_partitions();
                builder.with_file_groups(self.file_groups(file, groups, threads))
            }
            _ => builder.with_output_ordering(Vec::new()),
        };
        Ok(DataSourceExec::from_data_source(builder.build()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(first_ts: i64, last_ts: i64) -> RowGroup {
        RowGroup { bytes: first_ts..last_ts, first_ts, last_ts }
    }

    #[test]
    fn chains_are_in_order_and_hold_every_row_group() {
        let groups = [group(0, 10), group(8, 25), group(10, 30), group(24, 40), group(25, 60), group(40, 41)];
        let chains = chains(&groups);
        assert!(chains.iter().all(|chain| chain.is_sorted_by(|a, b| a.last_ts <= b.first_ts)));
        assert_eq!(chains.iter().map(Vec::len).sum::<usize>(), groups.len());
        assert_eq!(chains.len(), 3, "three of them overlap at 25: {chains:?}");
    }

    /// Writes a run whose row groups overlap, as those of a recording with long calls do.
    fn overlapping(path: &std::path::Path) {
        use arrow::array::{Array, DictionaryArray, Int64Array, RecordBatch, UInt32Array, new_null_array};
        use arrow::datatypes::{DataType, Int32Type};
        use parquet::{
            arrow::ArrowWriter,
            file::{
                metadata::{KeyValue, SortingColumn},
                properties::WriterProperties,
            },
        };
        use trace_schema::{FORMAT_VERSION, META_RUN, META_VERSION, Run, arrow_schema};

        let schema = Arc::new(arrow_schema());
        let order = SortingColumn {
            column_idx: schema.index_of(ORDER).unwrap() as i32,
            descending: false,
            nulls_first: false,
        };
        let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let properties = WriterProperties::builder()
            .set_sorting_columns(Some(vec![order]))
            .set_key_value_metadata(Some(vec![
                pair(META_VERSION, FORMAT_VERSION.to_string()),
                pair(META_RUN, serde_json::to_string(&Run::default()).unwrap()),
            ]));
        let file = std::fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties.build())).unwrap();
        for group in 0..7_i64 {
            let rows = 100;
            // Each row group begins 30 ns before the one before it ends.
            let ts: Vec<i64> = (0..rows).map(|row| group * 70 + row).collect();
            let is_call = |row: i64| row % 10 != 0;
            let columns = schema.fields().iter().map(|field| -> Arc<dyn Array> {
                match (field.name().as_str(), field.data_type()) {
                    ("ts", _) => Arc::new(Int64Array::from(ts.clone())),
                    ("dur", _) => Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 7))),
                    ("kind", _) => {
                        let kinds = (0..rows).map(|row| if is_call(row) { "call" } else { "off_cpu" });
                        Arc::new(kinds.collect::<DictionaryArray<Int32Type>>())
                    }
                    (_, DataType::Dictionary(..)) if !field.is_nullable() => {
                        Arc::new((0..rows).map(|_| "cudaMalloc").collect::<DictionaryArray<Int32Type>>())
                    }
                    (_, DataType::UInt32) if !field.is_nullable() => {
                        Arc::new(UInt32Array::from_iter_values((0..rows).map(|row| (row % 3) as u32)))
                    }
                    (_, ty) => new_null_array(ty, rows as usize),
                }
            });
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap()).unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
    }

    #[tokio::test]
    async fn rows_come_in_order_though_row_groups_overlap() {
        use analyze_run::columns::integers;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.parquet");
        overlapping(&path);
        let file = analyze_run::run_file::open(&path).unwrap();
        let trace = crate::session::Session::open(&[file], None).await.unwrap();
        let numbers = async |query: &str| -> Vec<i64> {
            let batches = trace.batches(query).await.unwrap();
            batches.iter().flat_map(|batch| integers(batch, "n").unwrap().values().to_vec()).collect()
        };
        let ts = numbers("SELECT ts AS n FROM events ORDER BY ts").await;
        assert_eq!(ts.len(), 700);
        assert!(ts.is_sorted(), "{ts:?}");
        assert_eq!(numbers("SELECT ts AS n FROM events ORDER BY ts DESC LIMIT 1").await, [6 * 70 + 99]);
        assert_eq!(numbers("SELECT count(*) AS n FROM events WHERE ts >= 70 AND ts < 100").await, [60]);
        assert_eq!(numbers("SELECT count(*) AS n FROM events").await, [700]);
        // This query reads enough columns for late materialisation.
        assert_eq!(numbers("SELECT sum(ts) AS n FROM (SELECT * FROM events WHERE kind = 'off_cpu') WHERE dur > 3 AND pid < 9").await, {
            let rows = (0..7).flat_map(|group| (0..100).map(move |row| (group * 70 + row, row)));
            [rows.filter(|(_, row)| row % 10 == 0 && row % 7 > 3).map(|(ts, _)| ts).sum::<i64>()]
        });
        for (columns, is_late) in [("dur", false), ("*", true)] {
            let query = format!("EXPLAIN SELECT {columns} FROM events WHERE kind = 'off_cpu'");
            let plan = trace.batches(&query).await.unwrap();
            let plan = arrow::util::pretty::pretty_format_batches(&plan).unwrap().to_string();
            assert_eq!(plan.contains("FilterExec"), !is_late, "{plan}");
        }
        let join = "SELECT count(*) AS n FROM events a JOIN events b ON a.tid = b.tid AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur \
                    WHERE a.kind = 'call' AND b.kind = 'off_cpu'";
        let plan = trace.batches(&format!("EXPLAIN {join}")).await.unwrap();
        let plan = arrow::util::pretty::pretty_format_batches(&plan).unwrap().to_string();
        let is_by_start = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() <= 8);
        assert_eq!(plan.contains("by=start"), is_by_start, "{plan}");
        let row = |group: i64, row: i64| (group * 70 + row, row % 7, row % 3, row % 10 != 0);
        let rows: Vec<_> = (0..7).flat_map(|group| (0..100).map(move |at| row(group, at))).collect();
        let meets = |a: &&(i64, i64, i64, bool), b: &&(i64, i64, i64, bool)| {
            a.3 && !b.3 && a.2 == b.2 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1
        };
        let expected = rows.iter().map(|a| rows.iter().filter(|b| meets(&a, b)).count() as i64).sum::<i64>();
        assert_eq!(numbers(join).await, [expected]);
    }
}
