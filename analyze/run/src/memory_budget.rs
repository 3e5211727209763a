//! The memory that one command may take, and a thread that ends the command when it takes more.
//!
//! The kernel counts what the process holds: the private pages of all threads and libraries. What SQL can spill to disk, it
//! spills before the budget is reached; what is held elsewhere (replays, verdicts, frames, a decoded page) is counted, too.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    error::{AnalyzeError, EXIT_BAD_INPUT},
    progress,
};

/// What the program takes for itself and for the batches that are on their way, beside the budget.
const PROGRAM_BYTES: usize = 256 << 20;
/// The time between two looks at the memory.
const PERIOD: Duration = Duration::from_millis(10);
/// The time that a command gets to end by itself, and to remove its temporary files.
const PATIENCE: Duration = Duration::from_secs(1);

/// The budget that was asked for; 0 for the default one.
static ASKED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Whether somebody has begun to report that the budget is exceeded.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Sets the budget.
pub fn set(bytes: usize) {
    ASKED_BYTES.store(bytes.max(1), Ordering::Relaxed);
}

/// Returns the budget: the one that was set, or half of the memory that the machine or its control group has.
pub fn bytes() -> usize {
    match ASKED_BYTES.load(Ordering::Relaxed) {
        0 => available_bytes(Path::new("/")).unwrap_or(usize::MAX) / 2,
        bytes => bytes,
    }
}

/// Returns the error of a budget that is exceeded.
pub fn exceeded(detail: impl Into<String>) -> AnalyzeError {
    AnalyzeError::MemoryBudget { budget_bytes: bytes(), detail: detail.into() }
}

/// Returns the least of the machine's memory and the limits of the control groups of this process. `root` is where `/proc` and
/// `/sys` are.
fn available_bytes(root: &Path) -> Option<usize> {
    let limits = control_groups(root).into_iter().filter_map(|file| {
        // A control group of version 2 without a limit says `max`, one of version 1 a number beyond all memory.
        fs::read_to_string(file).ok()?.trim().parse::<usize>().ok()
    });
    limits.chain(machine_bytes(root)).min()
}

fn machine_bytes(root: &Path) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Returns the files with the memory limits of this process's control groups and of those around them.
fn control_groups(root: &Path) -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string(root.join("proc/self/cgroup")) else { return Vec::new() };
    let mut files = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (folder, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| root.join(folder).join(group).join(file)));
    }
    files
}

/// Returns the private memory that this process holds, in bytes; `None` if the kernel does not tell.
pub fn held_bytes() -> Option<usize> {
    // Pages in all, resident ones, and resident ones that are shared with files. Linux on x86-64 has pages of 4 KiB; where
    // they are larger, the budget is as much larger.
    const PAGE_BYTES: usize = 4096;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().skip(1).map_while(|count| count.parse::<usize>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared).saturating_mul(PAGE_BYTES))
}

/// Watches the memory of this process until it ends. The receiver gets a message when the budget is exceeded. If the program
/// does not end soon after that, or takes a quarter more, the thread prints the error and ends the process.
pub fn watch() -> oneshot::Receiver<()> {
    let (over, is_over) = oneshot::channel();
    let limit = bytes().saturating_add(PROGRAM_BYTES);
    thread::spawn(move || {
        let is_above = |limit: usize| held_bytes().is_some_and(|held| held > limit);
        while !is_above(limit) {
            thread::sleep(PERIOD);
        }
        // Nobody listens if the command is at its end.
        let _ = over.send(());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !is_above(limit.saturating_add(limit / 4)) {
            thread::sleep(PERIOD);
        }
        if is_first_report() {
            progress::print(&format!("analyze: {}", exceeded("")));
            std::process::exit(EXIT_BAD_INPUT.into());
        }
    });
    is_over
}

/// Returns whether nobody has reported yet that the budget is exceeded, and that the caller does.
pub fn is_first_report() -> bool {
    !REPORTED.swap(true, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file of a made-up `/proc` or `/sys`.
    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn the_least_limit_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert_eq!(available_bytes(root), None);
        write(root, "proc/meminfo", "MemTotal:        2048 kB\nMemFree:  7 kB\n");
        assert_eq!(available_bytes(root), Some(2048 << 10));
        write(root, "proc/self/cgroup", "0::/kube/pod\n");
        write(root, "sys/fs/cgroup/kube/pod/memory.max", "max\n");
        assert_eq!(available_bytes(root), Some(2048 << 10));
        write(root, "sys/fs/cgroup/kube/memory.max", "1048576\n");
        assert_eq!(available_bytes(root), Some(1 << 20));
        write(root, "proc/self/cgroup", "5:cpu,memory:/a\n0::/\n");
        write(root, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n");
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(available_bytes(root), Some(4096));
    }

    #[test]
    fn held_memory_grows_with_what_is_held() {
        let before = held_bytes().expect("/proc/self/statm");
        let held = vec![1_u8; 64 << 20];
        let after = held_bytes().expect("/proc/self/statm");
        assert!(after >= before + (32 << 20), "{before} {after}");
        assert_eq!(held.iter().next_back(), Some(&1));
    }
}
