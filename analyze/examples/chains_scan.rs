//! DataFusion's scan of the columns that `analyze chains` reads, as a measure: for testdata/bench/chains.
//!
//! `chains_scan RUN` sums numbers and counts strings, with the settings of `analyze`'s own session, and prints the wall
//! time of the query as JSON.

use std::time::Instant;

use datafusion::{
    error::{DataFusionError, Result},
    prelude::{ParquetReadOptions, SessionConfig, SessionContext},
};
use trace_schema::{COLUMNS, ColumnType, arrow_schema};

use analyze_run::reading::columns;

#[tokio::main]
async fn main() -> Result<()> {
    let run = std::env::args().nth(1).ok_or_else(|| DataFusionError::Plan("chains_scan RUN".to_owned()))?;
    let mut config = SessionConfig::new();
    config.options_mut().execution.parquet.schema_force_view_types = false;
    let context = SessionContext::new_with_config(config);
    let schema = arrow_schema();
    let options = ParquetReadOptions { file_extension: "", schema: Some(&schema), ..Default::default() };
    context.register_parquet("events", run, options).await?;
    let is_read = |name| columns::KEY_COLUMNS.contains(&name) || columns::TASK_COLUMNS.contains(&name);
    let columns = COLUMNS.iter().filter(|column| is_read(column.name));
    let of_column = |column: &trace_schema::Column| match column.ty {
        ColumnType::Text => format!("count({})", column.name),
        // A sum of handles or times means nothing, and may not overflow either.
        _ => format!("sum(CAST({} AS DOUBLE))", column.name),
    };
    let columns: Vec<String> = columns.map(of_column).collect();
    let start = Instant::now();
    let batches = context.sql(&format!("SELECT {} FROM events", columns.join(", "))).await?.collect().await?;
    let columns_count = batches.first().map_or(0, |batch| batch.num_columns());
    println!("{}", serde_json::json!({ "columns": columns_count, "wall_s": start.elapsed().as_secs_f64() }));
    Ok(())
}
