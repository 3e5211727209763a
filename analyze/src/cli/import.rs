//! `analyze import`.

use std::path::PathBuf;

use trace_schema::Bytes;

use super::print;
use crate::{error::AnalyzeError, import};

/// Turn another tool's trace into a run
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Args {
    /// What the file is [default: what its content says]
    #[arg(value_enum)]
    format: Option<import::Format>,
    /// The file to read; it is never written to
    file: PathBuf,
    /// The run to write
    #[arg(long, value_name = "RUN.parquet")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<(), AnalyzeError> {
        let finished = import::run(self.format, &self.file, &self.out, self.force)?;
        let size = Bytes(finished.size_bytes as i64);
        print(&format!("{} events, {size}: {}\n", finished.rows_count, self.out.display()))
    }
}
