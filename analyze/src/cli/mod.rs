//! Flags to library calls; a verb never computes. One file a verb.

mod alerts;
mod align;
mod baseline;
mod chains;
mod compare;
mod export;
mod head;
mod import;
mod info;
mod leaks;
mod memory;
mod merge;
mod oom;
mod queries;
mod recover;
mod releases;
mod report;
mod shell;
mod slice;
mod sql;
mod summary;
mod trend;
mod verify;
mod what_if;

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::report::{Document, terminal};
use analyze_run::new_file;
use analyze_run::{error::AnalyzeError, progress};

const EXIT_CODES: &str = "Exit codes: 0 done; 2 wrong usage or bad input; 3 inconclusive; 5 reading or writing failed; \
70 a defect of this program.";

/// Turn recorded runs into verdicts: what was slow, why, and who is innocent.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Show no progress (it is shown on terminals only)
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Info(info::Args),
    Summary(summary::Args),
    Chains(chains::Args),
    Memory(memory::Args),
    Releases(releases::Args),
    Oom(oom::Args),
    Leaks(leaks::Args),
    Alerts(alerts::Args),
    WhatIf(what_if::Args),
    Sql(sql::Args),
    Queries(queries::Args),
    Report(report::Args),
    Compare(compare::Args),
    Baseline(baseline::Args),
    Trend(trend::Args),
    Export(export::Args),
    Head(head::Args),
    Verify(verify::Args),
    Slice(slice::Args),
    Merge(merge::Args),
    Import(import::Args),
    Align(align::Args),
    Recover(recover::Args),
}

/// The command with exit codes in its help, and in that of every verb that has none of its own.
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
    /// What is still at work then may take to end, and to remove its files.
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
    let result = runtime.block_on(async {
        match cli.verb {
            Verb::Info(args) => args.run().await,
            Verb::Summary(args) => args.run().await,
            Verb::Chains(args) => args.run().await,
            Verb::Memory(args) => args.run().await,
            Verb::Releases(args) => args.run().await,
            Verb::Oom(args) => args.run().await,
            Verb::Leaks(args) => args.run().await,
            Verb::Alerts(args) => args.run().await,
            Verb::WhatIf(args) => args.run().await,
            Verb::Sql(args) => args.run().await,
            Verb::Queries(args) => args.run().await,
            Verb::Report(args) => args.run().await,
            Verb::Compare(args) => args.run().await,
            Verb::Baseline(args) => args.run().await,
            Verb::Trend(args) => args.run().await,
            Verb::Export(args) => args.run().await,
            Verb::Head(args) => args.run().await,
            Verb::Verify(args) => args.run().await,
            Verb::Slice(args) => args.run().await,
            Verb::Merge(args) => args.run().await,
            Verb::Import(args) => args.run(),
            Verb::Align(args) => args.run().await,
            Verb::Recover(args) => args.run(),
        }
    });
    progress::end();
    // A query that took too long may still be at work in the middle of a batch.
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

/// Prints to standard output; a reader that closed it early is no error.
fn print(text: &str) -> Result<(), AnalyzeError> {
    progress::end();
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(AnalyzeError::Io { path: "standard output".into(), source }),
        Ok(()) => Ok(()),
    }
}

/// Writes a text into a file of its own.
fn write(path: &Path, text: &str, force: bool) -> Result<(), AnalyzeError> {
    new_file::create(path, force)?
        .write_all(text.as_bytes())
        .map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })
}

/// Prints a report for a terminal: in colour, if it is one and NO_COLOR is not set.
fn show(document: &Document) -> Result<(), AnalyzeError> {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    print(&terminal(document, is_wanted && std::io::stdout().is_terminal()))
}

/// Prints an analysis as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), AnalyzeError> {
    let json =
        serde_json::to_string_pretty(value).map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    print(&(json + "\n"))
}
