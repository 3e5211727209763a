//! `analyze slice`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::print;
use crate::{
    rewrite::slice::{self, Params},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Write a part of a run: a span of its time, or one of its processes
#[derive(clap::Args)]
#[command(
    after_help = "A row belongs to the span in which it begins. The new run records what was left out: see `analyze info`."
)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Start of the span, as time since recording began (1.5s)
    #[arg(long, value_name = "TIME")]
    from: Option<Nanos>,
    /// End of the span; rows that begin at or after it are left out
    #[arg(long, value_name = "TIME")]
    to: Option<Nanos>,
    /// Keep this process, the tasks that ran on its CPUs, and the readings of devices
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
