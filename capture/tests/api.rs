//! What a call, a mark, a reading or a stack turns into; and every way to choose whom to trace.
//!
//! These tests need what those of `stub.rs` need, and are ignored where those are.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::{
    io::Read,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{CAPTURE, Rows, built, record, sql, workload};

common::tests! {
    arguments_are_read_wherever_they_lie,
    marks_become_ranges_and_points,
    memory_settings_and_pytorchs_version_are_kept_and_no_secret,
    memory_settings_of_a_running_process_are_kept,
    secrets_in_command_lines_are_redacted_unless_they_are_wanted,
    light_leaves_out_what_is_frequent_and_says_so,
    every_cpu_can_be_watched_all_the_time,
    stacks_are_spelled_out,
    counters_are_read_where_there_are_any,
    a_runtime_inside_a_program_is_found,
    libraries_of_another_mount_namespace_are_found if common::succeeds("unshare", &["-m", "true"]),
    a_program_is_waited_for_by_name,
    every_cuda_process_is_found_now_and_later,
    without_a_subject_every_cuda_process_is_recorded_until_ctrl_c,
    a_long_run_comes_in_parts_and_opens_as_one,
    few_privileges_are_enough if !common::probes_single_functions_only(),
    the_files_belong_to_the_user_of_sudo if is_root(),
    a_recorder_killed_at_once_is_no_obstacle,
}

/// Whether this user is root, who can give files to others.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// One row's columns, as text; nulls are left out.
fn cells(rows: &Rows, row: usize, columns: &[&str]) -> Vec<String> {
    let cell = |column: &&str| {
        let text = match *column {
            "op" | "direction" | "dtype" | "detail" | "caller" => rows.text(row, column),
            _ => rows.number(row, column).map(|number| format!("{number:#x}")),
        };
        text.map(|text| format!("{column}={text}"))
    };
    columns.iter().filter_map(cell).collect()
}

fn arguments_are_read_wherever_they_lie() {
    for method in ["session", "multi", "single"] {
        let run = record(&["--attach", method], &["api"]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let rows = Rows::open(&run.path());
        assert_eq!(rows.meta["attach_method"], method);
        assert_eq!(rows.meta["lost"].as_array().unwrap().len(), 0, "{}", rows.meta["lost"]);
        let all = [
            "addr",
            "src_addr",
            "size_bytes",
            "direction",
            "stream",
            "func",
            "grid_x",
            "grid_y",
            "grid_z",
            "block_x",
            "block_y",
            "block_z",
            "element_count",
            "dtype",
            "communicator",
            "peer",
        ];
        for (op, expected) in [
            ("cuInit", ""),
            (
                "cuLaunchKernelEx",
                "stream=0x55 func=0x4001 grid_x=0x9 grid_y=0x8 grid_z=0x7 block_x=0x6 block_y=0x5 block_z=0x4",
            ),
            (
                "cudaLaunchKernelExC",
                "stream=0x55 func=0x4002 grid_x=0x9 grid_y=0x8 grid_z=0x7 block_x=0x6 block_y=0x5 block_z=0x4",
            ),
            (
                "cudaLaunchKernel",
                "stream=0x56 func=0x4003 grid_x=0x3 grid_y=0x2 grid_z=0x1 block_x=0x40 block_y=0x4 block_z=0x2",
            ),
            (
                "cuLaunchKernel",
                "stream=0x56 func=0x4003 grid_x=0x3 grid_y=0x2 grid_z=0x1 block_x=0x40 block_y=0x4 block_z=0x2",
            ),
            ("cuLibraryGetKernel", "func=0x7001"),
            ("cuMemcpy2D", "addr=0x2000 size_bytes=0x280 direction=h2d"),
            ("cuMemcpy3DAsync", "addr=0x2000 src_addr=0x1000 size_bytes=0x780 direction=d2d stream=0x57"),
            ("cudaMemcpy3DAsync", "addr=0x2000 src_addr=0x1000 size_bytes=0x780 direction=d2h stream=0x58"),
            ("cuGraphLaunch", "stream=0x59 func=0x9000"),
            (
                "ncclAllReduce",
                "addr=0x20 src_addr=0x10 size_bytes=0x7d0 stream=0x61 element_count=0x3e8 dtype=bfloat16 communicator=0xc0",
            ),
            (
                "ncclReduce",
                "addr=0x20 src_addr=0x10 size_bytes=0x190 stream=0x62 element_count=0x64 dtype=float32 communicator=0xc0 peer=0x3",
            ),
            (
                "ncclSend",
                "src_addr=0x10 size_bytes=0x50 stream=0x63 element_count=0xa dtype=int64 communicator=0xc0 peer=0x2",
            ),
        ] {
            let found = rows.select("call", Some(op));
            assert!(!found.is_empty(), "{method}: no {op}");
            assert_eq!(cells(&rows, found[0], &all).join(" "), expected, "{method}: {op}");
        }
        // Of the kernels' names, those that were launched, or asked for, once each.
        let names: Vec<String> = rows
            .select("name", Some("kernel"))
            .into_iter()
            .map(|row| cells(&rows, row, &["func", "detail"]).join(" "))
            .collect();
        assert_eq!(names, ["func=0x4003 detail=_Z6kernelPf", "func=0x7001 detail=_Z9in_driverv"], "{method}");
    }
}

fn marks_become_ranges_and_points() {
    let run = record(&[], &["api"]);
    let rows = Rows::open(&run.path());
    let (ts, dur) = (rows.column("ts"), rows.column("dur"));
    let mark = |name: &str| {
        let all = rows.select("mark", None);
        let found: Vec<_> =
            all.into_iter().filter(|row| rows.text(*row, "detail").as_deref() == Some(name)).collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0]
    };
    let end = |row: usize| ts[row].unwrap() + dur[row].unwrap();
    let (outer, inner, moment) = (mark("outer"), mark("inner"), mark("moment"));
    assert!(ts[outer] < ts[inner] && ts[inner] < ts[moment] && end(inner) < end(outer));
    assert!(ts[moment].unwrap() < end(inner));
    assert_eq!(dur[mark("never popped")], None, "an open range is censored");
    // Through the socket: stamped by the kernel when they were sent, 2 ms apart.
    let (epoch, step) = (mark("epoch"), mark("step 7"));
    assert!(dur[epoch].unwrap() >= 4_000_000, "{:?}", dur[epoch]);
    let into = ts[step].unwrap() - ts[epoch].unwrap();
    assert!(into >= 2_000_000 && into < dur[epoch].unwrap(), "{into}");
    assert_eq!(rows.number(epoch, "pid"), run.log()["pid"].as_i64());
    let text = sql(&run.path(), "SELECT name, op FROM marks ORDER BY ts");
    assert!(text.contains("epoch,range"), "{text}");
}

/// The stub with its libraries where a PyTorch wheel has them, and with settings and secrets in its environment.
fn as_pytorch(directory: &Path, scenario: &[&str]) -> Command {
    let lib = directory.join("torch/lib");
    std::fs::create_dir_all(&lib).unwrap();
    for file in std::fs::read_dir(built("examples")).unwrap().map(Result::unwrap) {
        if file.path().extension().is_some_and(|extension| extension == "so") {
            std::fs::copy(file.path(), lib.join(file.file_name())).unwrap();
        }
    }
    std::fs::write(directory.join("torch/version.py"), "cuda = '13.0'\n__version__ = '2.11.0+cu130'\n")
        .unwrap();
    let mut command = Command::new(built("cuda-stub"));
    command.arg(lib).arg(directory.join("log.json")).args(scenario);
    command
        .env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64")
        .env("CUDA_VISIBLE_DEVICES", "0")
        .env("HF_TOKEN", "a-secret-that-no-file-may-hold")
        .env("PYTORCH_CUDA_ALLOC_CONF_OTHER", "a-secret-that-no-file-may-hold");
    command
}

/// What the file says of the settings, and that it says nothing else of the environment.
fn check_settings(out: &Path) {
    let rows = Rows::open(out);
    let processes = rows.meta["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["torch_version"] != "").unwrap();
    assert_eq!(process["torch_version"], "2.11.0+cu130");
    let settings = process["environment"].as_object().unwrap();
    let expected = [
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64"),
    ];
    assert_eq!(settings.len(), expected.len(), "{settings:?}");
    for (name, value) in expected {
        assert_eq!(settings[name], value);
    }
    let bytes = std::fs::read(out).unwrap();
    assert!(!bytes.windows(8).any(|window| window == b"a-secret"));
    assert!(!rows.meta.to_string().contains("HF_TOKEN"));
}

fn memory_settings_and_pytorchs_version_are_kept_and_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let stub = as_pytorch(directory.path(), &["mixed", "5"]);
    let mut capture = Command::new(CAPTURE);
    capture.arg("--out").arg(&out).arg("--").arg(stub.get_program()).args(stub.get_args());
    capture.envs(stub.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = capture.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_settings(&out);
}

fn memory_settings_of_a_running_process_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let mut stub = as_pytorch(directory.path(), &["steady", "300000"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let capture = Command::new(CAPTURE)
        .args(["--duration", "300ms", "--pid", &stub.id().to_string(), "--out"])
        .arg(&out)
        .output()
        .unwrap();
    stub.kill().unwrap();
    stub.wait().unwrap();
    assert!(capture.status.success(), "{}", String::from_utf8_lossy(&capture.stderr));
    check_settings(&out);
}

fn secrets_in_command_lines_are_redacted_unless_they_are_wanted() {
    const SECRET: &str = "hunter2";
    for (flags, redacted) in
        [(&[] as &[&str], Some("secrets")), (&["--redact", "all"], Some("all")), (&["--redact", "off"], None)]
    {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("run.parquet");
        let output = Command::new(CAPTURE)
            .args(flags)
            .arg("--out")
            .arg(&out)
            .args(["--", "sh", "-c", "sleep 0.1; true", "sh", "--password", SECRET])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows = Rows::open(&out);
        let execs: Vec<String> = rows
            .select("process", Some("exec"))
            .into_iter()
            .filter_map(|row| rows.text(row, "detail"))
            .collect();
        let (command, processes) = (rows.meta["command"].to_string(), rows.meta["processes"].to_string());
        assert!(execs.iter().any(|detail| detail.starts_with("sh ")), "{flags:?}: {execs:?}");
        for said in [execs.join("\n"), command, processes] {
            assert_eq!(said.contains(SECRET), redacted.is_none(), "{flags:?}: {said}");
            assert_eq!(said.contains("[redacted]"), redacted.is_some(), "{flags:?}: {said}");
        }
        assert_eq!(rows.meta["redacted"][0].as_str(), redacted, "{flags:?}");
    }
}

fn light_leaves_out_what_is_frequent_and_says_so() {
    for (profile, runtime, driver, events) in
        [("light", false, false, false), ("default", false, true, true), ("full", true, true, true)]
    {
        let run = record(&["--profile", profile], &["mixed", "5"]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let rows = Rows::open(&run.path());
        assert_eq!(!rows.select("call", Some("cudaLaunchKernel")).is_empty(), runtime, "{profile}");
        assert_eq!(!rows.select("call", Some("cuLaunchKernel")).is_empty(), driver, "{profile}");
        assert_eq!(!rows.select("alloc", None).is_empty(), events, "{profile}");
        assert_eq!(rows.select("call", Some("cudaMalloc")).len(), 21, "{profile}");
        assert_eq!(rows.meta["profile"], profile);
        let told = rows.meta["not_captured"].to_string().contains("kernel launches, allocator events");
        assert_eq!(told, profile == "light");
    }
}

fn every_cpu_can_be_watched_all_the_time() {
    let stints = |sched: &str| {
        let run = record(&["--sched", sched], &["mixed", "100"]);
        assert!(run.output.status.success(), "{}", run.stderr());
        Rows::open(&run.path()).select("run", None).len()
    };
    let (target, all) = (stints("target"), stints("all"));
    assert!(all > 2 * target, "{target} stints while a traced thread waited, {all} in all");
}

fn stacks_are_spelled_out() {
    let run = record(&["--stacks", "alloc,slow:1ms"], &["mixed", "5"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let rows = Rows::open(&run.path());
    let stacks = rows.column("stack");
    assert!(rows.select("call", Some("cudaMalloc")).iter().all(|row| stacks[*row].is_some()));
    let dur = rows.column("dur");
    for row in rows.select("call", Some("cudaLaunchKernel")) {
        assert_eq!(stacks[row].is_some(), dur[row].unwrap() >= 1_000_000, "{:?}", dur[row]);
    }
    let query = "SELECT DISTINCT frames FROM stacks JOIN events USING (run, pid, stack) WHERE events.op = 'cuMemAlloc'";
    let text = sql(&run.path(), query);
    assert!(text.contains("cudaMalloc"), "the caller is a frame: {text}");
    let none = record(&[], &["mixed", "5"]);
    assert!(Rows::open(&none.path()).column("stack").iter().all(Option::is_none));
}

fn counters_are_read_where_there_are_any() {
    let directory = tempfile::tempdir().unwrap();
    symlink(built("examples").join("libnvidia_ml.so"), directory.path().join("libnvidia-ml.so.1")).unwrap();
    let out = directory.path().join("run.parquet");
    let output = Command::new(CAPTURE)
        .env("LD_LIBRARY_PATH", directory.path())
        .args(["--nvml", "20ms", "--out"])
        .arg(&out)
        .args(["--", "sleep", "1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = Rows::open(&out);
    for (op, value) in
        [("memory_used_bytes", 24i64 << 30), ("memory_total_bytes", 64 << 30), ("power_milliwatts", 123_456)]
    {
        let found = rows.select("sample", Some(op));
        assert!(found.len() >= 10, "{op}: {}", found.len());
        for row in found {
            assert_eq!((rows.number(row, "value"), rows.number(row, "device")), (Some(value), Some(0)));
        }
    }
    assert_eq!(rows.meta["gpus"][0]["name"], "NVIDIA Stub");
    // Without the library, the run says so.
    let run = record(&[], &["mixed", "1"]);
    assert!(Rows::open(&run.path()).meta["not_captured"].to_string().contains("NVML"));
}

fn a_runtime_inside_a_program_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let output = Command::new(CAPTURE)
        .args(["--profile", "full", "--out"])
        .arg(&out)
        .arg("--")
        .arg(built("examples").join("static_runtime"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = Rows::open(&out);
    assert_eq!(rows.select("call", Some("cudaMalloc")).len(), 7);
    assert_eq!(rows.select("call", Some("cudaLaunchKernel")).len(), 1);
}

fn libraries_of_another_mount_namespace_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let out = directory.path().join("run.parquet");
    // The libraries exist in the namespace only, under a path that is an empty folder outside it.
    let script = format!(
        "mount -t tmpfs tmpfs {0} && cp {1}/*.so {0} && exec {2} {0} {3}/log.json mixed 5",
        inside.display(),
        built("examples").display(),
        built("cuda-stub").display(),
        directory.path().display()
    );
    let output = Command::new(CAPTURE)
        .args(["--out"])
        .arg(&out)
        .args(["--", "unshare", "-m", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0);
    assert_eq!(Rows::open(&out).select("call", Some("cudaMalloc")).len(), 21);
}

fn capture_in_background(flags: &[&str], out: &Path) -> Child {
    Command::new(CAPTURE).args(flags).arg("--out").arg(out).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ends a recording as Ctrl-C does, and waits for its file.
fn interrupt(mut capture: Child) {
    Command::new("kill").args(["-INT", &capture.id().to_string()]).status().unwrap();
    assert!(capture.wait().unwrap().success());
}

/// Waits for a recording to have begun.
fn wait_for_file(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    // The tracepoints come right after the file.
    std::thread::sleep(Duration::from_millis(700));
}

fn a_program_is_waited_for_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let mut capture = capture_in_background(&["--wait-for", "cuda-stub"], &out);
    wait_for_file(&directory.path().join("run.parquet.recording"));
    Command::new("true").status().unwrap();
    assert!(workload(directory.path(), &["mixed", "5"]).status().unwrap().success());
    // The recording ends with the last program of that name.
    assert!(capture.wait().unwrap().success());
    let rows = Rows::open(&out);
    assert_eq!(rows.select("call", Some("cudaMalloc")).len(), 21, "from its first call on");
    assert_eq!(rows.meta["processes"].as_array().unwrap().len(), 1, "{}", rows.meta["processes"]);
}

/// Records the whole machine while one workload runs and another starts; what the recorder said on stderr.
fn record_the_machine(flags: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let mut early = workload(directory.path(), &["steady", "200000"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut capture = capture_in_background(flags, &out);
    let mut stderr = capture.stderr.take().unwrap();
    wait_for_file(&directory.path().join("run.parquet.recording"));
    let mut late = workload(directory.path(), &["api"]).spawn().unwrap();
    let (early_pid, late_pid) = (i64::from(early.id()), i64::from(late.id()));
    assert!(late.wait().unwrap().success());
    interrupt(capture);
    early.kill().unwrap();
    early.wait().unwrap();
    let rows = Rows::open(&out);
    let pid = rows.column("pid");
    let calls = rows.select("call", None);
    for wanted in [early_pid, late_pid] {
        assert!(calls.iter().any(|row| pid[*row] == Some(wanted)), "no call of {wanted}");
    }
    assert!(calls.iter().all(|row| [Some(early_pid), Some(late_pid)].contains(&pid[*row])));
    assert_eq!(rows.meta["command"][0], "--all-cuda");
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    said
}

fn every_cuda_process_is_found_now_and_later() {
    assert!(!record_the_machine(&["--all-cuda", "--quiet"]).contains("every process"));
}

fn without_a_subject_every_cuda_process_is_recorded_until_ctrl_c() {
    let said = record_the_machine(&[]);
    assert!(
        said.contains("every process of this machine that uses CUDA") && said.contains("Ctrl-C"),
        "{said}"
    );
}

fn a_long_run_comes_in_parts_and_opens_as_one() {
    let run = record(&["--max-size", "1MiB"], &["mixed", "60000"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let part = |number: u32| run.directory.path().join(format!("run.{number:04}.parquet"));
    assert!(part(2).exists() && !run.path().exists(), "{}", run.stderr());
    let count = |path: &Path| {
        let query = "SELECT count(*) FROM events WHERE op = 'cudaLaunchKernel'";
        let text = sql(path, query);
        text.lines().nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(count(&run.path()) + Rows::open(&part(1)).lost("cudaLaunchKernel"), 180_000);
    assert!(count(&part(1)) < 180_000, "a part alone is itself");
    // A run that ends early says so, and a part that is missing is noticed.
    let last = (1..).take_while(|number| part(*number).exists()).last().unwrap();
    std::fs::rename(part(last), run.directory.path().join("elsewhere")).unwrap();
    let output = Command::new(built("analyze")).arg("info").arg(run.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("the run goes on after"), "{text}");
    std::fs::rename(run.directory.path().join("elsewhere"), part(last)).unwrap();
    std::fs::remove_file(part(1)).unwrap();
    let output = Command::new(built("analyze")).arg("info").arg(run.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), message.contains("part")), (Some(2), true), "{message}");
}

fn few_privileges_are_enough() {
    let directory = tempfile::tempdir().unwrap();
    // As nobody, with three capabilities and no other; all that it needs must be readable for nobody.
    let copies = directory.path().join("bin");
    std::fs::create_dir(&copies).unwrap();
    for program in [Path::new(CAPTURE).to_owned(), built("cuda-stub")] {
        std::fs::copy(&program, copies.join(program.file_name().unwrap())).unwrap();
    }
    for library in
        ["libcuda.so", "libcudart.so", "libc10.so", "libc10_cuda.so", "libnccl.so", "libnvToolsExt.so"]
    {
        std::fs::copy(built("examples").join(library), copies.join(library)).unwrap();
    }
    Command::new("chmod").args(["-R", "a+rwX"]).arg(directory.path()).status().unwrap();
    let out = directory.path().join("run.parquet");
    let capabilities = "+bpf,+perfmon,+sys_ptrace";
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([format!("--inh-caps=-all,{capabilities}"), format!("--ambient-caps=-all,{capabilities}")])
        .args([format!("--bounding-set=-all,{capabilities}")])
        .arg(copies.join("capture"))
        .arg("--out")
        .arg(&out)
        .arg("--")
        .arg(copies.join("cuda-stub"))
        .arg(&copies)
        .arg(directory.path().join("log.json"))
        .args(["mixed", "5"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(Rows::open(&out).select("call", Some("cudaMalloc")).len(), 21);
}

fn the_files_belong_to_the_user_of_sudo() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    // The command looks at the recording while it is written.
    let output = Command::new(CAPTURE)
        .arg("--out")
        .arg(&out)
        .args(["--", "stat", "-c", "%u %g %a"])
        .arg(directory.path().join("run.parquet.recording"))
        .env("SUDO_UID", "65533")
        .env("SUDO_GID", "65534")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "65533 65534 600\n");
    let metadata = std::fs::metadata(&out).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (65533, 65534, 0o600));
    // Without the variables they are root's.
    let capture = Command::new(CAPTURE)
        .arg("--out")
        .arg(&out)
        .args(["--force", "--", "true"])
        .env_remove("SUDO_UID")
        .output()
        .unwrap();
    assert!(capture.status.success(), "{}", String::from_utf8_lossy(&capture.stderr));
    assert_eq!(std::fs::metadata(&out).unwrap().uid(), 0);
}

fn a_recorder_killed_at_once_is_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    let recording = directory.path().join("run.parquet.recording");
    let capture = |flags: &[&str]| {
        let output = Command::new(CAPTURE).arg("--out").arg(&out).args(flags).args(["--", "true"]).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let recover = || {
        let output = Command::new(built("analyze")).arg("recover").arg(&recording).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // No program has that name, so nothing is recorded.
    let mut waiting = capture_in_background(&["--wait-for", "no-such-program"], &out);
    let start = Instant::now();
    while !recording.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "no recording appears");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (code, message) = capture(&["--force"]);
    assert!(code == Some(2) && message.contains("another recorder"), "{message}");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let (code, message) = recover();
    assert_eq!(code, Some(0), "{message}");
    std::fs::remove_file(&out).unwrap();
    let (code, message) = capture(&[]);
    assert_eq!(code, Some(0), "{message}");
    assert!(out.exists() && !recording.exists());
    std::fs::remove_file(&out).unwrap();
    // As after a power cut.
    std::fs::write(&recording, "").unwrap();
    let (code, message) = recover();
    assert!(code == Some(2) && message.contains("nothing was recorded yet"), "{message}");
    let (code, message) = capture(&[]);
    assert_eq!(code, Some(0), "{message}");
    assert!(out.exists() && !recording.exists());
}
