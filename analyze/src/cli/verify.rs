//! `analyze verify`.

use std::path::PathBuf;

use super::{print, print_json};
use crate::{
    questions::verify::{self, Check},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// Check that a run is whole: schema, order, ranges, losses
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 the file is whole (it may say that events were lost); 2 it is broken, or no run; \
5 reading failed; 70 a defect of this program.\n\
quality_ratio = recorded / (recorded + lost) × (1 − rows that contradict others / rows); null if losses are not counted."
)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let check = verify::run(&trace).await?;
        if self.json {
            print_json(&check)?;
        } else {
            print(&text(&check))?;
        }
        match check.faults.len() {
            0 => Ok(()),
            count => Err(AnalyzeError::Broken { path: self.run, count }),
        }
    }
}

fn text(check: &Check) -> String {
    let mut text = format!("rows      {}\n", check.rows_count);
    for fault in &check.faults {
        text += &format!("broken    {}\n", fault.what);
    }
    for note in &check.contradictions {
        text += &format!("note      {}: {} rows\n", note.what, note.rows_count);
    }
    for note in &check.warnings {
        text += &format!("note      {note}\n");
    }
    text += &match check.quality_ratio {
        Some(ratio) => format!("quality   {ratio:.6}\n"),
        None => "quality   not known: this source does not count what it loses\n".to_owned(),
    };
    text::harmless(&text)
}
