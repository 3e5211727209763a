//! Plays one scenario: starts what competes with the accused, records it, asks for the verdicts.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use cuda_stub::{
    order::PAGE_BYTES,
    scenario::{Hogs, Scenario},
    truth::Call,
};
use flate2::read::GzDecoder;
use serde::{Deserialize, de::DeserializeOwned};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use crate::{
    error::{CourtError, io},
    guard::{Group, Process},
};

/// A scenario that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(180);
/// Calls of a short run, as a divisor.
const SHORT: usize = 10;
/// Hogs on every other CPU.
const HOGS_ELSEWHERE: usize = 3;
const LOST: &str = "SELECT coalesce(sum(lost_count), 0) AS lost_count FROM lost";

/// What `analyze` says of one slow call.
#[derive(Debug, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) op: String,
    pub(crate) ts: u64,
    pub(crate) tid: i32,
    pub(crate) verdict: String,
    pub(crate) root: Option<String>,
    pub(crate) culprit_comm: Option<String>,
}

/// A scenario, as it was and as it was judged.
pub(crate) struct Evidence {
    pub(crate) truth: Vec<Call>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) lost_count: u64,
}

/// Where everything is.
pub(crate) struct Stage {
    programs: PathBuf,
    /// On a disk, for the file that is read: memory file systems have no reads to wait for.
    scratch: tempfile::TempDir,
    keep: Option<PathBuf>,
    short: bool,
    /// CPU of the calls, and the others.
    cpu: usize,
    others: Vec<usize>,
    interrupted: Arc<AtomicBool>,
}

impl Stage {
    pub(crate) fn new(keep: Option<&Path>, short: bool) -> Result<Self, CourtError> {
        let programs = programs()?;
        for name in ["capture", "analyze", "accused", "examples/libcuda.so", "examples/libcudart.so"] {
            if !programs.join(name).exists() {
                return Err(CourtError::NotBuilt(programs.join(name).display().to_string()));
            }
        }
        if let Some(keep) = keep {
            fs::create_dir_all(keep).map_err(io(keep.display()))?;
        }
        let scratch = tempfile::Builder::new().prefix("inquest-court-").tempdir_in("/var/tmp");
        let mut others = cpus();
        let (Some(cpu), false) = (others.pop(), others.is_empty()) else {
            return Err(CourtError::Cpus(1));
        };
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&interrupted)).map_err(io("a signal's handler"))?;
        }
        Ok(Self {
            programs,
            scratch: scratch.map_err(io("/var/tmp"))?,
            keep: keep.map(Path::to_path_buf),
            short,
            cpu,
            others,
            interrupted,
        })
    }

    pub(crate) fn play(&self, scenario: &Scenario, query: &str) -> Result<Evidence, CourtError> {
        let directory = self.keep.as_deref().unwrap_or(self.scratch.path());
        let run = directory.join(format!("{}.parquet", scenario.name));
        let truth = directory.join(format!("{}.truth.jsonl", scenario.name));
        self.record(scenario, &run, &truth)?;
        hear(&self.programs, directory, scenario, query)
    }

    /// Everything that competes lives until this returns.
    fn record(&self, scenario: &Scenario, run: &Path, truth: &Path) -> Result<(), CourtError> {
        let bell = self.scratch.path().join("bell");
        fs::write(&bell, [0; PAGE_BYTES]).map_err(io(bell.display()))?;
        let group = scenario.throttled.then(Group::new).transpose()?;
        let hogs = self.hogs(scenario.hogs, &bell)?;

        let calls = scenario.calls_count / if self.short { SHORT } else { 1 };
        let mut accused = Command::new(self.programs.join("accused"));
        accused.arg("run").arg("--libraries").arg(self.programs.join("examples"));
        accused.arg("--truth").arg(truth).args(["--scenario", scenario.name]);
        accused.args(["--calls", &calls.to_string(), "--cpu", &self.cpu.to_string()]);
        accused.args(["--other-cpu", &self.others[0].to_string()]);
        accused.arg("--disk").arg(self.scratch.path().join("disk"));
        if scenario.hogs == Hogs::Between {
            accused.arg("--bell").arg(&bell);
        }
        if let Some(hog) = hogs.first() {
            accused.args(["--hog", &hog.id().to_string()]);
        }
        if let Some(group) = &group {
            accused.arg("--cgroup").arg(group.path());
        }

        let said = self.scratch.path().join("capture.log");
        let log = File::create(&said).map_err(io(said.display()))?;
        let mut capture = Command::new(self.programs.join("capture"));
        capture.args(["--quiet", "--force", "--profile", "full", "--out"]).arg(run);
        capture.arg("--").arg(accused.get_program()).args(accused.get_args());
        let mut capture = Process::start(capture.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))?;
        match capture.wait(LIMIT, &self.interrupted)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(CourtError::Program {
                program: "capture".to_owned(),
                status: status.to_string(),
                message: fs::read_to_string(&said).unwrap_or_default(),
            }),
            None => Err(CourtError::Late { program: "capture".to_owned(), limit_s: LIMIT.as_secs() }),
        }
    }

    fn hogs(&self, hogs: Hogs, bell: &Path) -> Result<Vec<Process>, CourtError> {
        let start = |cpu: usize, args: &[&str]| {
            let mut hog = Command::new(self.programs.join("accused"));
            hog.args(["hog", "--cpu", &cpu.to_string()]).args(args);
            Process::start_hog(&mut hog)
        };
        match hogs {
            Hogs::None => Ok(Vec::new()),
            Hogs::Beside(count) => (0..count).map(|_| start(self.cpu, &[])).collect(),
            Hogs::Above => {
                let args = ["--nice", "-10", "--burn-us", "2000", "--rest-us", "2000"];
                Ok(vec![start(self.cpu, &args)?])
            }
            Hogs::AboveHolder => Ok(vec![start(self.others[0], &["--nice", "-5"])?]),
            Hogs::Elsewhere => {
                let all = self.others.iter().flat_map(|cpu| [*cpu; HOGS_ELSEWHERE]);
                all.map(|cpu| start(cpu, &[])).collect()
            }
            Hogs::Between => {
                let bell = bell.to_string_lossy();
                Ok(vec![start(self.cpu, &["--bell", &bell, "--burn-us", "2000"])?])
            }
        }
    }
}

fn ask<T: DeserializeOwned>(programs: &Path, run: &Path, query: &str) -> Result<T, CourtError> {
    let mut analyze = Command::new(programs.join("analyze"));
    let output = analyze.args(["sql", "--format", "json"]).arg(run).arg(query).output();
    let output = output.map_err(io("analyze"))?;
    if !output.status.success() {
        return Err(CourtError::Program {
            program: "analyze".to_owned(),
            status: output.status.to_string(),
            message: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What a recorded scenario leaves: the truth, and what `analyze` makes of the trace.
pub(crate) fn hear(
    programs: &Path,
    directory: &Path,
    scenario: &Scenario,
    query: &str,
) -> Result<Evidence, CourtError> {
    let run = directory.join(format!("{}.parquet", scenario.name));
    let plain = directory.join(format!("{}.truth.jsonl", scenario.name));
    let packed = plain.with_extension("jsonl.gz");
    let mut text = String::new();
    if plain.exists() {
        text = fs::read_to_string(&plain).map_err(io(plain.display()))?;
    } else {
        let file = File::open(&packed).map_err(io(packed.display()))?;
        GzDecoder::new(file).read_to_string(&mut text).map_err(io(packed.display()))?;
    }
    #[derive(Deserialize)]
    struct Lost {
        lost_count: u64,
    }
    let lost: Vec<Lost> = ask(programs, &run, LOST)?;
    Ok(Evidence {
        truth: text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?,
        verdicts: ask(programs, &run, query)?,
        lost_count: lost.first().map_or(0, |lost| lost.lost_count),
    })
}

/// Where this program and the others lie.
pub(crate) fn programs() -> Result<PathBuf, CourtError> {
    let own = std::env::current_exe().map_err(io("own path"))?;
    Ok(own.parent().unwrap_or(Path::new(".")).to_path_buf())
}

/// The CPUs that this process may use.
fn cpus() -> Vec<usize> {
    // SAFETY: zeros are valid, and the call fills them.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}
