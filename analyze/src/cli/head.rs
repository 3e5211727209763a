//! `analyze head`.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::print;
use crate::{
    output::{Format, Sink},
    questions::head,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Print the first rows of a run, with the columns that have values in them
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Number of rows
    #[arg(short, value_name = "N", default_value_t = 10)]
    number: u32,
    /// Only rows of this kind (call, off_cpu, alloc, …)
    #[arg(long, value_parser = head::kind)]
    kind: Option<trace_schema::Kind>,
    /// Format of the rows
    #[arg(long, value_parser = text_format(), default_value = "table")]
    format: Format,
}

/// Returns the parser of a format of text; Arrow and Parquet are none.
fn text_format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["table", "csv", "json", "ndjson"])
        .try_map(|name| <Format as clap::ValueEnum>::from_str(&name, false))
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let batch = head::run(&trace, self.number, self.kind).await?;
        let mut text = Vec::new();
        let path = Path::new("standard output");
        let mut sink = Sink::new(self.format, batch.schema(), &mut text, path)?;
        sink.write(&batch, path)?;
        sink.finish(path)?;
        print(&String::from_utf8_lossy(&text))
    }
}
