//! `capture demo`: records one workload twice, alone on a CPU and beside a CPU hog, without a GPU and in about twenty seconds.
//!
//! ```text
//! capture demo ─┬─ capture --out quiet.parquet -- capture demo-part workload
//!               └─ capture --out hog.parquet   -- capture demo-part workload      beside it: capture demo-part hog
//! ```
//! A recorder gives up its privileges for good, so each recording is a process of its own. Both do the same number of steps, so
//! the difference of their times is what the hog costs.

mod libraries;
mod part;

use std::{
    fs, io,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, atomic::AtomicBool},
};

use clap::Args;
use nix::{
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};
use trace_schema::Nanos;
use trace_writer::{Parts, WriteError};

use crate::{
    check,
    error::{CaptureError, EXIT_OK, EXIT_UNSUPPORTED, print, say},
};
pub(crate) use part::Part;

/// The verb by which the program starts itself as a part of the demo.
const PART: &str = "demo-part";

/// Record a stub workload live, alone on its CPU and beside a CPU hog: without a GPU, in about 20 seconds
#[derive(Args)]
pub(crate) struct Demo {
    /// Folder of the two recordings, quiet.parquet and hog.parquet; it is created if it is missing
    #[arg(long, value_name = "DIR", default_value = "inquest-live")]
    out: PathBuf,
    /// About how long both recordings take together, from 1 to 600
    #[arg(long, value_name = "SECONDS", default_value_t = 18, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Replace the recordings if they exist
    #[arg(long)]
    force: bool,
}

/// A process that computes without end, until this is dropped.
struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What both recordings share.
struct Stage {
    /// The path of this program.
    program: PathBuf,
    /// The folder with the stub libraries.
    libraries: tempfile::TempDir,
    /// Number of the CPU that the workload and the hog run on.
    cpu: usize,
    /// Number of steps of the workload.
    steps_count: u64,
    force: bool,
}

impl Stage {
    /// The command line of a part of the demo.
    fn part(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([PART, name, "--cpu", &self.cpu.to_string()]).stdin(Stdio::null());
        command
    }

    fn spawned(source: io::Error) -> CaptureError {
        CaptureError::Spawn { command: "capture".to_owned(), source }
    }

    /// Starts a hog.
    fn hog(&self) -> Result<Hog, CaptureError> {
        self.part("hog").spawn().map(Hog).map_err(Self::spawned)
    }

    /// Records the workload, and returns how long its steps took.
    fn record(&self, out: &Path) -> Result<Nanos, CaptureError> {
        let mut command = Command::new(&self.program);
        command.arg("--out").arg(out).args(["--nvml", "off"]);
        if self.force {
            command.arg("--force");
        }
        let mut workload = self.part("workload");
        workload.arg("--libraries").arg(self.libraries.path());
        workload.arg("--steps").arg(self.steps_count.to_string());
        command.arg("--").arg(workload.get_program()).args(workload.get_args());
        // The recorder says on standard error what it recorded, or why it could not.
        let output = command.stderr(Stdio::inherit()).output().map_err(Self::spawned)?;
        if !output.status.success() {
            return Err(CaptureError::Recorder(output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let time = text.trim().parse().map(Nanos);
        time.map_err(|_| CaptureError::Io {
            what: "the time of the demo's workload".to_owned(),
            source: io::Error::other(format!("it is no number: {:?}", text.trim())),
        })
    }
}

/// The CPU for the demo: the last one that this process may use, because the first ones handle most interrupts.
fn last_cpu() -> Result<usize, CaptureError> {
    let failed = |source| CaptureError::Io { what: "the CPUs of this process".to_owned(), source };
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|error| failed(error.into()))?;
    let mut cpus = (0..CpuSet::count()).rev();
    cpus.find(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .ok_or_else(|| failed(io::Error::other("there is none")))
}

/// Creates the folder of the recordings, unless it is there. Below `sudo` it belongs to the user who called that.
fn create(folder: &Path) -> Result<(), CaptureError> {
    if folder.is_dir() {
        return Ok(());
    }
    let failed = |source| WriteError::Folder { path: folder.to_owned(), source };
    fs::create_dir(folder).map_err(failed)?;
    if let Some((uid, gid)) = trace_writer::sudo_caller() {
        // Where files have no owners, the folder has none either.
        let _ = chown(folder, Some(uid), Some(gid));
    }
    Ok(())
}

/// Says what was recorded, and what to do with it.
fn closing(stage: &Stage, quiet: (&Path, Nanos), hog: (&Path, Nanos)) -> String {
    let (quiet_path, hog_path) = (quiet.0.display(), hog.0.display());
    format!(
        "The same {} steps on CPU {}, without a GPU, took\n  \
         {} alone: {quiet_path}\n  \
         {} beside a process that computes there without end: {hog_path}\n\
         What was it? The recordings know:\n  \
         analyze {hog_path}\n  \
         analyze chains {hog_path}\n  \
         analyze report {quiet_path} {hog_path}\n",
        stage.steps_count, stage.cpu, quiet.1, hog.1,
    )
}

/// Records the demo.
///
/// # Errors
/// If a recording cannot be written, or if a recorder fails.
pub(crate) fn run(demo: &Demo) -> Result<ExitCode, CaptureError> {
    let check = check::run(false);
    if !check.can_record() {
        say(check.to_text().trim_end());
        return Ok(ExitCode::from(EXIT_UNSUPPORTED));
    }
    let io = |what: &str| {
        let what = what.to_owned();
        move |source| CaptureError::Io { what, source }
    };
    // A terminal interrupts the recorder as well, which then ends; what this process made in between it removes itself.
    signal_hook::flag::register(libc::SIGINT, Arc::new(AtomicBool::new(false)))
        .map_err(io("signal handler"))?;
    let (quiet, hogged) = (demo.out.join("quiet.parquet"), demo.out.join("hog.parquet"));
    create(&demo.out)?;
    for out in [&quiet, &hogged] {
        Parts::check(out, demo.force, None)?;
    }
    let stage = Stage {
        program: std::env::current_exe().map_err(io("the path of this program"))?,
        libraries: libraries::write().map_err(io("a temporary folder for the stub libraries"))?,
        cpu: last_cpu()?,
        steps_count: part::steps_count(demo.seconds),
        force: demo.force,
    };
    let quiet_time = stage.record(&quiet)?;
    let hog = stage.hog()?;
    let hog_time = stage.record(&hogged)?;
    drop(hog);
    print(&closing(&stage, (&quiet, quiet_time), (&hogged, hog_time)))?;
    Ok(ExitCode::from(EXIT_OK))
}

/// Runs a part of the demo in a process of its own.
///
/// # Errors
/// If it cannot run on its CPU, or if the libraries cannot be loaded.
pub(crate) fn run_part(part: Part) -> Result<ExitCode, CaptureError> {
    part.run()?;
    Ok(ExitCode::from(EXIT_OK))
}
