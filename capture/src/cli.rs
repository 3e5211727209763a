//! Flags to library calls.

use std::{ffi::OsString, io::IsTerminal, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use trace_schema::{Bytes, Nanos};

use crate::{
    check,
    error::{CaptureError, EXIT_COMMAND_FAILED, EXIT_OK, EXIT_UNSUPPORTED},
    session::{self, Options, Subject},
};

const EXIT_CODES: &str = "Exit codes: 0 recorded; 1 recorded, but the command failed; 2 wrong usage or bad \
input; 4 this machine or user cannot trace (`capture check` says why); 5 reading or writing failed.";

/// Record a CUDA process into one Parquet file, with eBPF and without changing its code.
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    record: Record,
}

#[derive(Subcommand)]
enum Verb {
    /// Say what this machine can record, what it cannot, and how to fix that
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Record {
    /// The file to write
    #[arg(long, value_name = "RUN.parquet", required = true)]
    out: Option<PathBuf>,
    /// Trace a running process and its children (repeatable)
    #[arg(long, value_name = "PID", conflicts_with = "command", required_unless_present = "command")]
    pid: Vec<u32>,
    /// Stop after this time, such as 90s or 2min
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
    /// Memory for events on their way out of the kernel: a power of two of at least 64KiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = buffer_size)]
    buffer: Bytes,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    /// The command to run and trace, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn buffer_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: trace_schema::UnitError| error.to_string())?;
    match u32::try_from(size.0) {
        Ok(bytes) if bytes.is_power_of_two() && bytes >= 64 << 10 => Ok(size),
        _ => Err("must be a power of two from 64KiB to 2GiB".to_owned()),
    }
}

/// Parses the command line and runs what it asks for.
pub(crate) fn run() -> Result<ExitCode, CaptureError> {
    let cli = Cli::parse();
    if let Some(Verb::Check { json }) = cli.verb {
        let report = check::run();
        print!("{}", if json { report.to_json() } else { report.to_text() });
        return Ok(ExitCode::from(if report.can_record() { EXIT_OK } else { EXIT_UNSUPPORTED }));
    }
    let record = cli.record;
    let subject = if record.command.is_empty() {
        Subject::Processes(record.pid)
    } else {
        Subject::Command(record.command)
    };
    let outcome = session::record(Options {
        // clap requires it for every form but `check`.
        out: record.out.unwrap_or_default(),
        subject,
        duration: record.duration,
        force: record.force,
        buffer_bytes: record.buffer.0 as u32,
        progress: !record.quiet && std::io::stderr().is_terminal(),
    })?;
    eprintln!("{outcome}");
    Ok(ExitCode::from(if outcome.command_failed() { EXIT_COMMAND_FAILED } else { EXIT_OK }))
}
