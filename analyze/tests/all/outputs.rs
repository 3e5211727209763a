//! Output files: whole or absent, whatever ends the program; nothing but regular files is replaced; who may read them.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::support::{outcome, path, refused, run, stdout, testdata};

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A query whose rows never end.
const ENDLESS: &str = "SELECT value FROM generate_series(1, 1000000000000)";

#[test]
fn a_query_that_fails_keeps_the_old_answer_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = run("compile");
    // It fails when many rows are written already.
    let fails = "SELECT 100 / (value - 900000) AS x FROM generate_series(1, 1000000)";
    for name in ["out.csv", "out.parquet"] {
        let out = folder.path().join(name);
        fs::write(&out, "kept").unwrap();
        let (code, _, said) = outcome(&["sql", &run, fails, "--out", path(&out), "--force"]);
        assert!(code != 0 && said.to_lowercase().contains("divide by zero"), "{code}: {said}");
        assert_eq!(fs::read_to_string(&out).unwrap(), "kept");
        let said = refused(&["sql", &run, ENDLESS, "--out", path(&out), "--force", "--timeout", "500ms"]);
        assert!(said.contains("--timeout"), "{said}");
        assert_eq!(fs::read_to_string(&out).unwrap(), "kept");
        let (absent, out) = (folder.path().join("absent"), path(&out).to_owned());
        refused(&["sql", &run, ENDLESS, "--out", path(&absent), "--timeout", "500ms"]);
        assert!(refused(&["sql", &run, "SELECT 1", "--out", &out]).contains("--force"));
    }
    assert_eq!(names(folder.path()), ["out.csv", "out.parquet"]);
}

/// Whether the process has written a lot to a file in the folder, by whatever name.
fn writes(pid: u32, folder: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    open.flatten().any(|file| {
        fs::read_link(file.path()).is_ok_and(|to| to.starts_with(folder))
            && fs::metadata(file.path()).is_ok_and(|metadata| metadata.len() > 1 << 20)
    })
}

#[test]
fn a_signal_leaves_what_was_there_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let out = folder.join("out.csv");
    fs::write(&out, "kept").unwrap();
    for (name, number) in [("INT", 2), ("TERM", 15), ("KILL", 9)] {
        // A shell that runs in the background may have told its children to ignore SIGINT.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_analyze"), "sql", &run("compile"), ENDLESS])
            .args(["--force", "--out", path(&out)])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !writes(child.id(), &folder) {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is written");
            std::thread::sleep(Duration::from_millis(10));
        }
        Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert_eq!(names(&folder), ["out.csv"], "{name}");
        assert_eq!(fs::read_to_string(&out).unwrap(), "kept");
    }
}

#[test]
fn only_regular_files_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| path(&folder.path().join(name)).to_owned();
    fs::create_dir(inside("folder.csv")).unwrap();
    symlink("/dev/full", inside("device.csv")).unwrap();
    assert!(Command::new("mkfifo").arg(inside("pipe.csv")).status().unwrap().success());
    fs::write(inside("file"), "a file").unwrap();
    let before = names(folder.path());
    let (run, imported) = (run("compile"), testdata("kineto/small.json.gz"));
    let verbs: [&[&str]; 14] = [
        &["sql", &run, "SELECT 1", "--out"],
        &["slice", &run, "--out"],
        &["merge", &run, &run, "--out"],
        &["align", &run, &run, "--out"],
        &["import", &imported, "--out"],
        &["recover", &run, "--out"],
        &["baseline", "save"],
        &["baseline", "export", &run, "--out"],
        &["trend", &run, "--svg"],
        &["compare", &run, &run, "--html"],
        &["report", &run, "--html"],
        &["export", "perfetto", &run, "--out"],
        &["export", "events", &run, "--out"],
        &["export", "folded", &run, "--what", "allocated-bytes", "--svg"],
    ];
    for verb in verbs {
        for (out, what) in [
            ("folder.csv", "is a folder"),
            ("device.csv", "is a symbolic link to a character device"),
            ("pipe.csv", "is a named pipe"),
            ("missing/out.csv", "missing: No such file"),
            ("file/out.csv", "file: Not a directory"),
        ] {
            let out = inside(out);
            let mut args = verb.to_vec();
            args.extend([out.as_str(), "--force"]);
            if verb == ["baseline", "save"] {
                args.push(&run);
            }
            let said = refused(&args);
            assert!(said.contains(what), "{args:?}: {said}");
        }
    }
    let said = refused(&["sql", &run, "SELECT 1", "--out", "/dev/full", "--force"]);
    assert!(said.contains("is a character device"), "{said}");
    assert_eq!(names(folder.path()), before);
}

#[test]
fn a_link_is_replaced_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (precious, latest) = (folder.path().join("precious"), folder.path().join("latest.csv"));
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, &latest).unwrap();
    let run = run("compile");
    let query = ["sql", run.as_str(), "SELECT 1 AS x", "--out", path(&latest)];
    assert!(refused(&query).contains("--force"));
    stdout(&[&query[..], &["--force"]].concat());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(fs::symlink_metadata(&latest).unwrap().is_file());
    assert_eq!(fs::read_to_string(&latest).unwrap(), "x\n1\n");
    // Standard output is no file that is replaced.
    let query = ["sql", run.as_str(), "SELECT 1 AS x", "--out", "/dev/stdout"];
    assert_eq!(stdout(&query), "x\n1\n");
    assert!(fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
}

#[test]
fn runs_are_for_their_owner_who_is_the_user_of_sudo() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("plain"), "").unwrap();
    let plain = fs::metadata(inside("plain")).unwrap();
    let run = run("compile");
    let write = |args: &[&str], name: &str| -> PathBuf {
        let output = Command::new(env!("CARGO_BIN_EXE_analyze"))
            .args(args)
            .args(["--out", path(&inside(name))])
            .env("SUDO_UID", "65533")
            .env("SUDO_GID", "65534")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        inside(name)
    };
    let private = [
        write(&["slice", &run, "--to", "1ms"], "slice.parquet"),
        write(&["export", "events", &run], "events.arrow"),
    ];
    let shared = [write(&["sql", &run, "SELECT 1"], "answer.csv")];
    let private = private.iter().map(|path| (path, 0o600));
    let shared = shared.iter().map(|path| (path, plain.mode() & 0o777));
    // Who is not root is not there by sudo, whatever the variables say.
    let owner = if plain.uid() == 0 { (65533, 65534) } else { (plain.uid(), plain.gid()) };
    for (path, mode) in private.chain(shared) {
        let metadata = fs::metadata(path).unwrap();
        let found = (metadata.uid(), metadata.gid(), metadata.mode() & 0o777);
        assert_eq!(found, (owner.0, owner.1, mode), "{}", path.display());
    }
}

#[test]
fn an_error_that_nobody_can_be_told_keeps_its_exit_code() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for (run, expected) in [("missing.parquet".to_owned(), 2), (run("compile"), 5)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_analyze"));
        let status = command.args(["info", &run]).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{run}");
    }
}

#[test]
fn a_recording_of_nothing_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.parquet.recording");
    for bytes in [&b""[..], b"IN", b"INQr\x00\x01\x00\x00\x01\x02\x03\x04half a head"] {
        fs::write(&recording, bytes).unwrap();
        let said = refused(&["recover", path(&recording)]);
        assert!(said.contains("run.parquet.recording: nothing was recorded yet"), "{said}");
    }
    assert_eq!(names(folder.path()), ["run.parquet.recording"]);
}
