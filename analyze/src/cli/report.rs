//! `analyze report`.

use std::{io::Write, path::PathBuf};

use trace_schema::Bytes;

use super::print;
use crate::{error::AnalyzeError, output, report, trace::Trace};

/// Write one self-contained HTML page: what was slow, why, who is innocent, where the memory is
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The run
    run: PathBuf,
    /// The page to write
    #[arg(long, value_name = "FILE.html")]
    html: PathBuf,
    /// Replace the page if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let page = report::html(&trace).await?;
        output::create(&self.html, self.force)?
            .write_all(page.as_bytes())
            .map_err(|source| AnalyzeError::Io { path: self.html.clone(), source })?;
        print(&format!("{}: {}\n", self.html.display(), Bytes(page.len() as i64)))
    }
}
