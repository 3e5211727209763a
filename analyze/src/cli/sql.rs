//! `analyze sql`.

use std::{io::IsTerminal, path::PathBuf};

use super::print;
use crate::{
    error::AnalyzeError,
    output::{self, Format},
    trace::Trace,
};

/// Query runs with SQL: the table `events`, and the views of queries/ (ops, op_time, off_cpu, …)
#[derive(clap::Args)]
#[command(after_help = "Example: analyze sql run.parquet 'SELECT op, count(*) FROM ops GROUP BY op'\n\
    With several runs, the column `run` tells them apart. Queries can only read.")]
pub(crate) struct Args {
    /// Runs, then the query (unless --file)
    #[arg(required = true, value_name = "RUN… QUERY")]
    words: Vec<String>,
    /// Read the query from a file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Format of the result [default: table on a terminal, csv elsewhere, parquet for --out *.parquet]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

impl Args {
    fn format(&self) -> Format {
        let to_parquet =
            self.out.as_ref().is_some_and(|path| path.extension().is_some_and(|e| e == "parquet"));
        self.format.unwrap_or(match (to_parquet, &self.out) {
            (true, _) => Format::Parquet,
            (false, None) if std::io::stdout().is_terminal() => Format::Table,
            (false, _) => Format::Csv,
        })
    }

    pub(crate) async fn run(self) -> Result<(), AnalyzeError> {
        let format = self.format();
        let (runs, query) = match &self.file {
            Some(path) => {
                let query = std::fs::read_to_string(path)
                    .map_err(|source| AnalyzeError::Io { path: path.clone(), source })?;
                (self.words.as_slice(), query)
            }
            None => match self.words.split_last() {
                Some((query, runs)) if !runs.is_empty() => (runs, query.clone()),
                _ => return Err(AnalyzeError::Query("give at least one run, then the query".to_owned())),
            },
        };
        let paths: Vec<PathBuf> = runs.iter().map(PathBuf::from).collect();
        let trace = Trace::open(&paths).await?;
        let frame = trace.sql(&query).await?;
        let schema = frame.schema().inner().clone();
        let mut batches = frame.collect().await?;
        if batches.is_empty() {
            batches.push(arrow::array::RecordBatch::new_empty(schema.clone()));
        }
        match (&self.out, format) {
            (Some(path), Format::Parquet) => {
                output::write_parquet(schema, &batches, output::create(path, self.force)?)
            }
            (Some(path), _) => output::write_text(format, &batches, output::create(path, self.force)?),
            (None, _) => {
                let mut text = Vec::new();
                output::write_text(format, &batches, &mut text)?;
                print(&String::from_utf8_lossy(&text))
            }
        }
    }
}
