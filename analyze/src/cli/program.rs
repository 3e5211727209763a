//! The program: its global flags, its runtime and its exit code.

use std::{process::ExitCode, time::Duration};

use clap::{Command, CommandFactory, FromArgMatches, Parser};

use super::Verb;
use analyze_run::{error::AnalyzeError, progress};

const EXIT_CODES: &str = "Exit codes: 0 done; 2 wrong usage or bad input; 3 inconclusive; 5 reading or writing failed; \
70 internal error.";

/// Turn recorded runs into verdicts: what was slow, why, and what was not a factor.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Show no progress (it is shown on terminals only)
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    verb: Verb,
}

/// Adds the exit codes to the help of the command, and to that of every verb that has none of its own.
fn with_exit_codes(command: Command) -> Command {
    let help = match command.get_after_help().map(ToString::to_string) {
        Some(own) if own.contains("Exit codes:") => own,
        Some(own) => format!("{own}\n{EXIT_CODES}"),
        None => EXIT_CODES.to_owned(),
    };
    command.after_help(help).mut_subcommands(with_exit_codes)
}

/// Runs the command line; an error is printed, and its exit code returned.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("analyze: {error}");
            error.exit_code()
        }
    }
}

/// Parses the command line and runs the verb.
fn run() -> Result<(), AnalyzeError> {
    /// Time that background work gets to end, and to remove its files.
    const SHUTDOWN: Duration = Duration::from_secs(1);
    let matches = with_exit_codes(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    if !cli.quiet {
        progress::allow();
    }
    progress::begin();
    let result = runtime.block_on(cli.verb.run());
    progress::end();
    // A query that took too long may still be at work in the middle of a batch.
    runtime.shutdown_timeout(SHUTDOWN);
    result
}
