//! `analyze head`.

use std::path::{Path, PathBuf};

use super::print;
use crate::{
    output::{Format, Sink},
    questions::head,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// The first rows of a run, with the columns that have values in them
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// How many rows
    #[arg(short, value_name = "N", default_value_t = 10)]
    number: u32,
    /// Rows of this kind only
    #[arg(long, value_parser = head::kind)]
    kind: Option<trace_schema::Kind>,
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        if self.format == Format::Parquet {
            return Err(AnalyzeError::Query(
                "head shows rows; `analyze sql --out` writes Parquet".to_owned(),
            ));
        }
        let trace = Trace::open_one(&self.run).await?;
        let batch = head::run(&trace, self.number, self.kind).await?;
        let mut text = Vec::new();
        let mut sink = Sink::new(self.format, batch.schema(), &mut text)?;
        let path = Path::new("standard output");
        sink.write(&batch, path)?;
        sink.finish(path)?;
        print(&String::from_utf8_lossy(&text))
    }
}
