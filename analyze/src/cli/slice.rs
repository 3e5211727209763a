//! `analyze slice`.

use std::path::PathBuf;

use trace_schema::{Nanos, Redaction};

use super::{print, written};
use crate::{
    rewrite::slice::{self, Params},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Write a part of a run: a span of its time, one of its processes, or all but the secrets in its command lines
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
    /// What to take out of command lines: `secrets` (values of arguments and variables whose names are those of secrets, such as
    /// --password, and passwords in addresses), `all` (everything but the program's name), `text:TEXT` (what `secrets` takes
    /// out, and every argument that contains TEXT) or `off` [without a value: secrets]
    #[arg(long, value_name = "MODE", num_args = 0..=1, default_value = "off", default_missing_value = "secrets")]
    redact: Redaction,
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
        let params = Params { from: self.from, to: self.to, pid: self.pid, redaction: self.redact };
        let finished = slice::run(&trace, params, &self.out, self.force).await?;
        print(&written(&finished, &self.out))
    }
}
