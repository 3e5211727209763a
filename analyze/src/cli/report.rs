//! `analyze report`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use trace_schema::Bytes;

use super::{create_folder, print, show, stem, write, write_all};
use crate::{
    report::{self, Block, Document, Report},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::new_file;

/// Report what was slow, why, what was not a factor, and where the memory was
///
/// With two runs (or directories, patterns, baselines) the report is that of `analyze compare` with its default gates. Unlike
/// `analyze compare` it exits with 0 if a gate fails.
///
/// Without a flag the report is printed as wide as the terminal is, or in 80 columns if standard output is no terminal. It has
/// colours on a terminal, unless NO_COLOR is set.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run, or the base of a comparison
    run: PathBuf,
    /// The run, or set of runs, that is compared with the base
    new: Option<PathBuf>,
    /// Write one self-contained HTML page [without a name: RUN.html in the current directory]
    #[arg(long, value_name = "FILE.html", num_args = 0..=1)]
    html: Option<Option<PathBuf>>,
    /// Write every figure as an SVG file into a directory [without a name: RUN-svg in the current directory]
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    svg: Option<Option<PathBuf>>,
    /// Print the data behind the report as JSON
    #[arg(long)]
    json: bool,
    /// Print Markdown, as for a CI job's summary
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Returns the path that an option names, or that of a run's name with this ending.
    fn path(&self, option: &Option<Option<PathBuf>>, ending: &str) -> Option<PathBuf> {
        let name = || match &self.new {
            Some(new) => format!("{}-vs-{}{ending}", stem(&self.run), stem(new)),
            None => format!("{}{ending}", stem(&self.run)),
        };
        option.as_ref().map(|path| path.clone().unwrap_or_else(|| name().into()))
    }

    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let html = self.path(&self.html, ".html");
        let svg = self.path(&self.svg, "-svg");
        // What cannot be written is said before the work, not after it.
        if let Some(html) = &html {
            new_file::check(html, self.force, [&self.run].into_iter().chain(&self.new))?;
        }
        if let Some(folder) = svg.as_ref().filter(|folder| folder.exists()) {
            new_file::check(&folder.join("figure.svg"), true, [])?;
        }
        let (document, json) = match &self.new {
            Some(new) => self.comparison(new).await?,
            None => self.single(html.as_deref()).await?,
        };
        if let Some(html) = &html {
            let page = report::page(&document, &json)?;
            write(html, &page, self.force)?;
            // Standard output may be the data's.
            if !self.json && !self.markdown {
                print(&format!("{}: {}\n", html.display(), Bytes(page.len() as i64)))?;
            }
        }
        if let Some(folder) = &svg {
            let count = self.figures(&document, folder)?;
            // A directory that the user named needs no mention.
            if self.svg == Some(None) && !self.json && !self.markdown {
                print(&format!("{}: {count} figures\n", folder.display()))?;
            }
        }
        if self.json {
            return print(&(json + "\n"));
        }
        if self.markdown {
            return print(&report::markdown(&document));
        }
        if html.is_some() || svg.is_some() {
            return Ok(());
        }
        show(&document)
    }

    /// Analyses one run into the report and its data as JSON.
    async fn single(&self, html: Option<&Path>) -> Result<(Document, String), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        if let Some(html) = html {
            new_file::check(html, self.force, trace.files().iter().flat_map(|file| &file.paths))?;
        }
        let report = Report::of(&trace).await?;
        let json = report.json()?;
        Ok((report.document(), json))
    }

    /// Compares two sides into the report and its data as JSON.
    async fn comparison(&self, new: &Path) -> Result<(Document, String), AnalyzeError> {
        let comparison = super::compare::usual(self.run.clone(), new.to_owned()).await?;
        Ok((report::comparison(&comparison), comparison.json()?))
    }

    /// Writes every figure into a file of its own, and returns their number.
    fn figures(&self, document: &Document, folder: &Path) -> Result<usize, AnalyzeError> {
        let is_new = !folder.exists();
        create_folder(folder).map_err(|source| AnalyzeError::Io { path: folder.to_owned(), source })?;
        let mut files: Vec<(PathBuf, &str)> = Vec::new();
        for section in &document.sections {
            for block in &section.blocks {
                let figures = match block {
                    Block::Figure(figure) => vec![figure],
                    Block::Calls(calls) => calls.iter().filter_map(|call| call.chain.as_ref()).collect(),
                    _ => Vec::new(),
                };
                let path = |name: &str| folder.join(format!("{name}.svg"));
                files.extend(figures.iter().map(|figure| (path(&figure.name), figure.svg.as_str())));
            }
        }
        let count = files.len();
        write_all(files, self.force).inspect_err(|_| {
            if is_new {
                // One that has figures in it is not removed.
                let _ = fs::remove_dir(folder);
            }
        })?;
        Ok(count)
    }
}
