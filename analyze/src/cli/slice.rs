//! `analyze slice`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::print;
use crate::{
    rewrite::slice::{self, Params},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Write a part of a run as a run: some time of it, a process of it
#[derive(clap::Args)]
#[command(
    after_help = "A row belongs where it begins. What was left out is said in the new run: see `analyze info`."
)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// From this time on, since recording began (1.5s)
    #[arg(long, value_name = "TIME")]
    from: Option<Nanos>,
    /// To before this time
    #[arg(long, value_name = "TIME")]
    to: Option<Nanos>,
    /// This process, who else had its CPUs, and readings of devices
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// The run to write
    #[arg(long, value_name = "NEW.parquet")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let params = Params { from: self.from, to: self.to, pid: self.pid };
        let finished = slice::run(&trace, params, &self.out, self.force).await?;
        let size = Bytes(finished.size_bytes as i64);
        print(&format!("{} events, {size}: {}\n", finished.rows_count, self.out.display()))
    }
}
