//! The subject of a recording: running processes, a command started here, or processes that start later.

use std::{
    ffi::OsString,
    path::Path,
    process::{Child, Command, ExitStatus},
};

use capture_wire::target;
use trace_schema::Nanos;

use crate::{error::CaptureError, host, kernel::Kernel, mark_socket, options::Subject};

/// The traced processes, once tracing has begun.
pub(crate) enum Running {
    /// Processes that ran before; they are never stopped.
    Attached(Vec<u32>),
    /// The command that was started here.
    Spawned(Child),
    /// Programs that start under a name; whether one has started.
    Awaited(bool),
    /// Every process that uses CUDA, until a signal or the deadline.
    Unbounded,
}

impl Running {
    /// Begins to trace the subject. The tracepoints must be attached already.
    ///
    /// A command's process becomes a target at its fork, in the kernel, because this process is one
    /// whose children are followed; it is stopped at its exec until the probes are placed.
    /// Its environment has the path of the socket for marks, if `marks` is given.
    ///
    /// # Errors
    /// If a process does not exist, the command cannot be started, or the kernel has no room for a target.
    pub(crate) fn start(
        subject: &Subject,
        kernel: &mut Kernel,
        marks: Option<&Path>,
    ) -> Result<Self, CaptureError> {
        match subject {
            Subject::Name(_) => Ok(Self::Awaited(false)),
            Subject::AllCuda => Ok(Self::Unbounded),
            Subject::Processes(pids) => {
                for pid in pids {
                    if procfs::process::Process::new(*pid as i32).is_err() {
                        return Err(CaptureError::NoProcess(*pid));
                    }
                    kernel.add_target(*pid, target::RECORD | target::FOLLOW)?;
                }
                Ok(Self::Attached(pids.clone()))
            }
            Subject::Command(words) => {
                let (program, args) = words
                    .split_first()
                    .map_or((OsString::new(), &words[..]), |(first, rest)| (first.clone(), rest));
                let me = std::process::id();
                kernel.add_target(me, target::FOLLOW | target::STOP)?;
                let mut command = Command::new(&program);
                command.args(args);
                if let Some(path) = marks {
                    command.env(mark_socket::VARIABLE, path);
                }
                let child = command.spawn();
                kernel.remove_target(me);
                let child = child.map_err(|source| CaptureError::Spawn {
                    command: program.to_string_lossy().into_owned(),
                    source,
                })?;
                Ok(Self::Spawned(child))
            }
        }
    }

    /// `None` while there is something to trace; at the end, the command's status if the subject is a command.
    ///
    /// # Errors
    /// If the command cannot be waited for.
    pub(crate) fn ended(&mut self, kernel: &Kernel) -> Result<Option<Option<ExitStatus>>, CaptureError> {
        match self {
            Self::Unbounded => Ok(None),
            Self::Awaited(come) => {
                let any = !kernel.targets().is_empty();
                *come |= any;
                Ok((*come && !any).then_some(None))
            }
            Self::Attached(pids) => {
                let alive = pids.iter().any(|pid| {
                    procfs::process::Process::new(*pid as i32)
                        .and_then(|process| process.stat())
                        .is_ok_and(|stat| stat.state != 'Z')
                });
                Ok((!alive).then_some(None))
            }
            Self::Spawned(child) => child
                .try_wait()
                .map(|status| status.map(Some))
                .map_err(|source| CaptureError::Io { what: "waiting for the command".to_owned(), source }),
        }
    }
}

/// What a user is told when the whole machine is recorded: that it is, and how the recording ends.
pub(crate) fn announce_all_cuda(duration: Option<Nanos>) -> String {
    let end = match duration {
        Some(duration) => format!("the recording ends after {duration}, or with Ctrl-C"),
        None => "press Ctrl-C to end the recording and write the file".to_owned(),
    };
    let warning = match host::driver_library() {
        Some(_) => "",
        None => {
            "\ncapture: libcuda.so.1 is in none of the usual directories, so a process that starts later is found only \
             if it loads the library of a CUDA process that runs already"
        }
    };
    format!("recording every process of this machine that uses CUDA; {end}{warning}")
}

/// Continues a process that was stopped while probes were placed.
pub(crate) fn resume(pid: u32) {
    #[expect(unsafe_code, reason = "signals have no safe interface in the standard library")]
    // SAFETY: sending a signal touches no memory of ours.
    unsafe {
        libc::kill(pid as libc::pid_t, libc::SIGCONT);
    }
}

/// Whether a process is stopped by a signal.
pub(crate) fn is_stopped(pid: u32) -> bool {
    procfs::process::Process::new(pid as i32)
        .and_then(|process| process.stat())
        .is_ok_and(|stat| stat.state == 'T')
}

/// Process ids of all processes of the machine but this one.
pub(crate) fn every_pid() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .map(|process| process.pid as u32)
        .filter(move |pid| *pid != own)
}
