//! The results as tables: `_leaks` (one row per allocator), `_leak_sites` and `_memory_epochs`.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array,
        UInt64Array,
    },
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::tables::TableDef;
use analyze_engine::derived_table::{Output, blocking};
use analyze_memory::leaks::{
    account::Suspect,
    growth::{self, Growth, Params, Point},
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use trace_schema::Kind;

/// The columns that every table begins with; they identify the allocator.
const ALLOCATOR: [(&str, DataType); 3] =
    [("run", DataType::Utf8), ("pid", DataType::UInt32), ("device", DataType::Int32)];

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = ALLOCATOR.iter().chain(columns).map(|(name, ty)| Field::new(*name, ty.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Builds a batch with one row per element, each with the allocator that it belongs to.
fn batch(
    schema: SchemaRef,
    allocators: &[&Growth],
    columns: Vec<ArrayRef>,
) -> Result<RecordBatch, AnalyzeError> {
    let mut all: Vec<ArrayRef> = vec![
        Arc::new(allocators.iter().map(|of| Some(of.run.as_str())).collect::<StringArray>()),
        Arc::new(allocators.iter().map(|of| of.pid).collect::<UInt32Array>()),
        Arc::new(allocators.iter().map(|of| of.device).collect::<Int32Array>()),
    ];
    all.extend(columns);
    RecordBatch::try_new(schema, all).map_err(|error| AnalyzeError::Internal(error.to_string()))
}

async fn answers(source: &Source) -> Result<Vec<Growth>, AnalyzeError> {
    growth::run(source.events(), source.files(), &Params::default()).await
}

/// The table.
pub const LEAKS: TableDef = TableDef {
    name: "_leaks",
    needs: &[Kind::Alloc],
    schema: leaks_schema,
    make: |source, output| Box::pin(fill_leaks(source, output)),
};

/// The table.
pub const SITES: TableDef = TableDef {
    name: "_leak_sites",
    needs: &[Kind::Alloc],
    schema: sites_schema,
    make: |source, output| Box::pin(fill_sites(source, output)),
};

/// The table.
pub const EPOCHS: TableDef = TableDef {
    name: "_memory_epochs",
    needs: &[Kind::Alloc],
    schema: epochs_schema,
    make: |source, output| Box::pin(fill_epochs(source, output)),
};

/// Returns the schema of `_leaks`.
pub fn leaks_schema() -> SchemaRef {
    schema(&[
        ("verdict", DataType::Utf8),
        ("reason", DataType::Utf8),
        ("epochs", DataType::Utf8),
        ("epochs_count", DataType::Int64),
        ("warm_up_count", DataType::Int64),
        ("before_bytes", DataType::Int64),
        ("given_back_bytes", DataType::Int64),
        ("leaked_bytes", DataType::Int64),
        ("kept_once_bytes", DataType::Int64),
        ("young_bytes", DataType::Int64),
        ("after_bytes", DataType::Int64),
    ])
}

/// Fills `_leaks`, one row per allocator.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill_leaks(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let answers = answers(&source).await?;
    blocking(move || {
        let rows: Vec<&Growth> = answers.iter().collect();
        let bytes = |get: fn(&Growth) -> i64| -> ArrayRef {
            Arc::new(rows.iter().map(|growth| get(growth)).collect::<Int64Array>())
        };
        let text = |get: fn(&Growth) -> Option<String>| -> ArrayRef {
            Arc::new(rows.iter().map(|growth| get(growth)).collect::<StringArray>())
        };
        let columns = vec![
            text(|growth| Some(growth.verdict.name().to_owned())),
            text(|growth| (!growth.reasons.is_empty()).then(|| growth.reasons.join("; "))),
            text(|growth| Some(growth.epochs.label())),
            bytes(|growth| growth.epochs_count as i64),
            bytes(|growth| growth.warm_up_count as i64),
            bytes(|growth| growth.account.before_bytes),
            bytes(|growth| growth.account.given_back_bytes),
            bytes(|growth| growth.account.leaked_bytes),
            bytes(|growth| growth.account.kept_once_bytes),
            bytes(|growth| growth.account.young_bytes),
            bytes(|growth| growth.account.after_bytes),
        ];
        output.send(&batch(leaks_schema(), &rows, columns)?)
    })
    .await
}

/// Returns the schema of `_leak_sites`.
pub fn sites_schema() -> SchemaRef {
    schema(&[
        ("is_leak", DataType::Boolean),
        ("frames", DataType::Utf8),
        ("tid", DataType::UInt32),
        ("stream", DataType::UInt64),
        ("blocks_count", DataType::Int64),
        ("blocks_bytes", DataType::Int64),
        ("smallest_bytes", DataType::Int64),
        ("largest_bytes", DataType::Int64),
        ("epoch_bytes", DataType::Float64),
        ("share_ratio", DataType::Float64),
        ("epochs_count", DataType::Int64),
        ("possible_epochs_count", DataType::Int64),
        ("first_epoch", DataType::Int64),
        ("last_epoch", DataType::Int64),
        ("horizon_epochs_count", DataType::Int64),
        ("freed_count", DataType::Int64),
        ("young_count", DataType::Int64),
        ("young_bytes", DataType::Int64),
        ("trend_bytes", DataType::Float64),
        ("trend_low_bytes", DataType::Float64),
        ("trend_high_bytes", DataType::Float64),
        ("addr", DataType::UInt64),
        ("alloc_ts", DataType::Int64),
    ])
}

/// Fills `_leak_sites`, one row per site with old blocks.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill_sites(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let answers = answers(&source).await?;
    blocking(move || {
        let of_sites = |growth| -> Vec<(&Growth, &Suspect)> {
            let growth: &Growth = growth;
            growth.sites.iter().map(|site| (growth, site)).collect()
        };
        let (allocators, sites): (Vec<&Growth>, Vec<&Suspect>) = answers.iter().flat_map(of_sites).unzip();
        let whole = |get: fn(&Suspect) -> Option<i64>| -> ArrayRef {
            Arc::new(sites.iter().map(|site| get(site)).collect::<Int64Array>())
        };
        let float = |get: fn(&Suspect) -> Option<f64>| -> ArrayRef {
            Arc::new(sites.iter().map(|site| get(site)).collect::<Float64Array>())
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(sites.iter().map(|site| Some(site.is_leak)).collect::<BooleanArray>()),
            Arc::new(sites.iter().map(|site| site.frames.as_deref()).collect::<StringArray>()),
            Arc::new(sites.iter().map(|site| site.tid).collect::<UInt32Array>()),
            Arc::new(sites.iter().map(|site| site.stream.filter(|id| *id != 0)).collect::<UInt64Array>()),
            whole(|site| Some(site.blocks_count as i64)),
            whole(|site| Some(site.blocks_bytes)),
            whole(|site| Some(site.smallest_bytes as i64)),
            whole(|site| Some(site.largest_bytes as i64)),
            float(|site| Some(site.bytes_per_epoch)),
            float(|site| Some(site.share_ratio)),
            whole(|site| Some(site.generations_count as i64)),
            whole(|site| Some(site.possible_count as i64)),
            whole(|site| Some(site.first_epoch as i64)),
            whole(|site| Some(site.last_epoch as i64)),
            whole(|site| Some(site.horizon_epochs as i64)),
            whole(|site| Some(site.freed_count as i64)),
            whole(|site| Some(site.young_count as i64)),
            whole(|site| Some(site.young_bytes)),
            float(|site| site.trend.map(|trend| trend.bytes_per_epoch)),
            float(|site| site.trend.map(|trend| trend.low_bytes_per_epoch)),
            float(|site| site.trend.map(|trend| trend.high_bytes_per_epoch)),
            Arc::new(
                sites
                    .iter()
                    .map(|site| site.examples.first().map(|block| block.addr))
                    .collect::<UInt64Array>(),
            ),
            whole(|site| site.examples.first().map(|block| block.alloc_ts_ns)),
        ];
        output.send(&batch(sites_schema(), &allocators, columns)?)
    })
    .await
}

/// Returns the schema of `_memory_epochs`.
pub fn epochs_schema() -> SchemaRef {
    schema(&[
        ("epoch", DataType::Int64),
        ("ts", DataType::Int64),
        ("is_warm_up", DataType::Boolean),
        ("live_bytes", DataType::Int64),
        ("pending_bytes", DataType::Int64),
        ("reserved_bytes", DataType::Int64),
        ("releasable_bytes", DataType::Int64),
        ("pinned_bytes", DataType::Int64),
        ("unknown_bytes", DataType::Int64),
        ("survived_count", DataType::Int64),
        ("survived_bytes", DataType::Int64),
    ])
}

/// Fills `_memory_epochs`, one row per epoch bound of every allocator.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill_epochs(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let answers = answers(&source).await?;
    blocking(move || {
        let mut allocators = Vec::new();
        let mut points = Vec::new();
        for growth in &answers {
            allocators.extend(growth.points.iter().map(|_| growth));
            points.extend(growth.points.iter().enumerate());
        }
        let whole = |get: fn(&Point) -> i64| -> ArrayRef {
            Arc::new(points.iter().map(|(_, point)| get(point)).collect::<Int64Array>())
        };
        let is_warm_up = allocators.iter().zip(&points).map(|(of, (epoch, _))| *epoch <= of.warm_up_count);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(points.iter().map(|(epoch, _)| *epoch as i64).collect::<Int64Array>()),
            whole(|point| point.ts_ns),
            Arc::new(is_warm_up.map(Some).collect::<BooleanArray>()),
            whole(|point| point.live_bytes),
            whole(|point| point.pending_bytes),
            whole(|point| point.reserved_bytes),
            whole(|point| point.releasable_bytes),
            whole(|point| point.pinned_bytes),
            whole(|point| point.unknown_bytes),
            whole(|point| point.survived_count as i64),
            whole(|point| point.survived_bytes),
        ];
        output.send(&batch(epochs_schema(), &allocators, columns)?)
    })
    .await
}
