//! What the user asked to record: the subject, and the options of a recording.

use std::{ffi::OsString, path::PathBuf};

use trace_schema::{Bytes, Nanos, Redaction};

use crate::{
    attach::Stacks,
    kernel::Setup,
    probes::{Profile, Without},
};

/// The subject that the user named.
#[derive(Debug)]
pub(crate) enum Subject {
    /// Running processes, with the children that they will have.
    Processes(Vec<u32>),
    /// A command to start, with its children.
    Command(Vec<OsString>),
    /// Every program that is started under a name, with its children.
    Name(String),
    /// Every process of the machine that uses CUDA, now or later.
    AllCuda,
}

impl Subject {
    /// The subject as the run's metadata has it: the command's words, or the option that chose the processes.
    pub(crate) fn describe(&self) -> Vec<String> {
        match self {
            Self::Processes(pids) => pids.iter().map(|pid| format!("--pid {pid}")).collect(),
            Self::Name(name) => vec![format!("--wait-for {name}")],
            Self::AllCuda => vec!["--all-cuda".to_owned()],
            Self::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }
}

/// What to record, and where to.
pub(crate) struct Options {
    /// Path of the recording.
    pub(crate) out: PathBuf,
    /// Whom to record.
    pub(crate) subject: Subject,
    /// Which probes are placed.
    pub(crate) profile: Profile,
    /// What is left out of the profile.
    pub(crate) without: Vec<Without>,
    /// Which calls get their stack.
    pub(crate) stacks: Stacks,
    /// How the kernel's part is set up. Its number of stacks is set when the recording begins.
    pub(crate) setup: Setup,
    /// What is taken out of command lines before they are recorded.
    pub(crate) redaction: Redaction,
    /// Interval of the GPU counters; `None` if they are off.
    pub(crate) nvml: Option<Nanos>,
    /// Path of the socket for marks, if the user named one.
    pub(crate) marks: Option<PathBuf>,
    /// Time after which the recording ends at the latest.
    pub(crate) duration: Option<Nanos>,
    /// Size at which a part ends; `None` for a single file.
    pub(crate) max_size: Option<Bytes>,
    /// Whether an existing file is replaced.
    pub(crate) force: bool,
    /// Whether it is left unsaid that the whole machine is recorded.
    pub(crate) quiet: bool,
    /// Whether progress is shown.
    pub(crate) progress: bool,
}
