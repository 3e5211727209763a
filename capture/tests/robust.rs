//! What goes wrong in the field, on purpose: kills, full disks, short lives, bad requests.
//!
//! These tests need what those of `stub.rs` need, and are ignored where those are.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use common::{CAPTURE, Rows, built, workload};
use fault_injection::{
    campaign::{self, Effort},
    fault::Fault,
    recordings::Recording,
};

common::tests! {
    a_killed_recording_loses_a_second_at_most,
    whatever_fails_what_was_flushed_is_there,
    a_thousand_short_lives_are_all_on_record,
    a_throttled_group_is_on_record if has_control_group("cpu", CPU_LIMIT),
    a_kill_for_memory_is_on_record if has_control_group("memory", MEMORY_LIMIT) && common::is_ok("page faults and out-of-memory kills"),
    a_process_that_ends_soon_leaves_a_whole_file,
    a_library_without_the_expected_symbol_is_noted_and_the_fallback_taken,
    the_allocators_report_stands_in_for_its_events_if_those_are_left_out,
    functions_and_libraries_are_left_out,
    a_socket_that_a_killed_recorder_left_is_taken_over,
    a_step_of_the_wall_clock_changes_no_time_and_is_told if can_set_the_clock(),
    a_full_disk_ends_the_recording_and_frees_the_process if common::succeeds("unshare", &["-m", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]),
    bad_requests_are_refused_and_leave_nothing,
}

/// `capture` on a workload that says the times of its launches, 50,000 a second, as a scenario of faults.
fn recorder(directory: &Path, launches: &str) -> Recording {
    let stub = workload(directory, &["steady", launches]);
    let words = std::iter::once(stub.get_program()).chain(stub.get_args());
    let words: Vec<String> = words.map(|word| word.to_str().unwrap().to_owned()).collect();
    Recording::captured(Path::new(CAPTURE), &words)
}

/// Kills at random moments; INQUEST_KILLS in the environment sets how many. Whatever was recorded more than
/// a second before is there.
fn a_killed_recording_loses_a_second_at_most() {
    let kills: usize = std::env::var("INQUEST_KILLS").map_or(3, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let effort = Effort { trials_count: kills, threads_count: 1, seed: 2 };
    let span = Duration::from_secs(3);
    let tally = campaign::kill_at_random(&recorder(directory.path(), "100000"), effort, span).unwrap();
    assert!(tally.wrong.is_empty() && tally.killed_count > 0, "{tally}\n{}", tally.wrong.join("\n"));
    eprintln!("{tally}");
}

/// Failing system calls, and kills and power cuts before them: the run is whole or absent, or what was flushed is recovered.
fn whatever_fails_what_was_flushed_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let effort = Effort { trials_count: 5, threads_count: 1, seed: 3 };
    let is_deadly = |fault: Fault| !fault.is_harmless();
    let tally = campaign::walk(&recorder(directory.path(), "40000"), effort, is_deadly).unwrap();
    assert!(tally.wrong.is_empty(), "{tally}\n{}", tally.wrong.join("\n"));
    assert_eq!(tally.trials_count, 5, "{tally}");
}

fn a_thousand_short_lives_are_all_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let output = Command::new(CAPTURE)
        .arg("--out")
        .arg(&out)
        .args(["--", "sh", "-c", "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = Rows::open(&out);
    assert_eq!(rows.lost("process"), 0);
    assert!(rows.select("process", Some("fork")).len() >= 1000);
    assert!(rows.select("process", Some("exec")).len() >= 1001);
    assert!(rows.select("process", Some("exit")).len() >= 1001);
}

/// A setting of a control group, as file and value: in version 1, and in version 2.
type Limit = [(&'static str, &'static str); 2];

const CPU_LIMIT: Limit = [("cpu.cfs_quota_us", "20000"), ("cpu.max", "20000 100000")];
const MEMORY_LIMIT: Limit = [("memory.limit_in_bytes", "30000000"), ("memory.max", "30000000")];

/// Whether this user can make a control group with a limit.
fn has_control_group(controller: &str, limit: Limit) -> bool {
    control_group(controller, limit).is_some_and(|group| std::fs::remove_dir(group).is_ok())
}

/// Whether this user may set the machine's clock.
fn can_set_the_clock() -> bool {
    const CAP_SYS_TIME: u32 = 25;
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status.is_ok_and(|status| status.capeff >> CAP_SYS_TIME & 1 == 1)
}

/// A control group with a limit; `None` if this user cannot make one.
fn control_group(controller: &str, [old, new]: Limit) -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    for (parent, (file, value)) in [(root.join(controller), old), (root.to_owned(), new)] {
        let group = parent.join(format!("inquest-test-{}", std::process::id()));
        if parent.join("cgroup.procs").exists() && std::fs::create_dir(&group).is_ok() {
            if std::fs::write(group.join(file), value).is_ok() {
                return Some(group);
            }
            std::fs::remove_dir(&group).unwrap();
        }
    }
    None
}

/// Records a shell script that has put itself into a control group.
fn record_in(group: &Path, script: &str) -> Rows {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let script = format!("echo $$ > {}/cgroup.procs; {script}", group.display());
    // The command may well be killed: the recording is fine then.
    Command::new(CAPTURE).arg("--out").arg(&out).args(["--", "sh", "-c", &script]).output().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    std::fs::remove_dir(group).unwrap();
    Rows::open(&out)
}

fn a_throttled_group_is_on_record() {
    let group = control_group("cpu", CPU_LIMIT).expect("a control group");
    let rows = record_in(&group, "exec timeout 2 sh -c 'while :; do :; done'");
    let sum = |op: &str| -> i64 {
        let found = rows.select("sample", Some(op));
        found.into_iter().map(|row| rows.number(row, "value").unwrap()).sum()
    };
    // Eight tenths of two seconds, in periods of a tenth.
    assert!(sum("cgroup_throttled_count") >= 5, "{}", sum("cgroup_throttled_count"));
    assert!(sum("cgroup_throttled_ns") >= 500_000_000, "{}", sum("cgroup_throttled_ns"));
}

fn a_kill_for_memory_is_on_record() {
    let group = control_group("memory", MEMORY_LIMIT).expect("a control group");
    let rows = record_in(&group, "exec python3 -c 'a = bytearray(100_000_000)'");
    assert_eq!(rows.select("process", Some("oom_kill")).len(), 1);
}

fn a_process_that_ends_soon_leaves_a_whole_file() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    // Reaped beside the recording: a zombie would still be there.
    let mut child = Command::new("sleep").arg("3").spawn().unwrap();
    let pid = child.id().to_string();
    let reaper = std::thread::spawn(move || child.wait());
    let output = Command::new(CAPTURE).args(["--pid", &pid, "--out"]).arg(&out).output().unwrap();
    assert!(reaper.join().unwrap().unwrap().success());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!Rows::open(&out).select("process", Some("exit")).is_empty());
}

fn a_library_without_the_expected_symbol_is_noted_and_the_fallback_taken() {
    let directory = tempfile::tempdir().unwrap();
    let libraries = directory.path().join("lib");
    std::fs::create_dir(&libraries).unwrap();
    for name in ["libcuda.so", "libcudart.so", "libc10.so", "libnccl.so", "libnvToolsExt.so"] {
        std::fs::copy(built("examples").join(name), libraries.join(name)).unwrap();
    }
    // An allocator library that lacks the allocator's function.
    std::fs::copy(built("examples").join("libnccl.so"), libraries.join("libc10_cuda.so")).unwrap();
    let run = common::record_with(&libraries, &["--profile", "default"], &["api"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let meta = Rows::open(&run.path()).meta;
    let probes = meta["probes"].as_array().unwrap();
    let missing: Vec<_> = probes.iter().filter(|probe| !probe["error"].is_null()).collect();
    assert!(
        missing.iter().any(|probe| probe["symbol"].as_str().unwrap().ends_with("record_trace")),
        "{missing:?}"
    );
    assert!(missing[0]["error"].as_str().unwrap().contains("no such symbol"), "{missing:?}");
    let fallback =
        |probe: &&serde_json::Value| probe["symbol"].as_str().unwrap().contains("reportMemoryUsage");
    assert!(probes.iter().find(fallback).is_some_and(|probe| probe["error"].is_null()));
}

/// Records the stub's allocator with functions left out.
fn record_without(left_out: &[&str]) -> common::Rows {
    let flags: Vec<&str> = left_out.iter().flat_map(|name| ["--without", name]).collect();
    let run = common::record(&flags, &["mixed", "5"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    Rows::open(&run.path())
}

fn the_allocators_report_stands_in_for_its_events_if_those_are_left_out() {
    let rows = record_without(&["record_trace"]);
    let (addr, size) = (rows.column("addr"), rows.column("size_bytes"));
    let reports = rows.select("alloc", None);
    assert_eq!(reports.len(), 40);
    for (i, row) in reports.into_iter().enumerate() {
        assert_eq!(rows.text(row, "op").as_deref(), Some("usage"));
        let bytes = ((i as i64 % 20) + 1) << 20;
        assert_eq!(size[row], Some(if i < 20 { bytes } else { -bytes }));
        assert!(addr[row].is_some());
        assert_eq!(rows.number(row, "allocated_bytes"), Some(if i < 20 { bytes } else { 0 }));
        assert_eq!(rows.number(row, "device"), Some(1));
    }
    assert!(rows.meta["not_captured"].to_string().contains("record_trace (--without)"));
    let probes = rows.meta["probes"].to_string();
    assert!(!probes.contains("record_trace"), "{probes}");
    // With its events, the report would say everything twice.
    assert!(record_without(&[]).select("alloc", Some("usage")).is_empty());
}

fn functions_and_libraries_are_left_out() {
    let rows = record_without(&["pytorch", "cudaMemcpyAsync", "cuMemAlloc"]);
    assert!(rows.select("alloc", None).is_empty());
    for (op, recorded) in [
        ("cudaMemcpyAsync", false),
        ("cuMemAlloc", false),
        ("cudaMalloc", true),
        ("cuMemFree", true),
        ("cudaMemcpy2DAsync", true),
    ] {
        assert_eq!(!rows.select("call", Some(op)).is_empty(), recorded, "{op}");
    }
    let wrong =
        Command::new(CAPTURE).args(["--without", "malloc", "--out", "x.parquet", "--", "true"]).output();
    let wrong = wrong.unwrap();
    let message = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!((wrong.status.code(), message.contains("capture probes")), (Some(2), true), "{message}");
}

fn a_socket_that_a_killed_recorder_left_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("marks");
    let capture = |out: &str| {
        Command::new(CAPTURE)
            .arg("--marks")
            .arg(&socket)
            .arg("--out")
            .arg(directory.path().join(out))
            .args(["--", "true"])
            .output()
            .unwrap()
    };
    let living = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let output = capture("first.parquet");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), message.contains("in use")), (Some(2), true), "{message}");
    drop(living);
    let output = capture("second.parquet");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!socket.exists());
}

fn a_step_of_the_wall_clock_changes_no_time_and_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let seconds = |by: i64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        Command::new("date")
            .arg("-s")
            .arg(format!("@{:.3}", now + by as f64))
            .output()
            .unwrap()
            .status
            .success()
    };
    let mut capture = Command::new(CAPTURE)
        .arg("--out")
        .arg(&out)
        .args(["--", "sleep", "1.5"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(800));
    let stepped = seconds(3600);
    let status = capture.wait().unwrap();
    assert!(stepped && seconds(-3600));
    assert!(status.success());
    let rows = Rows::open(&out);
    let step_ns = rows.meta["clock"]["wall_step_ns"].as_i64().unwrap();
    assert!((step_ns - 3_600_000_000_000).abs() < 1_000_000_000, "{step_ns}");
    // The kernel takes a clock that was set for one that nothing keeps, until a daemon says otherwise.
    assert_eq!(rows.meta["clock"]["is_synchronised"], false, "{}", rows.meta["clock"]);
    assert!(rows.meta["clock"]["utc_error_ns"].is_null());
    let (ts, dur) = (rows.column("ts"), rows.column("dur"));
    let start = rows.meta["clock"]["start_ns"].as_i64().unwrap();
    for row in 0..rows.batch.num_rows() {
        let end = ts[row].unwrap() + dur[row].unwrap_or(0);
        assert!(end - start < 60_000_000_000, "row {row} ends {} ns after the start", end - start);
    }
}

fn a_full_disk_ends_the_recording_and_frees_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&disk).status();
    assert!(mounted.unwrap().success());
    let out = disk.join("run.parquet");
    let stub = workload(directory.path(), &["mixed", "200000"]);
    let capture = Command::new(CAPTURE)
        .args(["--profile", "full", "--out"])
        .arg(&out)
        .arg("--")
        .arg(stub.get_program())
        .args(stub.get_args())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&capture.stderr).into_owned();
    let saved = directory.path().join("saved.parquet");
    let recover = Command::new(built("analyze"))
        .arg("recover")
        .arg(disk.join("run.parquet.recording"))
        .arg("--out")
        .arg(&saved)
        .output()
        .unwrap();
    Command::new("umount").arg("-l").arg(&disk).status().unwrap();
    assert_eq!(capture.status.code(), Some(5), "{message}");
    assert!(message.contains("run.parquet.recording") && message.contains("space"), "{message}");
    assert!(recover.status.success(), "{}", String::from_utf8_lossy(&recover.stderr));
    assert!(!Rows::open(&saved).select("call", None).is_empty());
    // The workload was not left stopped: it writes its log at its end.
    let log = directory.path().join("log.json");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !log.exists() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(log.exists(), "the workload did not end");
}

fn bad_requests_are_refused_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let capture = |args: &[&str]| {
        let output = Command::new(CAPTURE).arg("--out").arg(&out).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let nowhere = Command::new(CAPTURE).args(["--out", "/proc/run.parquet", "--", "true"]).output().unwrap();
    let message = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert_eq!((nowhere.status.code(), message.contains("/proc/run.parquet")), (Some(5), true), "{message}");
    let (code, message) = capture(&["--", "/no/such/program"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("/no/such/program"), "{message}");
    let (code, message) = capture(&["--pid", "4194304"]);
    assert_eq!((code, message.contains("4194304")), (Some(2), true), "{message}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a failed start leaves no file");

    std::fs::write(&out, "precious").unwrap();
    let (code, message) = capture(&["--", "true"]);
    assert_eq!((code, message.contains("--force")), (Some(2), true), "{message}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "precious");
    let (code, message) = capture(&["--force", "--", "false"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("no CUDA library"), "{message}");

    // Without privileges.
    let copy = std::env::temp_dir().join(format!("capture-{}", std::process::id()));
    std::fs::copy(CAPTURE, &copy).unwrap();
    let output = Command::new(&copy)
        .args(["--out", "/tmp/never.parquet", "--", "true"])
        .uid(65534)
        .gid(65534)
        .output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), message.contains("CAP_BPF")), (Some(4), true), "{message}");
}
