//! The command line: its definition, and the recording, check or measurement that it asks for.

use std::{ffi::OsString, io::IsTerminal, path::PathBuf, process::ExitCode};

use capture_wire::COMM_BYTES;
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use trace_schema::{Bytes, Nanos, Redaction};
use trace_writer::Parts;

use crate::{
    attach::Stacks,
    bench, check,
    demo::{self, Demo},
    error::{CaptureError, EXIT_CODES, EXIT_COMMAND_FAILED, EXIT_OK, EXIT_UNSUPPORTED, print, say},
    kernel::{Method, Setup},
    options::{Options, Subject},
    probes::{self, Profile, Without},
    session,
};

/// What follows the options in `--help`.
fn exit_codes() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!("\n  {code}  {meaning}"));
    format!("Exit codes:{}", codes.concat())
}

/// Record CUDA processes into one Parquet file, with eBPF and without changing their code.
///
/// `capture --out run.parquet` alone records every process of this machine that uses CUDA, until Ctrl-C. Name a
/// command, `--pid` or `--wait-for` to record less.
#[derive(Parser)]
#[command(version, after_help = exit_codes(), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    record: Record,
}

#[derive(Subcommand)]
enum Verb {
    /// Say what this machine can record, what it cannot, and how to fix that; exit code 0 if it can record, 4 if not
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Say, too, what a recorder keeps of its privileges while it records, by the way it is used
        #[arg(long)]
        sandbox: bool,
    },
    /// Measure what recording costs on this machine: per call, per event, and where events begin to be lost
    Bench {
        /// What to measure
        #[arg(value_enum, default_value_t = bench::Part::All)]
        part: bench::Part,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List every function that is probed, by library and profile
    Probes,
    Demo(Demo),
    /// Run a part of `capture demo`, which starts it
    #[command(hide = true)]
    DemoPart {
        #[command(subcommand)]
        part: demo::Part,
    },
}

#[derive(Args)]
#[command(group = ArgGroup::new("subject"))]
struct Record {
    /// The Parquet file to write
    #[arg(long, value_name = "RUN.parquet", required = true)]
    out: Option<PathBuf>,
    /// Trace a running process and the children that it will have (repeatable)
    #[arg(long, value_name = "PID", group = "subject")]
    pid: Vec<u32>,
    /// Trace every program that is started under this name, and its children; the kernel compares the first 15 bytes
    #[arg(long, value_name = "NAME", group = "subject", value_parser = program_name)]
    wait_for: Option<String>,
    /// Trace every process of the machine that uses CUDA, now or later; this is the default
    #[arg(long, group = "subject")]
    all_cuda: bool,
    /// How much is probed; more probes mean higher overhead
    #[arg(long, value_enum, default_value_t = Profile::Default)]
    profile: Profile,
    /// Do not probe a function (`cuMemcpyHtoDAsync`, `record_trace`) or a library (`nccl`) that `capture probes` lists
    /// (repeatable)
    #[arg(long, value_name = "FUNCTION|LIBRARY")]
    without: Vec<Without>,
    /// Which calls get a call stack: `alloc` (those that allocate or free memory), `slow:TIME` (calls of at least that
    /// duration), `all` or `none`; separate several by commas
    #[arg(long, value_name = "WHICH", value_parser = stacks, default_value = "none")]
    stacks: Stacks,
    /// Which tasks' scheduling slices are recorded
    #[arg(long, value_enum, default_value_t = Sched::Target)]
    sched: Sched,
    /// What is taken out of command lines before they are recorded: `secrets` (values of arguments and variables whose names
    /// are those of secrets, such as --password, and passwords in addresses), `all` (everything but the program's name),
    /// `text:TEXT` (what `secrets` takes out, and every argument that contains TEXT) or `off`
    #[arg(long, value_name = "MODE", num_args = 0..=1, default_value = "secrets", default_missing_value = "secrets")]
    redact: Redaction,
    /// Time between two readings of the GPUs' counters (NVML), at least 1ms, or `off`
    #[arg(long, value_name = "TIME", value_parser = sampling, default_value = "1s")]
    nvml: Sampling,
    /// Path of a Unix datagram socket for the workload's marks; a started command finds its path in
    /// `$INQUEST_MARKS`, with or without this option
    #[arg(long, value_name = "PATH")]
    marks: Option<PathBuf>,
    /// End the recording after this time, such as 90s or 2min
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Write numbered parts, and end each when its recording has reached this size, at least 1MiB; `analyze` opens them as
    /// one run
    #[arg(long, value_name = "SIZE", value_parser = part_size)]
    max_size: Option<Bytes>,
    /// Replace the output file if it exists, and discard an unfinished recording of it
    #[arg(long)]
    force: bool,
    /// Size of the ring buffer between kernel and recorder: a power of two from 64KiB to 2GiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = buffer_size)]
    buffer: Bytes,
    /// How function probes are attached
    #[arg(long, value_enum, default_value_t = Method::Auto)]
    attach: Method,
    /// Show no progress, and do not say that the whole machine is recorded
    #[arg(long, short)]
    quiet: bool,
    /// The command to run and trace, after `--`
    #[arg(last = true, value_name = "COMMAND", group = "subject")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sched {
    /// Slices of tasks that run on a CPU while a traced thread waits for that CPU
    Target,
    /// Every slice of every task on every CPU
    All,
}

/// Interval between two readings of the GPUs' counters; `None` if they are not read.
#[derive(Clone, Copy)]
struct Sampling(Option<Nanos>);

fn sampling(text: &str) -> Result<Sampling, String> {
    if text == "off" {
        return Ok(Sampling(None));
    }
    match text.parse::<Nanos>() {
        Ok(Nanos(ns)) if ns >= 1_000_000 => Ok(Sampling(Some(Nanos(ns)))),
        Ok(_) => Err("the interval must be at least 1ms, or off".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn stacks(text: &str) -> Result<Stacks, String> {
    let mut stacks = Stacks::default();
    for word in text.split(',') {
        match word.split_once(':') {
            None if word == "none" => {}
            None if word == "alloc" => stacks.alloc = true,
            None if word == "all" => stacks.all = true,
            Some(("slow", time)) => {
                let Nanos(ns) = time.parse().map_err(|error: trace_schema::UnitError| error.to_string())?;
                stacks.slow_ns = Some(ns);
            }
            _ => return Err(format!("{word:?} is not one of alloc, slow:TIME, all, none")),
        }
    }
    Ok(stacks)
}

fn program_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') {
        return Err("give the program's file name, without directories".to_owned());
    }
    Ok(text.to_owned())
}

fn part_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: trace_schema::UnitError| error.to_string())?;
    if size.0 < 1 << 20 { Err("a part must be at least 1MiB".to_owned()) } else { Ok(size) }
}

fn buffer_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: trace_schema::UnitError| error.to_string())?;
    match u32::try_from(size.0) {
        Ok(bytes) if bytes.is_power_of_two() && bytes >= 64 << 10 => Ok(size),
        _ => Err("the buffer must be a power of two from 64KiB to 2GiB".to_owned()),
    }
}

/// A thread name as the kernel keeps it: 15 bytes at most, padded with NUL.
fn comm(name: &str) -> [u8; COMM_BYTES] {
    let mut comm = [0; COMM_BYTES];
    let length = name.len().min(COMM_BYTES - 1);
    comm[..length].copy_from_slice(&name.as_bytes()[..length]);
    comm
}

/// Returns the definition of the command line; the reference, manual pages and completions are made from it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Ends the program if the command line is wrong, or asks for help. What is wrong is quoted from the command line.
fn refuse(error: &clap::Error) -> ! {
    if error.use_stderr() {
        say(error.render().to_string().trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Parses the command line and runs what it asks for.
pub(crate) fn run() -> Result<ExitCode, CaptureError> {
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse(&error));
    match cli.verb {
        Some(Verb::Check { json, sandbox }) => {
            let report = check::run(sandbox);
            print(&if json { report.to_json() } else { report.to_text() })?;
            return Ok(ExitCode::from(if report.can_record() { EXIT_OK } else { EXIT_UNSUPPORTED }));
        }
        Some(Verb::Bench { part, json }) => {
            let report = bench::run(part)?;
            print(&if json { report.to_json() } else { report.to_text() })?;
            return Ok(ExitCode::from(EXIT_OK));
        }
        Some(Verb::Probes) => {
            print(&probes::reference())?;
            return Ok(ExitCode::from(EXIT_OK));
        }
        Some(Verb::Demo(demo)) => return demo::run(&demo),
        Some(Verb::DemoPart { part }) => return demo::run_part(part),
        None => {}
    }
    if cli.record.command.is_empty() && std::env::args_os().next_back().is_some_and(|last| last == "--") {
        // A script whose variable is empty must not record the whole machine instead of its command.
        refuse(&Cli::command().error(ErrorKind::MissingRequiredArgument, "no command follows `--`"));
    }
    let options = options(cli.record);
    // Before anything is started.
    Parts::check(&options.out, options.force, options.max_size)?;
    let outcome = session::record(options)?;
    say(&outcome.to_string());
    Ok(ExitCode::from(if outcome.command_failed() { EXIT_COMMAND_FAILED } else { EXIT_OK }))
}

fn options(record: Record) -> Options {
    let wait_for = record.wait_for.as_deref().map(comm);
    let all_cuda =
        record.wait_for.is_none() && record.pid.is_empty() && record.command.is_empty() || record.all_cuda;
    let subject = match record.wait_for {
        Some(name) => Subject::Name(name),
        None if all_cuda => Subject::AllCuda,
        None if record.command.is_empty() => Subject::Processes(record.pid),
        None => Subject::Command(record.command),
    };
    Options {
        // clap requires it for every form but the verbs.
        out: record.out.unwrap_or_default(),
        subject,
        profile: record.profile,
        without: record.without,
        stacks: record.stacks,
        setup: Setup {
            buffer_bytes: record.buffer.0 as u32,
            method: record.attach,
            slow_ns: record.stacks.slow_ns.map_or(u64::MAX, |ns| ns.unsigned_abs()),
            all_cpus: record.sched == Sched::All,
            wait_for,
            all_cuda,
            ..Setup::default()
        },
        redaction: record.redact,
        nvml: record.nvml.0,
        marks: record.marks,
        duration: record.duration,
        max_size: record.max_size,
        force: record.force,
        quiet: record.quiet,
        progress: !record.quiet && std::io::stderr().is_terminal(),
    }
}
