//! The control group of a process, the container and pod that the group's path names, and how long the
//! kernel throttled such a group (CPU quota).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use procfs::process::Process;
use trace_schema::{Kind, ProcessInfo, Row};

use crate::environment;

/// Length of a container id in hexadecimal.
const CONTAINER_ID: usize = 64;

/// Describes a process for the run's metadata; fields are empty if it is gone.
pub(crate) fn describe(pid: u32) -> ProcessInfo {
    let Ok(process) = Process::new(pid as i32) else {
        return ProcessInfo { pid, ..ProcessInfo::default() };
    };
    let cgroup = path_of(&process);
    let (container_id, pod_uid) = identify(&cgroup);
    let pod_name = if pod_uid.is_empty() { String::new() } else { hostname(&process) };
    ProcessInfo {
        pid,
        parent_pid: process.stat().map_or(0, |stat| stat.ppid as u32),
        command: process.cmdline().unwrap_or_default(),
        cgroup,
        container_id,
        pod_uid,
        pod_name,
        environment: environment::memory_settings(pid),
        // Its libraries tell, once it has them.
        torch_version: String::new(),
    }
}

/// Path of the most specific group: in the unified hierarchy, or the first one that is not the root.
fn path_of(process: &Process) -> String {
    let groups = process.cgroups().map(|groups| groups.0).unwrap_or_default();
    let (unified, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| group.hierarchy == 0);
    let mut paths: Vec<String> = unified.into_iter().chain(others).map(|group| group.pathname).collect();
    let best = paths.iter().position(|path| path != "/").unwrap_or(0);
    if paths.is_empty() { String::new() } else { paths.swap_remove(best) }
}

/// The file with the throttling counters of a process's group, in either version of control groups.
fn counters_of(process: &Process) -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    process.cgroups().ok()?.into_iter().find_map(|group| {
        let path = group.pathname.trim_start_matches('/').to_owned();
        let mount = match group.hierarchy {
            0 => PathBuf::new(),
            _ if group.controllers.iter().any(|name| name == "cpu") => {
                PathBuf::from(group.controllers.join(","))
            }
            _ => return None,
        };
        let file = root.join(mount).join(path).join("cpu.stat");
        fs::read_to_string(&file).ok().and_then(|text| counters(&text)).map(|_| file)
    })
}

/// The host name in a process's environment: in a pod, the name of the pod.
fn hostname(process: &Process) -> String {
    let environment = process.environ().unwrap_or_default();
    environment
        .get(std::ffi::OsStr::new("HOSTNAME"))
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Container id and pod uid, as Docker, containerd, CRI-O and Podman write them into the path.
pub(crate) fn identify(cgroup: &str) -> (String, String) {
    let hexadecimal = |word: &str| word.len() == CONTAINER_ID && word.bytes().all(|b| b.is_ascii_hexdigit());
    let container = cgroup
        .split(['/', '-', '.', ':'])
        .rev()
        .find(|word| hexadecimal(word))
        .unwrap_or_default()
        .to_owned();
    let pod = cgroup
        .split('/')
        .filter_map(|part| part.rsplit_once("pod").map(|(_, uid)| uid.trim_end_matches(".slice")))
        .map(|uid| uid.replace('_', "-"))
        .find(|uid| uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
        .unwrap_or_default();
    (container, pod)
}

/// The throttling counters of the groups that traced processes are in.
#[derive(Default)]
pub(crate) struct Throttling {
    /// By counter file: a process of the group, and its throttling count and nanoseconds at the last reading.
    groups: BTreeMap<PathBuf, (u32, (u64, u64))>,
}

impl Throttling {
    /// Begins to read the counters of a process's group.
    pub(crate) fn watch(&mut self, pid: u32) {
        let file = Process::new(pid as i32).ok().and_then(|process| counters_of(&process));
        if let Some(file) = file
            && !self.groups.contains_key(&file)
            && let Some(now) = read(&file)
        {
            self.groups.insert(file, (pid, now));
        }
    }

    /// Rows for the groups that were throttled since the last reading.
    pub(crate) fn rows(&mut self, ts_ns: i64) -> Vec<Row> {
        let mut rows = Vec::new();
        self.groups.retain(|file, (pid, last)| {
            // The group is gone.
            let Some(now) = read(file) else {
                return false;
            };
            if now == *last {
                return true;
            }
            let before = std::mem::replace(last, now);
            let mut add = |op: &'static str, value: u64| {
                let row = Row::new(ts_ns, Kind::Sample, op.into(), *pid, *pid);
                rows.push(Row { value: Some(value as i64), ..row });
            };
            add("cgroup_throttled_count", now.0.saturating_sub(before.0));
            add("cgroup_throttled_ns", now.1.saturating_sub(before.1));
            true
        });
        rows
    }
}

fn read(file: &Path) -> Option<(u64, u64)> {
    counters(&fs::read_to_string(file).ok()?)
}

/// Throttling count and nanoseconds from the text of `cpu.stat`; version 2 counts microseconds.
pub(crate) fn counters(text: &str) -> Option<(u64, u64)> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let ns =
        value("throttled_time ").or_else(|| value("throttled_usec ").map(|us| us.saturating_mul(1000)))?;
    Some((value("nr_throttled ")?, ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_and_pods_are_recognised() {
        let id = "3f29c0d5e8f14ab7905512ab34cd56ef78901234abcdef5678901234567890ab";
        let uid = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
        for (path, container, pod) in [
            (format!("/system.slice/docker-{id}.scope"), id, ""),
            (format!("/docker/{id}"), id, ""),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{id}.scope",
                    uid.replace('-', "_")
                ),
                id,
                uid,
            ),
            (format!("/kubepods/besteffort/pod{uid}/{id}"), id, uid),
            ("/user.slice/user-1000.slice/session-3.scope".to_owned(), "", ""),
        ] {
            assert_eq!(identify(&path), (container.to_owned(), pod.to_owned()), "{path}");
        }
    }

    #[test]
    fn throttling_counters_are_read() {
        let text = "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 1200\n";
        assert_eq!(counters(text), Some((3, 1_200_000)));
        assert_eq!(counters("nr_periods 9\nnr_throttled 3\nthrottled_time 1200\n"), Some((3, 1200)));
        assert_eq!(counters("usage_usec 5\n"), None, "a group without the CPU controller");
    }

    #[test]
    fn this_process_is_described() {
        let here = describe(std::process::id());
        assert!(here.parent_pid > 0 && !here.command.is_empty());
    }
}
