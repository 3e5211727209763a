//! Processes and control groups that are gone when their owner is, whatever happens.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use cuda_stub::scenario::HOG_READY;

use crate::error::{CourtError, io};

/// Groups are called so, and the process id follows.
const GROUP_PREFIX: &str = "inquest-court-";
/// CPU time of the control group in each period, in microseconds. What is left of a period is long against a time slice: whoever waits is kept
/// from running by the quota, and only then by its neighbours.
const QUOTA_US: u64 = 10_000;
const PERIOD_US: u64 = 40_000;
/// A group can be removed once the kernel has let its last process go.
const REMOVE_ATTEMPTS: u32 = 100;

/// A child, killed at the end of the scope. (Hogs end by themselves, too, if the courtroom is killed.)
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self, CourtError> {
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.spawn().map_err(io(program))?))
    }

    /// A hog, once it has begun.
    pub(crate) fn start_hog(command: &mut Command) -> Result<Self, CourtError> {
        let mut hog = Self::start(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        if let Some(stdout) = hog.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(io("a hog's standard output"))?;
        }
        if line.trim_end() != HOG_READY {
            let status = hog.0.wait().map_err(io("a hog"))?;
            let message = "see above".to_owned();
            return Err(CourtError::Program {
                program: "a hog".to_owned(),
                status: status.to_string(),
                message,
            });
        }
        Ok(hog)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it succeeded; `None`: it did not end in time. An interrupt ends the wait, so that everything is put away.
    pub(crate) fn wait(
        &mut self,
        limit: Duration,
        interrupted: &AtomicBool,
    ) -> Result<Option<std::process::ExitStatus>, CourtError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().map_err(io("waiting for a process"))? {
                return Ok(Some(status));
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err(CourtError::Interrupted);
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control group that may use a quarter of a CPU.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn new() -> Result<Self, CourtError> {
        let unified = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|name| name == "cpu") {
            let enable = unified.join("cgroup.subtree_control");
            fs::write(&enable, "+cpu").map_err(io(enable.display()))?;
            let group = Self::within(unified)?;
            group.set("cpu.max", &format!("{QUOTA_US} {PERIOD_US}"))?;
            return Ok(group);
        }
        let mounts = ["cpu", "cpu,cpuacct", "cpuacct,cpu"].map(|name| unified.join(name));
        let mount = mounts
            .iter()
            .find(|path| path.join("cpu.cfs_quota_us").exists() || path.join("cpu.stat").exists());
        let group = Self::within(mount.ok_or(CourtError::NoCpuController)?)?;
        group.set("cpu.cfs_period_us", &PERIOD_US.to_string())?;
        group.set("cpu.cfs_quota_us", &QUOTA_US.to_string())?;
        Ok(group)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn within(parent: &Path) -> Result<Self, CourtError> {
        // What an earlier courtroom left when it was killed; a group in use cannot be removed.
        for entry in fs::read_dir(parent).map_err(io(parent.display()))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(GROUP_PREFIX) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let path = parent.join(format!("{GROUP_PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(io(path.display()))?;
        Ok(Self(path))
    }

    fn set(&self, file: &str, value: &str) -> Result<(), CourtError> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(io(path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVE_ATTEMPTS {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        eprintln!("courtroom: cannot remove {}", self.0.display());
    }
}
