//! The errors of `capture`, and the exit code of each.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::{ExitCode, ExitStatus},
};

use trace_writer::WriteError;

/// Exit code: the run was recorded.
pub(crate) const EXIT_OK: u8 = 0;
/// Exit code: the run was recorded, but the traced command failed.
pub(crate) const EXIT_COMMAND_FAILED: u8 = 1;
/// Exit code: the command line or its input is wrong. `clap` uses the same code.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code: this machine or this user cannot trace.
pub(crate) const EXIT_UNSUPPORTED: u8 = 4;
/// Exit code: reading or writing failed.
pub(crate) const EXIT_IO: u8 = 5;

/// Every exit code and what it means, for `--help` and the reference.
pub(crate) const EXIT_CODES: [(u8, &str); 5] = [
    (EXIT_OK, "the run was recorded"),
    (EXIT_COMMAND_FAILED, "the run was recorded, but the traced command failed"),
    (EXIT_USAGE, "the command line or its input is wrong, and nothing was recorded"),
    (EXIT_UNSUPPORTED, "this machine or this user cannot trace (`capture check` says why)"),
    (EXIT_IO, "reading or writing failed"),
];

/// Every error that `capture` can end with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("cannot start {command:?}: {source}")]
    Spawn { command: String, source: io::Error },
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("tracing needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; run `capture` with sudo")]
    NotPermitted,
    #[error("the kernel has no type information at /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF): {0}")]
    NoBtf(String),
    #[error("the kernel's type information has no {0}; this kernel is not supported")]
    NoField(&'static str),
    #[error("the kernel refused the eBPF programs: {0}")]
    Load(#[from] aya::EbpfError),
    #[error("the kernel refused the eBPF program {name}: {source}")]
    Program { name: &'static str, source: aya::programs::ProgramError },
    #[error("internal error: this build of capture lacks {0}")]
    MissingPart(&'static str),
    #[error("the kernel refused {what}: {error}")]
    Multi { what: &'static str, error: String },
    #[error("the eBPF map {name} cannot be used: {source}")]
    Map { name: &'static str, source: aya::maps::MapError },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{} cannot be the socket for marks: {reason}; name another path with --marks", path.display())]
    MarksTaken { path: PathBuf, reason: &'static str },
    #[error("the recorder of the demo ended with {0}; what it said is above")]
    Recorder(ExitStatus),
    #[error("{} is not an ELF file that can be probed: {reason}", path.display())]
    Elf { path: PathBuf, reason: String },
    #[error("internal error: the eBPF programs sent an unknown event of {bytes} bytes with tag {tag}")]
    UnknownEvent { tag: u8, bytes: usize },
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl CaptureError {
    /// The exit code of this error, as `capture --help` documents it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Spawn { .. } | Self::NoProcess(_) | Self::MarksTaken { .. } => EXIT_USAGE,
            Self::NotPermitted
            | Self::NoBtf(_)
            | Self::NoField(_)
            | Self::Load(_)
            | Self::Program { .. }
            | Self::MissingPart(_)
            | Self::Multi { .. }
            | Self::Map { .. } => EXIT_UNSUPPORTED,
            Self::Io { .. } | Self::Elf { .. } | Self::UnknownEvent { .. } => EXIT_IO,
            // A recorder that a signal ended has no code.
            Self::Recorder(status) => {
                status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_IO)
            }
            Self::Write(error) if error.is_bad_request() => EXIT_USAGE,
            Self::Write(_) => EXIT_IO,
        })
    }
}

/// Prints on standard error. Whatever is printed there passes here and is made harmless: it may have names of files and
/// programs, and arguments.
pub(crate) fn say(text: &str) {
    // Where it is full or closed, there is nobody to tell.
    let _ = writeln!(io::stderr(), "{}", trace_schema::harmless(text));
}

/// Prints on standard output. A reader that closed it early is no error.
///
/// # Errors
/// If it cannot be written to.
pub(crate) fn print(text: &str) -> Result<(), CaptureError> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CaptureError::Io { what: "standard output".to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Formats an error with its causes on one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
