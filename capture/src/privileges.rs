//! The privileges of a recording: what each needs, and how everything else is given up.
//!
//! ```text
//! programs loaded ─► drop_unneeded ─► output file, NVML, socket, tracepoints, the command starts ─► confine ─► events
//! ```
//! A command has the privileges of whoever started `capture`, so the sets that it inherits are cut after it was started.
//! Capabilities belong to a thread: threads that start before then cut theirs when they begin.

use std::{fs, os::unix::fs::MetadataExt, panic, path::Path, thread};

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::geteuid;

use crate::seccomp;

/// A capability that is kept, and what it is needed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// The capability.
    pub(crate) capability: Capability,
    /// What it is needed for.
    pub(crate) reason: &'static str,
}

/// What decides which capabilities a recording needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Processes are stopped while probes are placed: a command, and programs that are waited for.
    pub(crate) stops: bool,
    /// Probes are placed in one function at a time.
    pub(crate) single: bool,
    /// Files are written into a folder of another user.
    pub(crate) foreign_folder: bool,
    /// Files are given to the user who called `sudo`.
    pub(crate) gives_files: bool,
}

impl Needs {
    /// The capabilities that are kept.
    pub(crate) fn kept(self) -> Vec<Kept> {
        let keep = |capability, reason| Kept { capability, reason };
        let mut kept = vec![
            keep(Capability::CAP_BPF, "maps and programs, also for libraries that are loaded later"),
            keep(Capability::CAP_PERFMON, "probes and tracepoints"),
            keep(Capability::CAP_SYS_PTRACE, "memory maps of other users' processes"),
            keep(Capability::CAP_DAC_READ_SEARCH, "program files and libraries of other users' processes"),
        ];
        if self.stops {
            let reason = "continuing processes of other users that were stopped for their probes";
            kept.push(keep(Capability::CAP_KILL, reason));
        }
        if self.foreign_folder {
            let reason = "writing into the folder of --out or --marks, if that is another user's";
            kept.push(keep(Capability::CAP_DAC_OVERRIDE, reason));
        }
        if self.gives_files {
            kept.push(keep(Capability::CAP_CHOWN, "giving the files to the user who called sudo"));
        }
        if self.single {
            kept.push(keep(Capability::CAP_SYS_ADMIN, "probes in one function at a time"));
        }
        kept
    }
}

/// Whether this user owns a folder and may write into it.
pub(crate) fn owns(folder: &Path) -> bool {
    const WRITE_AND_ENTER: u32 = 0o300;
    let own = geteuid().as_raw();
    fs::metadata(folder)
        .is_ok_and(|folder| folder.uid() == own && folder.mode() & WRITE_AND_ENTER == WRITE_AND_ENTER)
}

/// What a recording keeps; `None` if capabilities stay as they are, because tracing here rests on others.
fn kept(needs: Needs) -> Option<CapsHashSet> {
    let have = caps::read(None, CapSet::Permitted).ok()?;
    let wanted: CapsHashSet = needs.kept().iter().map(|kept| kept.capability).collect();
    let kept: CapsHashSet = have.intersection(&wanted).copied().collect();
    (kept.contains(&Capability::CAP_BPF) && kept.contains(&Capability::CAP_PERFMON)).then_some(kept)
}

/// Gives up the other capabilities of this thread and of those that it starts; a command that it starts as root has them
/// again. What [`confine`] itself needs stays until then.
pub(crate) fn drop_unneeded(needs: Needs) {
    if let Some(mut kept) = kept(needs)
        && let Ok(have) = caps::read(None, CapSet::Permitted)
    {
        if have.contains(&Capability::CAP_SETPCAP) {
            kept.insert(Capability::CAP_SETPCAP);
        }
        // Holding more than is needed is no reason not to record.
        let _ = caps::set(None, CapSet::Effective, &kept);
        let _ = caps::set(None, CapSet::Permitted, &kept);
    }
}

/// Cuts all capability sets of this thread, those that a program would get included, to what is kept; returns what could
/// not be done.
fn cut(needs: Needs) -> Vec<String> {
    let Some(kept) = kept(needs) else {
        return vec![
            "all capabilities are kept: without CAP_BPF and CAP_PERFMON, tracing rests on others".to_owned(),
        ];
    };
    let mut failed = Vec::new();
    let mut note = |what: &str, result: Result<(), caps::errors::CapsError>| {
        if let Err(error) = result {
            failed.push(format!("{what}: {error}"));
        }
    };
    let set = |set| caps::read(None, set).unwrap_or_default();
    // Without CAP_SETPCAP the bounding set cannot change, and without privileges of a new program it means nothing.
    if set(CapSet::Effective).contains(&Capability::CAP_SETPCAP) {
        for capability in set(CapSet::Bounding).difference(&kept) {
            note("the bounding set of capabilities", caps::drop(None, CapSet::Bounding, *capability));
        }
    }
    note("the ambient set of capabilities", caps::clear(None, CapSet::Ambient));
    note("the inheritable set of capabilities", caps::clear(None, CapSet::Inheritable));
    note("the effective set of capabilities", caps::set(None, CapSet::Effective, &kept));
    note("the permitted set of capabilities", caps::set(None, CapSet::Permitted, &kept));
    failed
}

/// Cuts the capabilities of a thread that starts before [`confine`], which reports what cannot be done.
pub(crate) fn cut_thread(needs: Needs) {
    let _ = cut(needs);
}

/// Runs `work` on a thread whose capabilities are cut. Threads that `work` starts inherit that.
pub(crate) fn on_cut_thread<T: Send>(needs: Needs, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        cut_thread(needs);
        work()
    };
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Gives up for good what recording does not need: capabilities of this thread, and on all threads the privileges of new
/// programs and the system calls that [`seccomp`] refuses. Returns a sentence for each step that was not possible.
pub(crate) fn confine(needs: Needs) -> Vec<String> {
    let mut failed = cut(needs);
    if let Err(error) = seccomp::forbid_new_privileges() {
        failed.push(format!("new programs may gain privileges (no_new_privs): {error}"));
    }
    if let Err(error) = seccomp::install(seccomp::ALL_THREADS) {
        failed.push(format!("no system call is refused (seccomp): {error}"));
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recording_keeps_the_least() {
        let names = |stops, single, foreign_folder| -> Vec<String> {
            let needs = Needs { stops, single, foreign_folder, gives_files: single };
            needs.kept().iter().map(|kept| kept.capability.to_string()).collect()
        };
        let least = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"];
        assert_eq!(names(false, false, false), least);
        assert_eq!(
            names(true, true, true)[4..],
            ["CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_SYS_ADMIN"]
        );
    }

    #[test]
    fn a_folder_of_another_user_is_told() {
        let directory = tempfile::tempdir().expect("a folder");
        assert!(owns(directory.path()));
        assert!(!owns(&directory.path().join("absent")));
    }
}
