//! `capture check --sandbox`: what a recorder keeps of its privileges on this machine, by the way it is used.

use std::io;

use caps::{CapSet, Capability};
use serde::Serialize;

use crate::{kernel::Method, privileges::Needs, seccomp};

/// The ways to choose whom to record, and whether processes are stopped for their probes.
const MODES: [(&str, bool); 4] =
    [("a command", true), ("--wait-for", true), ("--pid", false), ("--all-cuda, or no subject", false)];

/// Why Landlock is not used, whatever the kernel has.
const NO_LANDLOCK: &str = "not used: a process under Landlock may not look into processes outside of its own domain \
     (/proc/PID/root, on older kernels /proc/PID/maps, too), which finding their libraries takes in each mode";

/// Whether a restriction can be applied here, and what it does or why it cannot.
#[derive(Debug, Serialize)]
struct Restriction {
    is_applied: bool,
    detail: String,
}

impl Restriction {
    fn of(result: Result<(), String>, effect: &str) -> Self {
        match result {
            Ok(()) => Self { is_applied: true, detail: effect.to_owned() },
            Err(error) => Self { is_applied: false, detail: error },
        }
    }

    fn line(&self, name: &str) -> String {
        format!("  {} {name}: {}\n", if self.is_applied { "yes" } else { "no " }, self.detail)
    }
}

/// A capability that a mode keeps.
#[derive(Debug, Serialize)]
struct KeptCapability {
    name: String,
    /// Whether this user has it: what is not there is not kept either.
    is_held: bool,
    reason: &'static str,
}

/// What one mode keeps.
#[derive(Debug, Serialize)]
struct Mode {
    mode: &'static str,
    capabilities: Vec<KeptCapability>,
}

/// What a recorder keeps while it records.
#[derive(Debug, Serialize)]
pub(crate) struct Sandbox {
    bounding_set: Restriction,
    no_new_privs: Restriction,
    seccomp: Restriction,
    landlock: Restriction,
    /// Version of Landlock's interface that the kernel has; null if it has none.
    landlock_abi: Option<u32>,
    modes: Vec<Mode>,
}

/// The version of Landlock that the kernel has.
fn landlock_abi() -> io::Result<u32> {
    let (no_bytes, version): (libc::size_t, libc::c_ulong) = (0, 1);
    #[expect(unsafe_code, reason = "Landlock has no safe interface")]
    // SAFETY: with this flag the kernel reads no memory and returns a number.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), no_bytes, version)
    };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether the bounding set can be reduced.
fn bounding_set() -> Result<(), String> {
    let has = |set| caps::has_cap(None, set, Capability::CAP_SETPCAP).unwrap_or(false);
    if has(CapSet::Effective) {
        Ok(())
    } else {
        Err("this user has no CAP_SETPCAP, so it stays; no program is executed that could use it".to_owned())
    }
}

/// What a recorder keeps on this machine; `method` is how probes are attached, if that is known.
pub(crate) fn sandbox(method: Option<Method>) -> Sandbox {
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let mode = |(mode, stops)| {
        // Which folder is written to is not known here: the reason names the condition.
        let needs = Needs {
            stops,
            single: method == Some(Method::Single),
            foreign_folder: true,
            gives_files: trace_writer::sudo_caller().is_some(),
        };
        let kept = needs.kept().into_iter().map(|kept| KeptCapability {
            name: kept.capability.to_string(),
            is_held: permitted.contains(&kept.capability),
            reason: kept.reason,
        });
        Mode { mode, capabilities: kept.collect() }
    };
    let available = seccomp::available().map_err(|error| error.to_string());
    let abi = landlock_abi();
    let landlock = match &abi {
        Ok(abi) => format!("{NO_LANDLOCK} (this kernel has version {abi})"),
        Err(error) => format!("{NO_LANDLOCK} (this kernel has none: {error})"),
    };
    Sandbox {
        bounding_set: Restriction::of(bounding_set(), "reduced to what is kept, as are all other sets"),
        // Every kernel that can record has it.
        no_new_privs: Restriction::of(Ok(()), "no program can gain privileges when it is executed"),
        seccomp: Restriction::of(
            available,
            "executing programs, ptrace, mounts, namespaces, modules, keys, sockets of networks and others are refused \
             (EPERM)",
        ),
        landlock: Restriction::of(Err(landlock), ""),
        landlock_abi: abi.ok(),
        modes: MODES.map(mode).into(),
    }
}

impl Sandbox {
    /// The table as text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from("\nWhile it records, a recorder has these restrictions:\n");
        text += &self.bounding_set.line("bounding set of capabilities");
        text += &self.no_new_privs.line("no_new_privs");
        text += &self.seccomp.line("seccomp");
        text += &self.landlock.line("Landlock");
        text += "and keeps these capabilities, as far as it has them:\n";
        for Mode { mode, capabilities } in &self.modes {
            text += &format!("  {mode}\n");
            for KeptCapability { name, is_held, reason } in capabilities {
                let absent = if *is_held { "" } else { " (this user does not have it)" };
                text += &format!("    {name:<20}  {reason}{absent}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_is_listed_with_its_reasons() {
        let sandbox = sandbox(Some(Method::Session));
        let names = |mode: &Mode| -> Vec<String> {
            mode.capabilities.iter().map(|capability| capability.name.clone()).collect()
        };
        assert_eq!(sandbox.modes.len(), MODES.len());
        assert!(names(&sandbox.modes[0]).contains(&"CAP_KILL".to_owned()));
        assert!(!names(&sandbox.modes[2]).contains(&"CAP_KILL".to_owned()), "--pid stops nobody");
        let text = sandbox.to_text();
        for expected in ["a command", "--pid", "CAP_BPF", "no_new_privs", "seccomp", "Landlock"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
