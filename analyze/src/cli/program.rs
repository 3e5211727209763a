//! The program: its global flags, its runtime and its exit code.

use std::{
    ffi::OsString,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::{Command, CommandFactory, FromArgMatches, Parser};
use futures::FutureExt;
use trace_schema::Bytes;

use super::Verb;
use analyze_run::{error::AnalyzeError, memory_budget, panics, progress};

const EXIT_CODES: &str = "Exit codes: 0 done; 2 wrong usage or bad input; 3 inconclusive; 5 reading or writing failed; \
70 internal error.";

/// Turn recorded runs into verdicts: what was slow, why, and what was not a factor.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Show no progress (it is shown on terminals only)
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Memory that the command may take, such as 4GiB; queries spill to disk before they exceed it, anything else ends with
    /// exit code 2 [default: half of what the machine or its control group has]
    #[arg(long, global = true, value_name = "SIZE")]
    memory_limit: Option<Bytes>,
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

/// Returns the definition of the command line, with the exit codes in its help; manual pages and completions are made from it.
#[must_use]
pub fn command() -> Command {
    with_exit_codes(Cli::command())
}

/// Runs the command line; an error is printed, and its exit code returned.
pub fn main() -> ExitCode {
    panics::silence();
    let result = panic::catch_unwind(run).unwrap_or_else(|panic| Err(panics::internal(panic.as_ref())));
    let Err(error) = result else { return ExitCode::SUCCESS };
    progress::end();
    // The thread that watches the memory may be reporting this error already.
    if !matches!(error, AnalyzeError::MemoryBudget { .. }) || memory_budget::is_first_report() {
        progress::say(&format!("analyze: {error}"));
    }
    error.exit_code()
}

/// Ends the program if the command line is wrong, or asks for help. What is wrong is quoted from the command line.
fn refuse(error: &clap::Error) -> ! {
    if error.use_stderr() {
        progress::say(error.render().to_string().trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Returns the arguments of the command line. A run in the place of the verb stands for the findings of that run.
fn arguments(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    // The name of the program, then flags, of which one has a value of its own.
    let has_value = |flag: &OsString| flag == "--memory-limit";
    let mut place = 1;
    while let Some(argument) =
        arguments.get(place).filter(|argument| argument.as_encoded_bytes().starts_with(b"-"))
    {
        place += if has_value(argument) { 2 } else { 1 };
    }
    let is_run = |argument: &OsString| {
        let is_verb = argument == "help" || command.get_subcommands().any(|verb| verb.get_name() == argument);
        let text = argument.to_string_lossy();
        let path = Path::new(argument);
        !is_verb
            && (path.exists()
                || text.contains(['/', '*'])
                || path.extension().is_some_and(|ending| ending == "parquet"))
    };
    if arguments.get(place).is_some_and(is_run) {
        arguments.insert(place, "findings".into());
    }
    arguments
}

/// Parses the command line and runs the verb.
fn run() -> Result<(), AnalyzeError> {
    /// Time that background work gets to end, and to remove its files.
    const SHUTDOWN: Duration = Duration::from_secs(1);
    let command = command();
    let given = arguments(&command, std::env::args_os());
    let matches = command.try_get_matches_from(given).unwrap_or_else(|error| refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    if !cli.quiet {
        progress::allow();
    }
    if let Some(Bytes(bytes)) = cli.memory_limit {
        memory_budget::set(usize::try_from(bytes).unwrap_or_default());
    }
    progress::begin();
    let exceeded = memory_budget::watch();
    let work = AssertUnwindSafe(cli.verb.run()).catch_unwind();
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            result = work => result.unwrap_or_else(|panic| Err(panics::internal(panic.as_ref()))),
            Ok(()) = exceeded => Err(memory_budget::exceeded("")),
        }
    });
    progress::end();
    // A query that took too long may still be at work in the middle of a batch.
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_run_in_the_place_of_the_verb_stands_for_its_findings() {
        let command = Cli::command();
        let made = |given: &[&str]| -> Vec<String> {
            let given = given.iter().map(OsString::from);
            let all = arguments(&command, given).into_iter();
            all.map(|argument| argument.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(
            made(&["analyze", "run.parquet", "--json"]),
            ["analyze", "findings", "run.parquet", "--json"]
        );
        assert_eq!(
            made(&["analyze", "-q", "--memory-limit", "1GiB", "runs/*.parquet"]),
            ["analyze", "-q", "--memory-limit", "1GiB", "findings", "runs/*.parquet"]
        );
        assert_eq!(made(&["analyze", "chains", "run.parquet"]), ["analyze", "chains", "run.parquet"]);
        assert_eq!(made(&["analyze", "chans", "run.parquet"]), ["analyze", "chans", "run.parquet"]);
        assert_eq!(made(&["analyze", "help"]), ["analyze", "help"]);
        assert_eq!(made(&["analyze"]), ["analyze"]);
    }

    /// What stands between the part of analyze/README.md that is written by hand and the generated one.
    const MARKER: &str =
        "<!-- Generated by analyze/src/cli/program.rs (BLESS=1 cargo nextest run); do not edit below. -->";

    #[test]
    fn the_reference_in_the_readme_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let page = fs::read_to_string(&path).expect("analyze/README.md");
        let written = page.split(MARKER).next().unwrap_or_default();
        let options = clap_markdown::MarkdownOptions::new()
            .title("Reference".to_owned())
            .show_footer(false)
            .show_table_of_contents(false);
        let reference = clap_markdown::help_markdown_command_custom(&command(), &options);
        // The page has a title of its own.
        let reference = reference.replace("\n#", "\n##").replacen("# Reference", "## Reference", 1);
        let reference = reference.replace("\n####### ", "\n");
        let expected = format!("{written}{MARKER}\n\n{}\n", reference.trim());
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &expected).expect("written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "analyze/README.md is not current: BLESS=1 writes it");
    }
}
