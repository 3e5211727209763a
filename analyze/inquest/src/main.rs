//! `inquest`: the one command that packages put on PATH. `inquest capture …` and `inquest analyze …` become those programs,
//! with all that follows: same process, same streams, same exit code.
//!
//! A run in the place of the word, `inquest RUN.parquet`, stands for `inquest analyze RUN.parquet`. A word with `/`, `*` or
//! `.` is taken for a run: no program and no verb has one in its name.

mod programs;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
};

use programs::{Program, find, own_folder};

/// Exit code: the command line is wrong, or the programs are of different versions.
const EXIT_USAGE: u8 = 2;
/// Exit code: a program is missing or cannot be started, or standard output cannot be written.
const EXIT_IO: u8 = 5;

/// What `inquest` is called to do.
enum Request {
    Help,
    Versions,
    /// Become a program, with arguments.
    Start(Program, Vec<OsString>),
    /// A first word that names nothing; `None` if there is no word.
    Unknown(Option<OsString>),
}

/// An error, and the exit code that it ends with.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn io(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: EXIT_IO }
    }
}

/// Says what the command line asks for; `arguments` are those after the name of the program.
fn request(arguments: Vec<OsString>) -> Request {
    let Some(word) = arguments.first() else { return Request::Unknown(None) };
    if let Some(program) = Program::ALL.into_iter().find(|program| word == program.name()) {
        return Request::Start(program, arguments.into_iter().skip(1).collect());
    }
    let is_flag = word.as_encoded_bytes().starts_with(b"-");
    let is_run = |word: &OsStr| word.as_encoded_bytes().iter().any(|byte| b"/*.".contains(byte));
    match word.to_str() {
        Some("-h" | "--help" | "help") => Request::Help,
        Some("-V" | "--version") => Request::Versions,
        _ if !is_flag && is_run(word) => Request::Start(Program::Analyze, arguments),
        _ => Request::Unknown(Some(word.clone())),
    }
}

/// Returns the text of `--help`.
fn help() -> String {
    let commands = Program::ALL.map(|program| format!("  {}  {}\n", program.name(), program.about()));
    format!(
        "{about}\n\n\
         Usage: inquest capture [OPTIONS] --out RUN.parquet [-- COMMAND...]\n       \
         inquest analyze VERB RUN.parquet...\n       \
         inquest RUN.parquet\n\n\
         Commands:\n{commands}\n\
         Options:\n  -h, --help     Print help\n  -V, --version  Print the versions of inquest and of both programs\n\n\
         `inquest capture --help` and `inquest analyze --help` list all that each can do. A run alone stands for\n\
         `inquest analyze RUN.parquet`: what is wrong in it, ranked.\n\n\
         Exit codes: those of the program that runs; 2 wrong usage, or programs of different versions; 5 a program is\n\
         missing or cannot be started.\n",
        about = env!("CARGO_PKG_DESCRIPTION"),
        commands = commands.concat(),
    )
}

/// Prints on standard output. A reader that closed it early is no error.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns the path of a program.
fn path(program: Program) -> Result<PathBuf, Failure> {
    let own =
        own_folder().map_err(|error| Failure::io(format!("cannot find out where inquest is: {error}")))?;
    find(program, &own).map_err(Failure::io)
}

/// Asks a program for its version: the last word of the line that it prints.
fn version(program: Program) -> Result<String, Failure> {
    let path = path(program)?;
    let output = Command::new(&path).arg("--version").output();
    let output = output.map_err(|error| Failure::io(format!("cannot start {path:?}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().last().filter(|_| output.status.success()) {
        Some(version) => Ok(version.to_owned()),
        None => Err(Failure::io(format!("{path:?} does not say its version: {}", output.status))),
    }
}

/// Prints the versions of `inquest` and of both programs.
fn versions() -> Result<(), Failure> {
    const OWN: &str = env!("CARGO_PKG_VERSION");
    print(&format!("inquest {OWN}\n"))?;
    let mut others = Vec::new();
    for program in Program::ALL {
        let version = version(program)?;
        print(&format!("{} {version}\n", program.name()))?;
        if version != OWN {
            others.push(program.name());
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the version of {} is not that of inquest, {OWN}; install all of them from one package",
        others.join(" and ")
    );
    Err(Failure { message, code: EXIT_USAGE })
}

/// Becomes a program; returns only if it cannot be started.
fn start(program: Program, arguments: Vec<OsString>) -> Failure {
    let path = match path(program) {
        Ok(path) => path,
        Err(failure) => return failure,
    };
    // A program's help calls it by the name under which it was started.
    let name = format!("inquest {}", program.name());
    let error = Command::new(&path).arg0(name).args(arguments).exec();
    Failure::io(format!("cannot start {path:?}: {error}"))
}

fn run() -> Result<(), Failure> {
    match request(env::args_os().skip(1).collect()) {
        Request::Help => print(&help()),
        Request::Versions => versions(),
        Request::Start(program, arguments) => Err(start(program, arguments)),
        Request::Unknown(None) => {
            Err(Failure { message: format!("no command is given\n\n{}", help()), code: EXIT_USAGE })
        }
        Request::Unknown(Some(word)) => {
            let message = format!(
                "{word:?} is neither capture nor analyze, nor a run\nverbs follow the program, as in `inquest analyze report \
                 RUN.parquet`; `inquest --help` says more"
            );
            Err(Failure { message, code: EXIT_USAGE })
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Where standard error is full or closed, there is nobody to tell.
            let _ = writeln!(io::stderr(), "inquest: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
