//! The whole way, for real: eBPF probes on the stub CUDA libraries, a workload that knows what it did, the file.
//!
//! These tests need root and a kernel with BTF. Where `capture check` says that this machine cannot record, they are
//! ignored, which cargo-nextest counts as skipped; with INQUEST_EBPF=required they fail instead.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::{collections::HashMap, process::Command, time::Duration};

use common::{CAPTURE, Rows, built, record, record_with, sql, workload};
use serde_json::Value;

common::tests! {
    calls_made_are_rows_recorded,
    driver_calls_nest_in_runtime_calls_and_allocator_events_are_whole,
    a_pause_s_parts_are_told_apart,
    without_the_function_of_ipc_collect_its_library_says_so,
    what_does_not_fit_is_counted,
    a_stolen_cpu_is_on_record_and_the_thief_is_named,
    calls_that_never_return_are_censored,
    a_running_process_is_joined_and_left_alone,
    how_processes_end_is_on_record,
    a_demo_shows_what_its_hog_costs,
}

fn calls_made_are_rows_recorded() {
    let run = record(&[], &["mixed", "2000"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let rows = Rows::open(&run.path());
    let log = run.log();
    assert_eq!(rows.meta["lost"].as_array().unwrap().len(), 0, "events were lost: {}", rows.meta["lost"]);

    // Each thread's runtime calls, in order, against the workload's own log.
    let made = log["calls"].as_array().unwrap();
    let mut by_thread: HashMap<i64, Vec<usize>> = HashMap::new();
    for op in [
        "cudaMalloc",
        "cudaFree",
        "cudaMemcpyAsync",
        "cudaMemcpy2DAsync",
        "cudaMemset",
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
    ] {
        for row in rows.select("call", Some(op)) {
            by_thread.entry(rows.number(row, "tid").unwrap()).or_default().push(row);
        }
    }
    let (ts, dur, ret) = (rows.column("ts"), rows.column("dur"), rows.column("ret"));
    let (addr, size, func, stream) =
        (rows.column("addr"), rows.column("size_bytes"), rows.column("func"), rows.column("stream"));
    let mut seen = 0;
    for (tid, mut own) in by_thread {
        own.sort_by_key(|row| ts[*row]);
        let expected: Vec<&Value> = made.iter().filter(|call| call["tid"] == tid).collect();
        assert_eq!(own.len(), expected.len(), "thread {tid}");
        for (row, call) in own.into_iter().zip(expected) {
            let wanted = |name: &str| call[name].as_i64().unwrap();
            let some = |value: i64| (value != 0).then_some(value);
            assert_eq!(rows.text(row, "op").as_deref(), call["op"].as_str());
            assert_eq!(ret[row], Some(wanted("ret")));
            assert_eq!(addr[row].unwrap_or(0), wanted("addr"), "{call}");
            assert_eq!(size[row].unwrap_or(0), wanted("size_bytes"), "{call}");
            assert_eq!(func[row].unwrap_or(0), wanted("func"), "{call}");
            assert_eq!(stream[row], some(wanted("stream")), "{call}");
            assert_eq!(rows.text(row, "direction").unwrap_or_default(), call["direction"].as_str().unwrap());
            let (start, length) = (ts[row].unwrap(), dur[row].unwrap());
            assert!(
                start >= wanted("before_ns") && start + length <= wanted("after_ns"),
                "{call}: {start} {length}"
            );
            assert!(length >= wanted("delay_ns"), "{call}: {length}");
            assert_eq!(rows.text(row, "caller").as_deref(), Some("cuda-stub"));
            seen += 1;
        }
    }
    assert_eq!(seen, made.len());
}

fn driver_calls_nest_in_runtime_calls_and_allocator_events_are_whole() {
    let run = record(&[], &["mixed", "10"]);
    let rows = Rows::open(&run.path());
    let (ts, dur, tid) = (rows.column("ts"), rows.column("dur"), rows.column("tid"));
    let (addr, size) = (rows.column("addr"), rows.column("size_bytes"));
    let outer = rows.select("call", Some("cudaMalloc"));
    let inner = rows.select("call", Some("cuMemAlloc"));
    assert_eq!((outer.len(), inner.len()), (21, 21));
    for (outer, inner) in outer.into_iter().zip(inner) {
        assert_eq!((tid[outer], addr[outer], size[outer]), (tid[inner], addr[inner], size[inner]));
        assert!(ts[inner] > ts[outer]);
        assert!(ts[inner].unwrap() + dur[inner].unwrap() <= ts[outer].unwrap() + dur[outer].unwrap());
        assert_eq!(rows.text(inner, "caller").as_deref(), Some("libcudart.so"));
    }
    // memset by 32-bit elements is bytes again.
    let set = rows.select("call", Some("cuMemsetD32"));
    assert_eq!(size[set[0]], Some(4096));

    let log = run.log();
    let actions = ["alloc", "free_requested", "free_completed", "segment_alloc"];
    let expected: Vec<(String, i64, i64)> = log["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            (
                actions[event[0].as_u64().unwrap() as usize].to_owned(),
                event[1].as_i64().unwrap(),
                event[2].as_i64().unwrap(),
            )
        })
        .collect();
    let found = rows.select("alloc", None);
    let recorded: Vec<(String, i64, i64)> = found
        .iter()
        .map(|row| (rows.text(*row, "op").unwrap(), addr[*row].unwrap(), size[*row].unwrap()))
        .collect();
    assert_eq!(recorded, expected);
    assert_eq!(rows.number(found[0], "device"), Some(1));
    assert_eq!((rows.number(found[0], "pool_owner"), rows.number(found[0], "pool_id")), (None, Some(9)));
    assert_eq!(rows.number(found[0], "stream"), Some(0x53));
}

fn a_pause_s_parts_are_told_apart() {
    // The smallest profile has both calls; the bytes need the allocator's events.
    for profile in ["light", "full"] {
        let run = record(&["--profile", profile], &["sleep"]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let rows = Rows::open(&run.path());
        let (ts, dur) = (rows.column("ts"), rows.column("dur"));
        assert_eq!(rows.select("alloc", Some("empty_cache")).len(), 1);
        let collected = rows.select("alloc", Some("ipc_collect"));
        let callers: Vec<Option<String>> = collected.iter().map(|row| rows.text(*row, "caller")).collect();
        // The program's call, and that of the allocator for a request.
        assert_eq!(callers, [Some("cuda-stub".to_owned()), Some("libc10_cuda.so".to_owned())]);
        let freed = rows.select("alloc", Some("free_requested"));
        if profile == "light" {
            assert!(freed.is_empty());
            continue;
        }
        let from = ts[collected[0]].unwrap();
        let span = from..=from + dur[collected[0]].unwrap();
        let within: Vec<bool> = freed.iter().map(|row| span.contains(&ts[*row].unwrap())).collect();
        assert_eq!(within, [false, true]);
        let parts = "SELECT cause, freed_before_bytes / 1048576 AS freed_before, released_bytes / 1048576 AS released, \
             ipc_freed_bytes / 1048576 AS collected FROM memory_releases ORDER BY ts";
        let expected = "cause,freed_before,released,collected\nempty_cache,20,20,0\nipc_collect,0,0,30\n";
        assert_eq!(sql(&run.path(), parts), expected);
    }
}

fn without_the_function_of_ipc_collect_its_library_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let libraries = directory.path().join("lib");
    std::fs::create_dir(&libraries).unwrap();
    for file in std::fs::read_dir(built("examples")).unwrap().map(Result::unwrap) {
        if file.path().extension().is_some_and(|extension| extension == "so") {
            std::fs::copy(file.path(), libraries.join(file.file_name())).unwrap();
        }
    }
    // Another build of PyTorch has the function in another of its libraries; a library without it is no error.
    std::fs::rename(libraries.join("libtorch_cuda.so"), libraries.join("libtorch_python.so")).unwrap();
    std::fs::copy(built("examples").join("libc10.so"), libraries.join("libtorch_cuda.so")).unwrap();
    let run = record_with(&libraries, &["--profile", "default"], &["sleep"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let rows = Rows::open(&run.path());
    assert_eq!(rows.select("alloc", Some("ipc_collect")).len(), 2);
    let probes = rows.meta["probes"].as_array().unwrap();
    let of = |probe: &&Value| probe["symbol"].as_str().unwrap().contains("CudaIPCCollect");
    let found: Vec<&Value> = probes.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]["library"].as_str().unwrap().ends_with("libtorch_python.so") && found[0]["error"].is_null()
    );
    let libraries = rows.meta["libraries"].as_array().unwrap();
    let without = libraries.iter().find(|one| one["path"].as_str().unwrap().ends_with("libtorch_cuda.so"));
    assert!(without.is_some_and(|one| one["absent"].to_string().contains("CudaIPCCollect")), "{libraries:?}");
}

fn what_does_not_fit_is_counted() {
    let run = record(&["--buffer", "64KiB"], &["mixed", "30000"]);
    let rows = Rows::open(&run.path());
    let mut lost_in_all = 0;
    for (op, symbol, made) in [
        ("cudaLaunchKernel", "cudaLaunchKernel", 90_000),
        ("cuLaunchKernel", "cuLaunchKernel", 90_000),
        ("cudaMalloc", "cudaMalloc", 21),
    ] {
        let (recorded, lost) = (rows.select("call", Some(op)).len() as u64, rows.lost(symbol));
        assert_eq!(recorded + lost, made, "{op}: {recorded} rows, {lost} lost");
        lost_in_all += lost;
    }
    assert!(lost_in_all > 0, "so small a buffer must overflow, or this test shows nothing");
    assert!(!run.stderr().contains(" 0 lost"), "{}", run.stderr());
}

fn a_stolen_cpu_is_on_record_and_the_thief_is_named() {
    let run = record(&[], &["preempt"]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let rows = Rows::open(&run.path());
    let log = run.log();
    let (start, end) = (log["hog"][0].as_i64().unwrap(), log["hog"][1].as_i64().unwrap());
    let victim = log["tid"].as_i64();
    let (ts, dur, tid) = (rows.column("ts"), rows.column("dur"), rows.column("tid"));
    let stolen = rows
        .select("off_cpu", Some("preempted"))
        .into_iter()
        .filter(|row| tid[*row] == victim)
        .max_by_key(|row| dur[*row])
        .expect("an interval");
    let (off, back) = (ts[stolen].unwrap(), ts[stolen].unwrap() + dur[stolen].unwrap());
    // While the hog read its clock it had the CPU, so the victim had not.
    assert!(off <= start && back >= end, "off {off}..{back}, hog {start}..{end}");
    let error = (back - off) - (end - start);
    eprintln!("stolen {} ns, hog ran {} ns: error {error} ns", back - off, end - start);
    assert!(error < 20_000_000, "the interval is {error} ns longer than the theft");
    assert_eq!(rows.number(stolen, "runnable_ns"), dur[stolen]);

    let hog_tid = log["hog_tid"].as_i64();
    let held: i64 = rows
        .select("run", None)
        .into_iter()
        .filter(|row| tid[*row] == hog_tid)
        .map(|row| dur[row].unwrap())
        .sum();
    assert!(held >= end - start, "the hog's stints: {held} ns");

    let verdict = Command::new(built("analyze")).args(["chains", "--json"]).arg(run.path()).output().unwrap();
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stderr));
    let verdict: Value = serde_json::from_slice(&verdict.stdout).unwrap();
    assert_eq!(verdict["culprits"][0]["comm"], "hog");
    let launches =
        verdict["verdicts"].as_array().unwrap().iter().find(|v| v["op"] == "cudaLaunchKernel").unwrap();
    assert!(launches["slow_count"].as_u64().unwrap() >= 1);
    let scheduler =
        launches["shares"].as_array().unwrap().iter().find(|share| share["cause"] == "scheduler").unwrap();
    assert!(scheduler["total_ns"].as_f64().unwrap() >= (end - start) as f64);
}

fn calls_that_never_return_are_censored() {
    let run = record(&[], &["open"]);
    let rows = Rows::open(&run.path());
    let dur = rows.column("dur");
    for op in ["cudaDeviceSynchronize", "cuCtxSynchronize"] {
        let found = rows.select("call", Some(op));
        assert_eq!(found.len(), 1, "{op}");
        assert_eq!((dur[found[0]], rows.number(found[0], "ret")), (None, None), "{op}");
    }
    assert_eq!(rows.select("call", Some("cudaLaunchKernel")).len(), 1);
}

fn a_running_process_is_joined_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = workload(directory.path(), &["steady", "300000"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let out = directory.path().join("run.parquet");
    let output = Command::new(CAPTURE)
        .args(["--profile", "full", "--pid", &child.id().to_string(), "--duration", "700ms", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(child.wait().unwrap().success());
    let rows = Rows::open(&out);
    assert!(rows.select("call", Some("cudaLaunchKernel")).len() > 1000);
    assert!(
        rows.select("off_cpu", Some("stopped")).is_empty(),
        "a process that is not ours is never stopped"
    );
}

fn how_processes_end_is_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run.parquet");
    // The shell ends with a status of its own after a child that ends well, one that does not, and two that signals kill.
    let script = "/bin/true; (exit 7); sh -c 'kill -SEGV $$'; sh -c 'kill -KILL $$'; exit 3";
    Command::new(CAPTURE).arg("--out").arg(&out).args(["--", "sh", "-c", script]).output().unwrap();
    let rows = Rows::open(&out);
    let ends = rows.select("process", Some("exit"));
    let statuses: Vec<Option<i64>> = ends.iter().map(|row| rows.number(*row, "ret")).collect();
    assert_eq!(statuses, [0, 7, -11, -9, 3].map(Some));
    let asked = "SELECT exit_status FROM process_events WHERE op = 'exit' AND exit_status < 0 ORDER BY ts";
    assert_eq!(sql(&out, asked), "exit_status\n-11\n-9\n");

    let run = record(&[], &["mixed", "10"]);
    let rows = Rows::open(&run.path());
    let ends = rows.select("process", Some("exit"));
    assert!(
        ends.iter().all(|row| rows.number(*row, "ret") == Some(0)),
        "a healthy program's threads end with 0"
    );
    assert!(rows.select("process", Some("fork")).iter().all(|row| rows.number(*row, "ret").is_none()));
}

fn a_demo_shows_what_its_hog_costs() {
    let directory = tempfile::tempdir().unwrap();
    let demo = |args: &[&str]| {
        let mut command = Command::new(CAPTURE);
        command.current_dir(directory.path()).env("TMPDIR", directory.path());
        command.args(["demo", "--seconds", "3"]).args(args).output().unwrap()
    };
    let output = demo(&[]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.contains("analyze inquest-live/hog.parquet"), "{out}");
    let run = |name: &str| directory.path().join("inquest-live").join(name);
    let findings = |name: &str| -> Value {
        let output =
            Command::new(built("analyze")).args(["findings", "--json"]).arg(run(name)).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let first = &findings("hog.parquet")["findings"][0];
    assert_eq!(first["kind"], "waiting-for-cpu", "{first}");
    assert!(first["title"].as_str().unwrap().contains("cpu-hog"), "{first}");
    let is_hog = |finding: &Value| finding["title"].as_str().unwrap().contains("cpu-hog");
    let quiet = findings("quiet.parquet");
    assert!(!quiet["findings"].as_array().unwrap().iter().any(is_hog), "{quiet}");
    // 344 steps of 16 launches each, in both.
    for name in ["quiet.parquet", "hog.parquet"] {
        assert_eq!(Rows::open(&run(name)).select("call", Some("cuLaunchKernel")).len(), 344 * 16, "{name}");
    }
    // Neither the stub libraries nor the hog stay behind, and recordings are not replaced unasked.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let refused = demo(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
}
