//! `analyze report`.

use std::path::{Path, PathBuf};

use trace_schema::Bytes;

use super::{print, show, write};
use crate::{
    report::{self, Block, Document, Report},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::new_file;

/// What was slow, why, who is innocent, where the memory is; as a page, figures, data, or here
///
/// With two runs (or directories, patterns, baselines) it is the report of their comparison: `analyze compare` with the usual
/// gates, but for its exit code.
///
/// Without a flag the report is printed for a terminal of 80 columns, in colour if it is one and NO_COLOR is not set.
#[derive(clap::Args)]
pub struct Args {
    /// The run, or the base of a comparison
    run: PathBuf,
    /// What is compared with it
    new: Option<PathBuf>,
    /// Write one self-contained HTML page
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Write every figure as SVG into this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Print the data behind the report as JSON
    #[arg(long)]
    json: bool,
    /// Print Markdown, as for a CI job's summary
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Replace what exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        // What cannot be written is said before the work, not after it.
        if let Some(html) = self.html.as_ref().filter(|html| html.exists() && !self.force) {
            return Err(AnalyzeError::Exists(html.clone()));
        }
        let (document, json) = match &self.new {
            Some(new) => self.comparison(new).await?,
            None => self.single().await?,
        };
        if let Some(html) = &self.html {
            let page = report::page(&document, &json)?;
            write(html, &page, self.force)?;
            // Standard output may be the data's.
            if !self.json && !self.markdown {
                print(&format!("{}: {}\n", html.display(), Bytes(page.len() as i64)))?;
            }
        }
        if let Some(folder) = &self.svg {
            self.figures(&document, folder)?;
        }
        if self.json {
            return print(&(json + "\n"));
        }
        if self.markdown {
            return print(&report::markdown(&document));
        }
        if self.html.is_some() || self.svg.is_some() {
            return Ok(());
        }
        show(&document)
    }

    /// Of one run: what is shown, and the data.
    async fn single(&self) -> Result<(Document, String), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        for path in trace.files().iter().flat_map(|file| &file.paths) {
            self.html.iter().try_for_each(|html| new_file::differs(html, [path]))?;
        }
        let report = Report::of(&trace).await?;
        let json = report.json()?;
        Ok((report.document(), json))
    }

    /// Of two sides.
    async fn comparison(&self, new: &Path) -> Result<(Document, String), AnalyzeError> {
        let (base, new) = (self.run.clone(), new.to_owned());
        self.html.iter().try_for_each(|html| new_file::differs(html, [&base, &new]))?;
        let comparison = super::compare::usual(base, new).await?;
        Ok((report::comparison(&comparison), comparison.json()?))
    }

    fn figures(&self, document: &Document, folder: &Path) -> Result<(), AnalyzeError> {
        std::fs::create_dir_all(folder)
            .map_err(|source| AnalyzeError::Io { path: folder.to_owned(), source })?;
        for section in &document.sections {
            for block in &section.blocks {
                let figures = match block {
                    Block::Figure(figure) => vec![figure],
                    Block::Calls(calls) => calls.iter().filter_map(|call| call.chain.as_ref()).collect(),
                    _ => Vec::new(),
                };
                for figure in figures {
                    write(&folder.join(format!("{}.svg", figure.name)), &figure.svg, self.force)?;
                }
            }
        }
        Ok(())
    }
}
