//! `capture check`: what this machine can record, what it cannot, and how to fix that.

use std::{path::Path, time::Duration};

use serde::Serialize;

use crate::{
    btf,
    error::error_chain,
    host,
    kernel::{self, Kernel, Method, Setup},
    nvml::Sampler,
    sandbox::{self, Sandbox},
};

/// Whether a requirement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// The requirement is met.
    Ok,
    /// The requirement is not met; recording works, but something is missing or costs more.
    Warning,
    /// The requirement is not met, and recording is impossible.
    Error,
}

/// One requirement, its status, and how to meet it.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

/// All requirements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    can_record: bool,
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<Sandbox>,
}

fn finding(
    name: &'static str,
    result: Result<String, String>,
    otherwise: Status,
    fix: &'static str,
) -> Finding {
    match result {
        Ok(detail) => Finding { name, status: Status::Ok, detail, fix: None },
        Err(detail) => Finding { name, status: otherwise, detail, fix: Some(fix) },
    }
}

fn exists(path: &str, what: &str) -> Result<String, String> {
    if Path::new(path).exists() { Ok(path.to_owned()) } else { Err(format!("{path} is missing: {what}")) }
}

fn driver_library() -> Result<String, String> {
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    let known = cache.windows(12).any(|window| window == b"libcuda.so.1");
    match host::driver_library() {
        Some(path) => Ok(path.display().to_string()),
        None if known => Ok("libcuda.so.1 is in the loader's cache".to_owned()),
        None => {
            Err("libcuda.so.1 is in none of the usual directories; a process may bring its own".to_owned())
        }
    }
}

/// Checks every requirement; with privileges, by loading and attaching the eBPF programs. `with_sandbox` adds what a
/// recorder keeps of its privileges.
pub(crate) fn run(with_sandbox: bool) -> Report {
    let permitted = kernel::may_trace();
    let offsets = btf::task_offsets();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => Ok("x86-64".to_owned()),
        other => Err(format!("{other}: arguments are read by the x86-64 calling convention")),
    };
    let load = |method| Kernel::load(&Setup { buffer_bytes: 64 << 10, method, ..Setup::default() });
    let untried = || Err("not tried, because this user may not load eBPF programs".to_owned());
    let mut attached_by = None;
    let (programs, extras, cheapest) = if !permitted {
        (untried(), untried(), untried())
    } else {
        match load(Method::Auto).and_then(|(mut kernel, _events)| {
            let missing = kernel.attach_tracepoints()?;
            Ok((kernel.method(), missing))
        }) {
            Err(error) => (Err(error_chain(&error)), untried(), untried()),
            Ok((method, missing)) => {
                attached_by = Some(method);
                (
                    Ok("ring buffer, programs loaded, scheduler and process tracepoints attached".to_owned()),
                    if missing.is_empty() {
                        Ok("major page faults, out-of-memory kills".to_owned())
                    } else {
                        Err(missing.join("; "))
                    },
                    match method {
                        Method::Session => Ok("sessions (uprobe.session)".to_owned()),
                        _ => {
                            let why = load(Method::Session).err().map(|error| error.to_string());
                            Err(format!("{} instead of sessions: {}", method.name(), why.unwrap_or_default()))
                        }
                    },
                )
            }
        }
    };
    let nvml =
        Sampler::start(Duration::from_secs(1), || ()).map(|sampler| format!("{} GPUs", sampler.gpus.len()));
    let findings = vec![
        finding("architecture", architecture, Status::Error, "record on an x86-64 machine"),
        finding(
            "privileges",
            if permitted {
                Ok("CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON".to_owned())
            } else {
                Err("this user may not load eBPF programs".to_owned())
            },
            Status::Error,
            "run as root (sudo), or give the binary CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE",
        ),
        finding(
            "kernel type information",
            offsets.map(|offsets| offsets.to_string()).map_err(|error| error.to_string()),
            Status::Error,
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y (every large distribution since 2021)",
        ),
        finding(
            "uprobes",
            exists("/sys/bus/event_source/devices/uprobe/type", "the kernel has no user-space probes"),
            Status::Error,
            "use a kernel with CONFIG_UPROBE_EVENTS=y",
        ),
        finding(
            "eBPF programs",
            programs,
            Status::Error,
            "the message above says what the kernel refused; Linux 5.18 or later is needed",
        ),
        finding(
            "cheapest probes",
            cheapest,
            Status::Warning,
            "recording works, but each probed call costs more; Linux 6.6 has multi-function links, 6.13 sessions",
        ),
        finding(
            "page faults and out-of-memory kills",
            extras,
            Status::Warning,
            "recording works; the run lacks these rows and says so (out-of-memory kills need Linux 6.9)",
        ),
        finding(
            "NVIDIA driver",
            host::nvidia_driver().ok_or_else(|| "no NVIDIA kernel driver is loaded".to_owned()),
            Status::Warning,
            "install the driver, unless the traced process brings its own CUDA library (a stub, a container)",
        ),
        finding(
            "CUDA driver library",
            driver_library(),
            Status::Warning,
            "install the NVIDIA driver's user-space part",
        ),
        finding(
            "GPU counters (NVML)",
            nvml,
            Status::Warning,
            "recording works; the run lacks memory, clocks and utilisation of the GPUs, and says so",
        ),
    ];
    let can_record = findings.iter().all(|finding| finding.status != Status::Error);
    let sandbox = with_sandbox.then(|| sandbox::sandbox(attached_by));
    Report { can_record, findings, sandbox }
}

impl Report {
    /// Whether every requirement for recording is met.
    pub(crate) fn can_record(&self) -> bool {
        self.can_record
    }

    /// The report as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .map_or_else(|error| format!("{{\"error\":{error:?}}}\n"), |json| json + "\n")
    }

    /// The report as text, with a closing line that says whether this machine can record.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let mark = match finding.status {
                Status::Ok => "ok     ",
                Status::Warning => "warning",
                Status::Error => "ERROR  ",
            };
            text += &format!("{mark}  {}: {}\n", finding.name, finding.detail);
            if let Some(fix) = finding.fix {
                text += &format!("         → {fix}\n");
            }
        }
        text += if self.can_record { "This machine can record.\n" } else { "This machine cannot record.\n" };
        if let Some(sandbox) = &self.sandbox {
            text += &sandbox.to_text();
        }
        text
    }
}
