//! Wrong usage is refused before anything is traced. These tests need no eBPF.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// The exit code and the error output of `capture` with `args`.
fn capture(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_capture")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_usage_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let out = ["--out", out.to_str().unwrap()];
    for args in [
        // Without a file there is nowhere to record to.
        &[][..],
        &["--all-cuda"],
        &["--pid", "1"],
        &["--", "true"],
    ] {
        let (code, message) = capture(args);
        assert_eq!((code, message.contains("--out")), (Some(2), true), "{args:?}: {message}");
    }
    for args in [
        &["--duration", "soon", "--", "true"][..],
        &["--buffer", "100KiB", "--", "true"],
        // There is one subject at most.
        &["--pid", "1", "--all-cuda"],
        &["--pid", "1", "--wait-for", "python3"],
        &["--wait-for", "python3", "--all-cuda"],
        &["--all-cuda", "--", "true"],
        &["--pid", "1", "--", "true"],
        &["--wait-for", "python3", "--", "true"],
        // A script whose variable for the command is empty.
        &["--"],
    ] {
        let (code, message) = capture(&[&out[..], args].concat());
        assert_eq!(code, Some(2), "{args:?}: {message}");
        assert!(message.contains("Usage:") || message.contains("--help"), "{args:?}: {message}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn help_says_what_is_recorded_without_a_subject() {
    let output = Command::new(env!("CARGO_BIN_EXE_capture")).arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("records every process of this machine that uses CUDA"), "{text}");
}
