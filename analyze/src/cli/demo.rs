//! `analyze demo`.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use trace_writer::{Access, NewFile};

use super::{answer, create_folder, write};
use crate::{
    demo::{SCENARIOS, Scenario},
    questions::findings,
    report::{self, Report, answer::demo as document},
    trace::Trace,
};
use analyze_run::{error::AnalyzeError, new_file};

/// Open a bundled recording of a known problem: what is wrong with it, what to look for, and how to go on
///
/// Without a scenario, list all. The recording is written into a folder, so that every other command can be tried on it.
/// A GPU is not needed, nor anything else that was not installed with this program.
#[derive(clap::Args)]
#[command(after_help = "Examples: analyze demo; analyze demo hog; analyze demo leak --html")]
pub(super) struct Args {
    /// The scenario [default: list all]
    scenario: Option<String>,
    /// Folder for the recording, and for the page of --html; it is created if it is missing
    #[arg(long, value_name = "DIR", default_value = "inquest-demo")]
    out: PathBuf,
    /// Write the report as one HTML page, too
    #[arg(long)]
    html: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Replace files that exist; a recording that is there already as it is needs no replacing
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let Some(name) = &self.scenario else {
            return answer(self.json, &SCENARIOS, |scenarios| document::list(scenarios));
        };
        let scenario = Scenario::find(name).ok_or_else(|| {
            let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            AnalyzeError::Query(format!("there is no scenario {name:?}; there are {}", names.join(", ")))
        })?;
        let run = self.out.join(format!("{}.parquet", scenario.name));
        let page = self.html.then(|| run.with_extension("html"));
        create_folder(&self.out).map_err(|source| AnalyzeError::Io { path: self.out.clone(), source })?;
        if let Some(page) = &page {
            new_file::check(page, self.force, [])?;
        }
        keep(&run, scenario.recording, self.force)?;
        let trace = Trace::open_one(&run).await?;
        let found = findings::run(&trace).await?;
        if let Some(page) = &page {
            let report = Report::of(&trace).await?;
            write(page, &report::page(&report.document(), &report.json()?)?, self.force)?;
        }
        let opened = document::Opened {
            scenario,
            run: run.display().to_string(),
            page: page.map(|page| page.display().to_string()),
            next: scenario.commands(&run),
            findings: &found,
        };
        answer(self.json, &opened, document::opened)
    }
}

/// Writes a recording, unless it is there already.
fn keep(run: &Path, recording: &[u8], force: bool) -> Result<(), AnalyzeError> {
    let is_long = |file: &fs::Metadata| file.is_file() && file.len() == recording.len() as u64;
    let is_there = fs::metadata(run).is_ok_and(|file| is_long(&file))
        && fs::read(run).is_ok_and(|found| found == recording);
    if is_there {
        return Ok(());
    }
    let new = NewFile::create(run, force, Access::Owner)?;
    let io = |source| AnalyzeError::Io { path: run.to_owned(), source };
    new.writer()?.write_all(recording).map_err(io)?;
    new.finish()?;
    Ok(())
}
