//! Wrong usage is refused before anything is traced. These tests need no eBPF.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

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
fn check_says_what_a_recorder_keeps() {
    let check = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_capture")).arg("check").args(args).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 4)));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = check(&["--sandbox"]);
    for expected in ["no_new_privs", "seccomp", "Landlock", "--all-cuda", "CAP_SYS_PTRACE", "memory maps"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("TaskOffsets"), "a struct of the program: {text}");
    let json: serde_json::Value = serde_json::from_str(&check(&["--sandbox", "--json"])).unwrap();
    assert_eq!(json["sandbox"]["modes"].as_array().unwrap().len(), 4);
    assert!(json["sandbox"]["no_new_privs"]["is_applied"] == true && json["findings"].is_array());
    let json: serde_json::Value = serde_json::from_str(&check(&["--json"])).unwrap();
    assert!(json["sandbox"].is_null());
}

#[test]
fn an_error_that_nobody_can_be_told_keeps_its_exit_code() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for (args, expected) in
        [(["probes"].to_vec(), 5), (["--out", "/missing/run.parquet", "--", "true"].to_vec(), 2)]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capture"));
        let status = command.args(&args).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{args:?}");
    }
}

#[test]
fn help_says_what_is_recorded_without_a_subject() {
    let output = Command::new(env!("CARGO_BIN_EXE_capture")).arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("records every process of this machine that uses CUDA"), "{text}");
}

/// Runs `capture` on a command that does nothing; what it says. It must refuse, before it asks for privileges.
fn refused(out: &Path, args: &[&str]) -> String {
    let (code, message) = capture(&[&["--out", out.to_str().unwrap()], args, &["--", "true"]].concat());
    assert_eq!(code, Some(2), "{}: {message}", out.display());
    message
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name);
    fs::create_dir(inside("folder")).unwrap();
    symlink("/dev/full", inside("device")).unwrap();
    assert!(Command::new("mkfifo").arg(inside("pipe")).status().unwrap().success());
    for (out, what) in [
        (inside("folder"), "is a folder"),
        (inside("device"), "is a symbolic link to a character device"),
        (inside("pipe"), "is a named pipe"),
        (PathBuf::from("/dev/full"), "is a character device"),
        (PathBuf::from("/dev/stdout"), "is a stream"),
        (inside("missing/run.parquet"), "missing: No such file"),
        (inside("pipe/run.parquet"), "pipe: Not a directory"),
    ] {
        let message = refused(&out, &["--force"]);
        assert!(message.contains(what), "{}: {message}", out.display());
    }
    fs::write(inside("precious"), "precious").unwrap();
    symlink(inside("precious"), inside("latest")).unwrap();
    assert!(refused(&inside("precious"), &[]).contains("--force"));
    assert!(refused(&inside("latest"), &[]).contains("--force"));
    fs::rename(inside("precious"), inside("run.0007.parquet")).unwrap();
    assert!(refused(&inside("run.parquet"), &["--max-size", "1MiB"]).contains("run.0007.parquet"));
    assert_eq!(fs::read_to_string(inside("run.0007.parquet")).unwrap(), "precious");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
}

#[test]
fn a_link_at_the_name_of_the_recording_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name);
    fs::write(inside("precious"), "precious").unwrap();
    let parts = ["--force", "--max-size", "1MiB"];
    for (recording, args) in
        [("run.parquet.recording", &["--force"][..]), ("run.0001.parquet.recording", &parts[..])]
    {
        symlink(inside("precious"), inside(recording)).unwrap();
        assert!(refused(&inside("run.parquet"), args).contains("is a symbolic link"));
        fs::remove_file(inside(recording)).unwrap();
        fs::hard_link(inside("precious"), inside(recording)).unwrap();
        assert!(refused(&inside("run.parquet"), args).contains("is one of several names"));
        fs::remove_file(inside(recording)).unwrap();
        symlink(inside("nothing"), inside(recording)).unwrap();
        assert!(refused(&inside("run.parquet"), args).contains("is a symbolic link"));
        fs::remove_file(inside(recording)).unwrap();
    }
    assert_eq!(fs::read_to_string(inside("precious")).unwrap(), "precious");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_is_quoted_from_the_command_line_is_harmless() {
    let hostile = "no\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";
    let option = format!("--{hostile}");
    for args in [
        &[&option[..], "--", "true"][..],
        &["--redact", hostile, "--", "true"],
        &["--stacks", hostile, "--", "true"],
    ] {
        let (code, message) = capture(&[&["--out", "run.parquet"][..], args].concat());
        assert_eq!(code, Some(2), "{message}");
        let is_harmful = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!message.is_empty() && !message.contains(is_harmful), "{message:?}");
    }
}

#[test]
fn a_demo_without_privileges_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let demo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capture"));
        command.current_dir(directory.path()).arg("demo").args(args).output().unwrap()
    };
    for wrong in ["0", "601", "soon"] {
        assert_eq!(demo(&["--seconds", wrong]).status.code(), Some(2), "{wrong}");
    }
    let check = Command::new(env!("CARGO_BIN_EXE_capture")).arg("check").status().unwrap();
    if check.code() == Some(4) {
        let refused = demo(&[]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(4), "{message}");
        assert!(message.contains("This machine cannot record."), "{message}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
