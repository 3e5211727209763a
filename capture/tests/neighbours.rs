//! What other users and the traced process can do to a recorder: its socket for marks, and what it could do for
//! whoever took it over.
//!
//! These tests need what those of `stub.rs` need, and are ignored where those are.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::{
    fs::Permissions,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        net::UnixDatagram,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use arrow::{array::AsArray, compute::cast, datatypes::DataType};
use common::{CAPTURE, Rows};
use procfs::process::{Process, Status};

common::tests! {
    a_process_that_is_not_traced_is_not_heard_and_costs_no_memory,
    a_traced_process_is_bounded_and_what_is_dropped_is_counted,
    another_user_s_flood_costs_no_mark_and_no_memory if has_other_user(),
    nothing_is_written_through_what_another_user_puts_into_a_shared_folder if has_other_user(),
    only_a_dead_socket_of_this_user_makes_way_for_another if is_root(),
    a_killed_recorder_s_folder_is_removed_and_another_user_s_is_not if is_root(),
    a_recorder_keeps_the_least_and_the_command_all if is_root(),
}

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Whether another user's programs can be run, in Python.
fn has_other_user() -> bool {
    is_root() && common::succeeds("python3", &["-c", ""])
}

/// A script that another user runs.
fn as_nobody(script: &str, args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script]).args(args).uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

fn status(pid: u32) -> Option<Status> {
    Process::new(pid as i32).and_then(|process| process.status()).ok()
}

/// A recorder in the background, with its output file.
struct Recording {
    capture: Child,
    out: PathBuf,
}

impl Recording {
    /// Starts a recorder and waits until it has confined itself, which it does when it records.
    fn start(directory: &Path, environment: &[(&str, &Path)], args: &[&str]) -> Self {
        let out = directory.join("run.parquet");
        let capture = Command::new(CAPTURE)
            .arg("--out")
            .arg(&out)
            .args(args)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let this = Self { capture, out };
        let start = Instant::now();
        while this.status().seccomp != Some(2) {
            assert!(start.elapsed() < Duration::from_secs(30), "the recorder does not confine itself");
            thread::sleep(Duration::from_millis(10));
        }
        this
    }

    fn status(&self) -> Status {
        status(self.capture.id()).expect("a living recorder")
    }

    /// Process id of the command that the recorder started.
    fn command(&self) -> u32 {
        let own = self.capture.id() as i32;
        let is_child = |process: &Process| process.stat().is_ok_and(|stat| stat.ppid == own);
        procfs::process::all_processes().unwrap().flatten().find(is_child).unwrap().pid as u32
    }

    /// Ends the recording as Ctrl-C does; returns the run, and what the recorder said on stderr.
    fn finish(mut self) -> (Rows, String) {
        Command::new("kill").args(["-INT", &self.capture.id().to_string()]).status().unwrap();
        let mut said = String::new();
        self.capture.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = self.capture.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        (Rows::open(&self.out), said)
    }
}

/// A process to record that does nothing.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("100").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends marks with names that never recur from several threads for a second; returns how many.
fn flood(socket: &Path) -> usize {
    let until = Instant::now() + Duration::from_secs(1);
    let sender = |thread: usize| {
        let sender = UnixDatagram::unbound().unwrap();
        let mut sent = 0usize;
        while Instant::now() < until {
            let name = format!("begin {thread} {sent} {}", "x".repeat(180));
            sender.send_to(name.as_bytes(), socket).unwrap();
            sent += 1;
        }
        sent
    };
    let sender = &sender;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || sender(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn a_process_that_is_not_traced_is_not_heard_and_costs_no_memory() {
    let record = |with_flood: bool| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("marks");
        let sleeper = Sleeper::start();
        let args = ["--pid", &sleeper.pid(), "--marks", socket.to_str().unwrap()];
        let recording = Recording::start(directory.path(), &[], &args);
        let sent = if with_flood {
            flood(&socket)
        } else {
            thread::sleep(Duration::from_secs(1));
            0
        };
        let peak_kib = recording.status().vmhwm.unwrap();
        let (rows, said) = recording.finish();
        assert!(rows.select("mark", None).is_empty());
        assert_eq!(rows.lost("mark"), 0, "nothing of the run is lost");
        (sent, peak_kib, rows.meta["not_captured"].to_string(), said)
    };
    let (_, quiet_kib, notes, said) = record(false);
    assert!(!notes.contains("not traced") && !said.contains("not traced"), "{notes} {said}");
    let (sent, peak_kib, notes, said) = record(true);
    let told = format!("{sent} datagrams that came from processes that are not traced");
    assert!(sent > 1_000 && notes.contains(&told) && said.contains(&told), "{sent}: {notes} {said}");
    assert!(peak_kib < quiet_kib + (64 << 10), "{peak_kib} KiB, without the flood {quiet_kib} KiB");
}

/// Sends marks with names that never recur for some seconds, and prints how many.
const FLOOD: &str = r#"
import os, socket, sys, time
sender, sent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), 0
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    sender.sendto(b"begin %d %d %s" % (os.getpid(), sent, b"x" * 180), sys.argv[1])
    sent += 1
print(sent)
"#;

/// Marks steps when it is told to, says when that is done, and waits to be told again.
const STEPS: &str = r#"
import socket, sys
sys.stdin.readline()
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[2])):
    sender.sendto(b"begin step", sys.argv[1])
    sender.sendto(b"end step", sys.argv[1])
print("done", flush=True)
sys.stdin.readline()
"#;

fn another_user_s_flood_costs_no_mark_and_no_memory() {
    const STEPS_COUNT: usize = 2_000;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = directory.path().join("marks");
    let socket = socket.to_str().unwrap();
    let traced = Command::new("python3")
        .args(["-c", STEPS, socket, &STEPS_COUNT.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut traced = Sleeper(traced);
    let recording = Recording::start(directory.path(), &[], &["--pid", &traced.pid(), "--marks", socket]);
    let flood = || as_nobody(FLOOD, &[socket, "4"]).stdout(Stdio::piped()).spawn().unwrap();
    let floods: Vec<Child> = (0..4).map(|_| flood()).collect();
    // What the first second takes is there for good; what comes after it must take nothing more.
    thread::sleep(Duration::from_secs(1));
    let early_kib = recording.status().vmrss.unwrap();
    traced.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut done = String::new();
    BufReader::new(traced.0.stdout.take().unwrap()).read_line(&mut done).unwrap();
    assert_eq!(done, "done\n", "the traced process is heard in the end");
    let sent_of = |flood: Child| -> usize {
        let output = flood.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let sent: usize = floods.into_iter().map(sent_of).sum();
    let peak_kib = recording.status().vmhwm.unwrap();
    let (rows, said) = recording.finish();
    let told = format!("{sent} datagrams that came from processes that are not traced");
    assert!(sent > 1_000 && said.contains(&told), "{sent}: {said}");
    assert!(rows.meta["not_captured"].to_string().contains(&told), "{}", rows.meta["not_captured"]);
    let marks = rows.select("mark", None);
    assert!(marks.iter().all(|row| rows.text(*row, "detail").as_deref() == Some("step")));
    assert_eq!((marks.len(), rows.lost("mark")), (STEPS_COUNT, 0));
    assert!(peak_kib < early_kib + (32 << 10), "{peak_kib} KiB, after the first second {early_kib} KiB");
}

/// Puts something at a path: a link to a file, a second name of an own file, or a named pipe.
const PLANT: &str = r#"
import os, sys
what, path, precious, own = sys.argv[1:]
if what == "link":
    os.symlink(precious, path)
elif what == "dangling link":
    os.symlink(precious + ".new", path)
elif what == "second name":
    with open(own, "w") as file:
        file.write("own")
    os.link(own, path)
else:
    os.mkfifo(path, 0o666)
"#;

fn nothing_is_written_through_what_another_user_puts_into_a_shared_folder() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let precious = directory.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    for name in ["run.parquet", "run.parquet.recording", "run.parquet.tmp"] {
        for what in ["link", "dangling link", "second name", "pipe"] {
            let case = format!("{what} at {name}");
            let shared = directory.path().join(&case);
            std::fs::create_dir(&shared).unwrap();
            std::fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
            let (planted, own) = (shared.join(name), shared.join("own"));
            let paths = [&planted, &precious, &own].map(|path| path.to_str().unwrap());
            let status = as_nobody(PLANT, &[&[what][..], &paths].concat()).status().unwrap();
            assert!(status.success(), "{case}: {status}");
            let before = std::fs::read_dir(&shared).unwrap().count();
            // Who waits for the other end of a pipe does not end.
            let out = shared.join("run.parquet");
            let output = Command::new("timeout")
                .args(["60", CAPTURE, "--force", "--out", out.to_str().unwrap(), "--", "true"])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            match (name, what) {
                (_, "pipe") if planted == out => {
                    assert_eq!((code, said.contains("is a named pipe")), (Some(2), true), "{case}: {said}");
                }
                ("run.parquet.recording", _) => assert_eq!(code, Some(2), "{case}: {said}"),
                ("run.parquet.tmp", _) => assert_eq!(code, Some(0), "{case}: {said}"),
                _ => assert!(matches!(code, Some(0 | 2)), "{case}: {code:?} {said}"),
            }
            if code == Some(0) {
                let run = std::fs::symlink_metadata(&out).unwrap();
                assert!(run.is_file() && run.nlink() == 1 && run.uid() != NOBODY, "{case}: {run:?}");
                assert_eq!(run.mode() & 0o777, 0o600, "{case}");
            } else {
                assert_eq!(std::fs::read_dir(&shared).unwrap().count(), before, "{case}");
            }
            if what == "second name" {
                assert_eq!(std::fs::read_to_string(&own).unwrap(), "own", "{case}");
            }
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious", "{case}");
            assert!(!directory.path().join("precious.new").exists(), "{case}");
        }
    }
}

fn a_traced_process_is_bounded_and_what_is_dropped_is_counted() {
    const STEPS: usize = 5_000;
    const OPENED: usize = 40_000;
    // Known to `capture/README.md`, too.
    const OPEN_AT_ONCE: usize = 16_384;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("marks");
    // This process is the one that is recorded.
    let args = ["--pid", &std::process::id().to_string(), "--marks", socket.to_str().unwrap()];
    let recording = Recording::start(directory.path(), &[], &args);
    let sender = UnixDatagram::unbound().unwrap();
    let send = |text: &str| assert_eq!(sender.send_to(text.as_bytes(), &socket).unwrap(), text.len());
    for _ in 0..STEPS {
        send("begin step");
        send("end step");
    }
    for _ in 0..OPENED / 20 {
        send(&"begin open\n".repeat(20));
    }
    send(&"x".repeat(10_000));
    let (rows, said) = recording.finish();
    let marks = rows.select("mark", None);
    let names = cast(rows.batch.column_by_name("detail").unwrap(), &DataType::Utf8).unwrap();
    let names = names.as_string::<i32>();
    let of = |name: &str| marks.iter().filter(|row| names.value(**row) == name).count();
    assert_eq!((of("step"), of("open")), (STEPS, OPEN_AT_ONCE));
    // The last line is longer than what is read of one datagram.
    let lost_count = (OPENED - OPEN_AT_ONCE + 1) as u64;
    assert_eq!(rows.lost("mark"), lost_count);
    assert!(said.contains(&format!("{lost_count} lost")), "{said}");
    assert!(!said.contains("not traced"), "{said}");
}

fn only_a_dead_socket_of_this_user_makes_way_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("marks");
    let out = directory.path().join("run.parquet");
    let capture = || {
        let output = Command::new(CAPTURE)
            .arg("--marks")
            .arg(&path)
            .arg("--out")
            .arg(&out)
            .args(["--", "true"])
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let refused = |why: &str| {
        let (code, message) = capture();
        assert_eq!((code, message.contains(why)), (Some(2), true), "{message}");
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        let entries = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(entries, 1, "nothing was recorded, and what is there is still there");
    };
    std::fs::write(&path, "precious").unwrap();
    refused("not a socket");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    drop(UnixDatagram::bind(&path).unwrap());
    chown(&path, Some(NOBODY), None).unwrap();
    refused("another user");
    chown(&path, Some(0), None).unwrap();
    let (code, message) = capture();
    assert_eq!(code, Some(0), "{message}");
    assert!(!path.exists());
}

fn a_killed_recorder_s_folder_is_removed_and_another_user_s_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let environment = [("TMPDIR", temporary.as_path())];
    let folders = || -> Vec<PathBuf> {
        let mut paths: Vec<_> =
            std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let first = directory.path().join("first");
    std::fs::create_dir(&first).unwrap();
    let mut recording =
        Recording::start(&first, &environment, &["--", "sh", "-c", "exec sleep 100 2> /dev/null"]);
    let command = recording.command();
    recording.capture.kill().unwrap();
    recording.capture.wait().unwrap();
    Command::new("kill").args(["-9", &command.to_string()]).status().unwrap();
    let left = folders();
    assert_eq!(left.len(), 1, "a killed recorder leaves its folder");
    assert_eq!(std::fs::metadata(&left[0]).unwrap().mode() & 0o777, 0o711);
    let other = temporary.join("inquest-marks-1-abcdef");
    std::fs::create_dir(&other).unwrap();
    drop(UnixDatagram::bind(other.join("marks")).unwrap());
    for path in [other.join("marks"), other.clone()] {
        chown(&path, Some(NOBODY), None).unwrap();
    }
    let output = Command::new(CAPTURE)
        .envs(environment)
        .arg("--out")
        .arg(directory.path().join("run.parquet"))
        .args(["--", "sh", "-c", "test -S \"$INQUEST_MARKS\" -a -w \"$INQUEST_MARKS\""])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(folders(), std::slice::from_ref(&other));
    assert!(other.join("marks").exists());
}

/// The bits of capabilities, by their numbers in include/uapi/linux/capability.h.
fn bits(numbers: &[u32]) -> u64 {
    numbers.iter().map(|number| 1u64 << number).sum()
}

fn a_recorder_keeps_the_least_and_the_command_all() {
    const DAC_READ_SEARCH: u32 = 2;
    const KILL: u32 = 5;
    const SYS_PTRACE: u32 = 19;
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let own = status(std::process::id()).unwrap();
    let single = if common::probes_single_functions_only() { bits(&[SYS_ADMIN]) } else { 0 };
    let least = bits(&[DAC_READ_SEARCH, SYS_PTRACE, PERFMON, BPF]) | single;
    let check = |recording: &Recording, kept: u64| {
        let kept = kept & own.capprm;
        for task in Process::new(recording.capture.id() as i32).unwrap().tasks().unwrap() {
            let status = task.unwrap().status().unwrap();
            assert_eq!((status.nonewprivs, status.seccomp), (Some(1), Some(2)), "{}", status.name);
            let sets = (status.capprm, status.capeff, status.capbnd);
            assert_eq!(sets, (kept, kept, Some(kept)), "{}: {kept:x}", status.name);
            assert_eq!((status.capinh, status.capamb), (0, Some(0)), "{}", status.name);
        }
    };

    let directory = tempfile::tempdir().unwrap();
    let recording =
        Recording::start(directory.path(), &[], &["--", "sh", "-c", "exec sleep 100 2> /dev/null"]);
    check(&recording, least | bits(&[KILL]));
    let child = recording.command();
    let command = status(child).unwrap();
    let of = |status: &Status| (status.capbnd, status.capprm, status.nonewprivs, status.seccomp);
    assert_eq!(of(&command), of(&own), "the command has what its starter has");
    recording.finish();
    Command::new("kill").args(["-9", &child.to_string()]).status().unwrap();

    let directory = tempfile::tempdir().unwrap();
    let sleeper = Sleeper::start();
    let recording = Recording::start(directory.path(), &[], &["--pid", &sleeper.pid()]);
    check(&recording, least);
    recording.finish();
}
