//! The recording machine: its description in the metadata of a run, and its driver.

use std::{fs, path::PathBuf};

use trace_schema::{Gpu, Host};

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Value of the first line `key<separator>value`, without quotes; empty if there is none.
fn value(text: &str, key: &str, separator: char) -> String {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().trim_matches('"').to_owned())
        .unwrap_or_default()
}

/// Describes this machine.
pub(crate) fn host() -> Host {
    Host {
        name: line("/proc/sys/kernel/hostname"),
        kernel: line("/proc/sys/kernel/osrelease"),
        os: value(&line("/etc/os-release"), "PRETTY_NAME", '='),
        cpu: value(&line("/proc/cpuinfo"), "model name", ':'),
        cpu_count: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
    }
}

/// Version of the NVIDIA kernel driver, if it is loaded.
pub(crate) fn nvidia_driver() -> Option<String> {
    let version = line("/proc/driver/nvidia/version");
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  <date>"
    version
        .split_whitespace()
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
        .map(str::to_owned)
}

/// The GPUs that the NVIDIA driver lists in /proc, in the order of their bus addresses.
pub(crate) fn gpus() -> Vec<Gpu> {
    let driver = nvidia_driver().unwrap_or_default();
    let Ok(entries) = fs::read_dir("/proc/driver/nvidia/gpus") else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| Gpu {
            name: value(&line(&path.join("information").to_string_lossy()), "Model", ':'),
            driver: driver.clone(),
        })
        .collect()
}

/// Path of the driver's library in one of its usual directories, in this mount namespace or the host's.
pub(crate) fn driver_library() -> Option<PathBuf> {
    const DIRECTORIES: [&str; 6] = [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib64",
        "usr/local/nvidia/lib64",
        "usr/lib",
        "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "run/nvidia/driver/usr/lib64",
    ];
    ["/", "/proc/1/root"]
        .into_iter()
        .flat_map(|root| {
            DIRECTORIES.map(|directory| PathBuf::from(root).join(directory).join("libcuda.so.1"))
        })
        .find_map(|path| path.canonicalize().ok())
}
