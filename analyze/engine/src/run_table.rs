//! The table of one file of a run: a scan by DataFusion's Parquet reader, with what DataFusion does not know of runs.
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
//! rows that pass. It pays if there are many other columns, or if few rows pass, as of the kinds of which a run
//! has few; else it costs a third of the time of a query that reads few columns. (The session must not enable
//! it: DataFusion enables it if either the session or the table does.)

use std::sync::Arc;

use analyze_run::{
    row_groups::{ORDER, RowGroup, row_groups},
    stored_file::StoredFile,
};
use arrow::{compute::SortOptions, datatypes::SchemaRef};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{ColumnStatistics, Statistics, config::TableParquetOptions, stats::Precision},
    datasource::{
        listing::PartitionedFile,
        physical_plan::{
            FileGroup, FileScanConfigBuilder, ParquetSource, parquet::metadata::DFParquetMetadata,
        },
        source::DataSourceExec,
    },
    error::Result,
    execution::object_store::ObjectStoreUrl,
    logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType},
    physical_expr::{LexOrdering, PhysicalSortExpr, expressions::Column},
    physical_plan::ExecutionPlan,
    scalar::ScalarValue,
};
use trace_schema::{Kind, arrow_schema};

use crate::stored_reader::StoredReaders;

/// So many columns are decoded as a whole.
const FEW_COLUMNS: usize = 8;
/// The kinds of which a run has few rows beside its calls, allocator events and scheduler rows.
const RARE_KINDS: [Kind; 4] = [Kind::Mark, Kind::Name, Kind::Process, Kind::Sample];

/// Returns whether an expression is the column `kind`, which may be cast to plain text.
fn is_kind(expr: &Expr) -> bool {
    match expr {
        Expr::Column(column) => column.name() == "kind",
        Expr::Cast(cast) => is_kind(&cast.expr),
        _ => false,
    }
}

/// Returns whether one of the filters selects the rows of a rare kind.
fn selects_rare_kind(filters: &[Expr]) -> bool {
    filters.iter().any(|filter| {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = filter else { return false };
        let Expr::Literal(value, _) = right.as_ref() else { return false };
        let name = value.try_as_str().flatten();
        is_kind(left) && RARE_KINDS.iter().any(|kind| name == Some(kind.name()))
    })
}

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
    schema: SchemaRef,
    /// The file as DataFusion knows it: with its rows' statistics, and the file itself as extension.
    file: PartitionedFile,
    statistics: Arc<Statistics>,
    /// The row groups, or `None` if the file does not declare its order.
    groups: Option<Vec<RowGroup>>,
}

impl RunTable {
    /// Creates the table of a file.
    ///
    /// # Errors
    /// Returns an error if the statistics of the file cannot be read.
    pub fn new(file: StoredFile) -> Result<Self> {
        let schema = Arc::new(arrow_schema());
        let statistics = DFParquetMetadata::statistics_from_parquet_metadata(file.metadata(), &schema)?;
        let statistics = Arc::new(statistics);
        let groups = row_groups(file.metadata());
        // The path is for people: the reader opens the file itself, whatever its name is.
        let partitioned = PartitionedFile::new(file.path().to_string_lossy(), file.size_bytes())
            .with_statistics(Arc::clone(&statistics))
            .with_arrow_schema(Arc::clone(file.schema()))
            .with_extension(file);
        Ok(Self { schema, file: partitioned, statistics, groups })
    }

    /// Returns the chains as file groups, each a list of ranges of the file. The row groups are first divided
    /// into several contiguous parts, so that up to `threads` threads have work.
    fn file_groups(&self, groups: &[RowGroup], threads: usize) -> Vec<FileGroup> {
        let schema = &self.schema;
        let part = |group: &&RowGroup| {
            let mut statistics = Statistics::new_unknown(schema);
            if let Ok(index) = schema.index_of(ORDER) {
                let time = |ts| Precision::Exact(ScalarValue::Int64(Some(ts)));
                statistics.column_statistics[index] = ColumnStatistics {
                    null_count: Precision::Exact(0),
                    min_value: time(group.first_ts),
                    max_value: time(group.last_ts),
                    ..ColumnStatistics::new_unknown()
                };
            }
            let mut part = self.file.clone().with_range(group.bytes.start, group.bytes.end);
            part.statistics = Some(Arc::new(statistics));
            part
        };
        let chains_count = chains(groups).len().max(1);
        let piece = groups.len().div_ceil(threads.div_ceil(chains_count)).max(1);
        let pieces = groups.chunks(piece).flat_map(chains);
        pieces.map(|chain| FileGroup::new(chain.iter().map(part).collect())).collect()
    }

    /// Returns the order of the rows: by time, if the file declares it.
    fn ordering(&self) -> Result<Vec<LexOrdering>> {
        if self.groups.is_none() {
            return Ok(Vec::new());
        }
        let time = Arc::new(Column::new(ORDER, self.schema.index_of(ORDER)?));
        let ascending = SortOptions { descending: false, nulls_first: false };
        Ok(LexOrdering::new([PhysicalSortExpr::new(time, ascending)]).into_iter().collect())
    }
}

#[async_trait]
impl TableProvider for RunTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection.map_or(usize::MAX, Vec::len);
        let is_late = columns > FEW_COLUMNS || selects_rare_kind(filters);
        let global = state.config_options().execution.parquet.clone();
        let source = ParquetSource::new(Arc::clone(&self.schema))
            .with_table_parquet_options(TableParquetOptions { global, ..TableParquetOptions::default() })
            .with_parquet_file_reader_factory(Arc::new(StoredReaders))
            .with_pushdown_filters(is_late);
        let file_groups = match &self.groups {
            Some(groups) if !groups.is_sorted_by(|a, b| a.last_ts <= b.first_ts) => {
                self.file_groups(groups, state.config().target_partitions())
            }
            _ => vec![FileGroup::new(vec![self.file.clone()]).with_statistics(Arc::clone(&self.statistics))],
        };
        let builder = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(file_groups)
            .with_statistics(self.statistics.as_ref().clone())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_output_ordering(self.ordering()?);
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
        for (columns, kind, is_late) in
            [("dur", "off_cpu", false), ("*", "off_cpu", true), ("dur", "mark", true), ("dur", "call", false)]
        {
            let query = format!("EXPLAIN SELECT {columns} FROM events WHERE kind = '{kind}'");
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
