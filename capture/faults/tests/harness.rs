//! Faults come where they are planned, and a program that is not careful is found out.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use fault_injection::{
    Kind,
    campaign::{self, Effort},
    fault::{Fault, FileSystem, Plan, PowerCut, When},
    outputs::Outputs,
    trial::{self, Trial},
};
use rustix::io::Errno;

/// Copies 30 bytes into the file `out`, 10 at a time.
fn dd(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("dd");
    command.current_dir(folder).args(["if=/dev/zero", "of=out", "bs=10", "count=3"]).args(options);
    command
}

/// Runs it with a fault; returns the trial, and the length of the file if there is one.
fn try_dd(options: &[&str], fault: Option<(When, Fault)>) -> (Trial, Option<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { file_system: FileSystem::Local, fault };
    let trial = trial::run(&mut dd(folder.path(), options), folder.path(), &plan).unwrap();
    let length = fs::metadata(folder.path().join("out")).ok().map(|metadata| metadata.len());
    (trial, length)
}

fn at(call: usize, fault: Fault) -> Option<(When, Fault)> {
    Some((When::Call(call), fault))
}

#[test]
fn calls_on_files_of_the_folder_are_counted_and_no_others() {
    let (trial, length) = try_dd(&["conv=fsync"], None);
    assert!(trial.status.success() && !trial.is_hit, "{trial:?}");
    assert_eq!(length, Some(30));
    let kinds: Vec<Kind> = trial.calls.iter().map(|call| call.kind).collect();
    assert_eq!(kinds, [Kind::Create, Kind::Write, Kind::Write, Kind::Write, Kind::Sync]);
    assert!(trial.calls.iter().all(|call| call.path.ends_with("out")), "{:?}", trial.calls);
}

#[test]
fn a_call_fails_as_planned() {
    let (trial, length) = try_dd(&[], at(1, Fault::Fail(Errno::NOSPC)));
    assert!(trial.is_hit && trial.stderr.contains("No space left"), "{}", trial.stderr);
    assert_eq!((trial.status.code(), length), (Some(1), None));
    let (trial, length) = try_dd(&[], at(3, Fault::Fail(Errno::IO)));
    assert!(trial.is_hit && trial.stderr.contains("Input/output error"), "{}", trial.stderr);
    assert_eq!((trial.status.code(), length), (Some(1), Some(10)));
    // After its last call, nothing can come.
    let (trial, length) = try_dd(&[], at(5, Fault::Fail(Errno::IO)));
    assert!(!trial.is_hit && trial.status.success() && length == Some(30), "{trial:?}");
}

#[test]
fn a_write_is_cut_short_and_a_full_disk_stays_full() {
    let (trial, length) = try_dd(&[], at(3, Fault::Short));
    assert!(trial.status.success() && trial.is_hit, "{trial:?}");
    assert_eq!((length, trial.calls.len()), (Some(30), 5), "the rest is written by a call of its own");
    let (trial, length) = try_dd(&[], at(3, Fault::Full));
    assert!(trial.stderr.contains("No space left"), "{}", trial.stderr);
    assert_eq!((trial.status.code(), length), (Some(1), Some(15)));
}

#[test]
fn a_call_comes_late() {
    let start = Instant::now();
    let (trial, length) = try_dd(&[], at(2, Fault::Delay(Duration::from_millis(300))));
    assert!(trial.status.success() && length == Some(30), "{trial:?}");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_kill_comes_before_the_call_or_at_its_time() {
    for (call, expected) in [(1, None), (2, Some(0)), (4, Some(20))] {
        let (trial, length) = try_dd(&[], at(call, Fault::Kill));
        assert_eq!((trial.status.signal(), length), (Some(9), expected), "{call}");
    }
    let folder = tempfile::tempdir().unwrap();
    let plan =
        Plan { fault: Some((When::After(Duration::from_millis(200)), Fault::Kill)), ..Plan::default() };
    let start = Instant::now();
    let trial = trial::run(Command::new("sleep").arg("30"), folder.path(), &plan).unwrap();
    assert_eq!(trial.status.signal(), Some(9));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let end = |cut: PowerCut| Some((When::End, Fault::PowerCut(cut)));
    for keeps_length in [false, true] {
        let cut = PowerCut { keeps_length, takes_names: false };
        assert_eq!(try_dd(&["conv=fsync"], end(cut)).1, Some(30));
        let left = if keeps_length { 30 } else { 0 };
        assert_eq!(try_dd(&[], end(cut)).1, Some(left));
        // The folder was not synced, whatever the file was.
        let cut = PowerCut { takes_names: true, ..cut };
        assert_eq!(try_dd(&["conv=fsync"], end(cut)).1, None);
    }
    // Before the sync, not after it.
    let cut = Fault::PowerCut(PowerCut { keeps_length: false, takes_names: false });
    let (trial, length) = try_dd(&["conv=fsync"], at(5, cut));
    assert_eq!((trial.status.signal(), length), (Some(9), Some(0)));
}

#[test]
fn a_program_that_is_not_careful_is_found_out() {
    // The name comes before the content, nothing is synced, and a full disk has an exit code of its own.
    let write = ["-c", "for i in 1 2 3; do echo line $i; done > out"];
    let careless = Outputs::new(Path::new("/bin/sh"), &write, []).unwrap();
    let effort = Effort { trials_count: 200, threads_count: 2, seed: 1 };
    let tally = campaign::walk(&careless, effort, |_| true).unwrap();
    for what in ["out is not whole", "exit status", "its output is"] {
        assert!(tally.wrong.iter().any(|wrong| wrong.contains(what)), "{what}: {:#?}", tally.wrong);
    }
    assert_eq!(tally.trials_count, 200);
}
