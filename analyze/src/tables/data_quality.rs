//! `data_quality`: a table with one row per run and kind of contradiction that was found in its input.

use std::sync::Arc;

use arrow::{
    array::{Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::tables::TableDef;
use analyze_engine::derived_table::{Output, blocking};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use analyze_verdict::params::Params;

/// The table.
pub const TABLE: TableDef = TableDef {
    name: "_data_quality",
    needs: &[],
    schema: schema,
    make: |source, output| Box::pin(fill(source, output)),
};

/// Returns the schema of the table.
pub fn schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    Arc::new(Schema::new(vec![text("run"), text("problem"), Field::new("rows_count", DataType::Int64, true)]))
}

/// Sends the rows of the table to `output`.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let derived = source.get(Params::default()).await?;
    let work = move || {
        let runs = derived.faults.keys().map(|(run, _)| Some(derived.schedule.names.name(*run)));
        let problems = derived.faults.keys().map(|(_, fault)| Some(fault.name()));
        let batch = RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(runs.collect::<StringArray>()),
                Arc::new(problems.collect::<StringArray>()),
                Arc::new(derived.faults.values().map(|count| *count as i64).collect::<Int64Array>()),
            ],
        );
        output.send(&batch.map_err(|error| AnalyzeError::Internal(error.to_string()))?)
    };
    blocking(work).await
}
