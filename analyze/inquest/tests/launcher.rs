//! Which program `inquest` becomes, where it finds it, and what it says if it finds none: on stand-ins in the layouts of
//! the packages. What the packages themselves do is `.ci/try-packages`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    os::unix::{fs::PermissionsExt, fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// A prefix with `bin/inquest`, and both programs in a folder below it.
struct Installed {
    prefix: TempDir,
}

/// Writes a program: a script for the shell.
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Installed {
    fn new() -> Self {
        let prefix = tempfile::tempdir().unwrap();
        fs::create_dir(prefix.path().join("bin")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_inquest"), prefix.path().join("bin/inquest")).unwrap();
        Self { prefix }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.prefix.path().join(path)
    }

    /// Puts both programs into a folder; they say the folder, their name and their arguments, and end with code 3.
    fn with(self, folder: &str) -> Self {
        for name in ["capture", "analyze"] {
            let text = format!("echo {folder} {name} \"$@\"\nexit 3");
            script(&self.path(folder).join(name), &text);
        }
        self
    }

    fn run(&self, args: &[&str]) -> Output {
        // Without PATH: nothing is looked up there.
        Command::new(self.path("bin/inquest")).args(args).env_remove("PATH").output().unwrap()
    }
}

/// Returns what a run printed on both streams, and its exit code.
fn said(output: &Output) -> (String, Option<i32>) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (String::from_utf8(text).unwrap().trim_end().to_owned(), output.status.code())
}

#[test]
fn every_layout_of_a_package_is_found() {
    for folder in [
        "libexec/inquest",
        "inquest_gpu/_bin",
        "lib/python3.11/site-packages/inquest_gpu/_bin",
        "lib/python3/dist-packages/inquest_gpu/_bin",
        "lib64/python3.12/site-packages/inquest_gpu/_bin",
        "bin",
    ] {
        let installed = Installed::new().with(folder);
        let output = installed.run(&["analyze", "chains", "run.parquet", "--json"]);
        assert_eq!(said(&output), (format!("{folder} analyze chains run.parquet --json"), Some(3)));
        let output = installed.run(&["capture", "--", "true"]);
        assert_eq!(said(&output), (format!("{folder} capture -- true"), Some(3)));
    }
}

#[test]
fn the_package_comes_before_a_neighbour_and_the_own_version_before_another() {
    let installed = Installed::new().with("bin").with("libexec/inquest");
    assert_eq!(said(&installed.run(&["capture"])).0, "libexec/inquest capture");
    let [old, new] = ["lib/python3.11/site-packages", "lib/python3.12/site-packages"];
    let installed =
        Installed::new().with(&format!("{old}/inquest_gpu/_bin")).with(&format!("{new}/inquest_gpu/_bin"));
    let version = format!("inquest_gpu-{}.dist-info", env!("CARGO_PKG_VERSION"));
    fs::create_dir(installed.path(new).join(version)).unwrap();
    assert_eq!(said(&installed.run(&["capture"])).0, format!("{new}/inquest_gpu/_bin capture"));
}

#[test]
fn a_link_to_inquest_finds_the_programs() {
    let installed = Installed::new().with("libexec/inquest");
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("gpu-inquest");
    symlink(installed.path("bin/inquest"), &link).unwrap();
    let output = Command::new(link).arg("analyze").output().unwrap();
    assert_eq!(said(&output), ("libexec/inquest analyze".to_owned(), Some(3)));
}

#[test]
fn a_run_alone_is_analyzed() {
    let installed = Installed::new().with("libexec/inquest");
    for run in ["run.parquet", "runs/monday", "*", "trace.json.gz"] {
        let output = installed.run(&[run, "--json"]);
        assert_eq!(said(&output), (format!("libexec/inquest analyze {run} --json"), Some(3)));
    }
}

#[test]
fn wrong_usage_is_said() {
    let installed = Installed::new().with("libexec/inquest");
    for args in
        [&["report"][..], &["--jobs"], &["-x.parquet"], &[""], &["Analyze", "run.parquet"], &["a\u{1b}[2Jb"]]
    {
        let (text, code) = said(&installed.run(args));
        assert_eq!(code, Some(2), "{text}");
        assert!(text.starts_with("inquest: \"") && text.contains("inquest analyze report"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    let (text, code) = said(&installed.run(&[]));
    assert_eq!((text.contains("Usage: inquest capture"), code), (true, Some(2)), "{text}");
    for flag in ["--help", "-h", "help"] {
        let (text, code) = said(&installed.run(&[flag]));
        assert_eq!((text.contains("Exit codes:"), code), (true, Some(0)), "{text}");
    }
}

#[test]
fn a_program_that_is_missing_or_cannot_start_is_said_with_the_places() {
    let installed = Installed::new();
    let (text, code) = said(&installed.run(&["analyze", "run.parquet"]));
    assert_eq!(code, Some(5), "{text}");
    for place in ["libexec/inquest", "inquest_gpu/_bin", "bin"] {
        assert!(text.contains(installed.path(place).to_str().unwrap()), "{place}: {text}");
    }
    let program = installed.path("libexec/inquest/analyze");
    script(&program, "");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let (text, code) = said(&installed.run(&["analyze"]));
    assert_eq!((text.contains("cannot start"), code), (true, Some(5)), "{text}");
}

#[test]
fn versions_are_compared() {
    let own = env!("CARGO_PKG_VERSION");
    let installed = Installed::new();
    let program = |name: &str| installed.path("libexec/inquest").join(name);
    script(&program("capture"), &format!("echo capture {own}"));
    script(&program("analyze"), &format!("echo analyze {own}"));
    let same = format!("inquest {own}\ncapture {own}\nanalyze {own}");
    assert_eq!(said(&installed.run(&["--version"])), (same, Some(0)));
    script(&program("analyze"), "echo analyze 99.0.0");
    let (text, code) = said(&installed.run(&["-V"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("analyze 99.0.0") && text.contains("the version of analyze is not"), "{text}");
    script(&program("capture"), "exit 1");
    let (text, code) = said(&installed.run(&["-V"]));
    assert_eq!((text.contains("does not say its version"), code), (true, Some(5)), "{text}");
}

/// Returns a program or example of this build; the tests of the whole workspace have built it.
fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_inquest")).parent().unwrap().join(name);
    assert!(path.exists(), "{} is not built: run the tests of the whole workspace", path.display());
    path
}

#[test]
fn usage_names_the_command_that_was_typed() {
    for (name, verb) in [("capture", "check"), ("analyze", "chains")] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_inquest")).args([name, verb, "--help"]).output().unwrap();
        let (text, code) = said(&output);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("Usage: inquest {name} {verb}")), "{text}");
        let output = Command::new(built(name)).arg0(name).args([verb, "--help"]).output().unwrap();
        assert!(said(&output).0.contains(&format!("Usage: {name} {verb}")));
    }
}

#[test]
fn every_verb_has_a_manual_page_and_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(built("examples/reference")).arg(folder.path()).status().unwrap();
    assert!(status.success());
    let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
    for page in
        ["inquest", "inquest-capture", "inquest-capture-check", "inquest-analyze", "inquest-analyze-chains"]
    {
        let page_text = read(&format!("man/man1/{page}.1"));
        assert!(page_text.contains(".SH NAME") && page_text.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(read("man/man1/inquest-analyze-chains.1").contains("Exit codes"));
    for path in [
        "bash-completion/completions/inquest",
        "zsh/site-functions/_inquest",
        "fish/vendor_completions.d/inquest.fish",
    ] {
        let text = read(path);
        for word in ["capture", "analyze", "chains", "what-if", "memory-limit"] {
            assert!(text.contains(word), "{path}: {word}");
        }
    }
}
