//! Runs one query over Parquet files, with the interval join or without it: for testdata/bench/interval_join.
//!
//! `interval_join ours|datafusion QUERY NAME=FILE…` prints the rows and the wall time as one line of JSON.

use std::time::Instant;

use analyze_engine::planner::interval_join;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::{
    error::{DataFusionError, Result},
    execution::session_state::SessionStateBuilder,
    prelude::{ParquetReadOptions, SessionContext},
};

#[tokio::main]
async fn main() -> Result<()> {
    let usage = || DataFusionError::Plan("interval_join ours|datafusion QUERY NAME=FILE…".to_owned());
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, query, tables @ ..] = words.as_slice() else { return Err(usage()) };
    let mut state = SessionStateBuilder::new_with_default_features();
    match mode.as_str() {
        "ours" => state = state.with_physical_optimizer_rules(interval_join::rules()),
        "datafusion" => (),
        _ => return Err(usage()),
    }
    let context = SessionContext::new_with_state(state.build());
    let start = Instant::now();
    for table in tables {
        let (name, file) = table.split_once('=').ok_or_else(usage)?;
        context.register_parquet(name, file, ParquetReadOptions::default()).await?;
    }
    let batches = context.sql(query).await?.collect().await?;
    let wall = start.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    for batch in &batches {
        let options = FormatOptions::default();
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            rows.push(columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>());
        }
    }
    println!("{}", serde_json::json!({ "rows": rows, "wall_s": wall }));
    Ok(())
}
