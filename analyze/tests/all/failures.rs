//! Failures in files: what the program reads of them, and the rows that its evidence returns.

use std::path::Path;

use analyze::{
    questions::findings::{self, Finding, Rank},
    trace::Trace,
};
use serde_json::{Value, json};

use super::support::{import_rows, run};

const S: i64 = 1_000_000_000;

fn call(pid: i64, op: &str, ts: i64, dur: Option<i64>, ret: Option<i64>) -> Value {
    json!({"kind": "call", "op": op, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "ret": ret})
}

fn exit(pid: i64, ts: i64, ret: i64) -> Value {
    json!({"kind": "process", "op": "exit", "pid": pid, "tid": pid, "ts": ts, "ret": ret})
}

/// 50 launches of a process, one a fifth of a second, from 1 s on.
fn launches(pid: i64) -> Vec<Value> {
    (0..50).map(|n| call(pid, "cudaLaunchKernel", S + n * S / 5, Some(10_000), Some(0))).collect()
}

/// Finds what is wrong with rows; returns the failures with the number of rows that each query of their evidence returns.
async fn failures(rows: Vec<Value>) -> Vec<(Finding, Vec<usize>)> {
    let folder = tempfile::tempdir().unwrap();
    failures_of(&import_rows(folder.path(), "rows", rows)).await
}

async fn failures_of(file: &str) -> Vec<(Finding, Vec<usize>)> {
    let trace = Trace::open_one(Path::new(file)).await.unwrap();
    let mut found = Vec::new();
    for finding in findings::run(&trace).await.unwrap().findings {
        if finding.rank > Rank::OutOfMemory {
            continue;
        }
        let mut counts = Vec::new();
        for evidence in &finding.evidence {
            let batches = trace.batches(&evidence.sql).await.unwrap();
            counts.push(batches.iter().map(|batch| batch.num_rows()).sum::<usize>());
        }
        found.push((finding, counts));
    }
    found
}

#[tokio::test]
async fn an_assertion_on_the_device_ends_a_process() {
    let mut rows = launches(7);
    rows.extend((0..4).map(|n| call(7, "cudaStreamSynchronize", 12 * S + n, Some(1), Some(710))));
    rows.push(exit(7, 13 * S, 1));
    let found = failures(rows).await;
    let [(finding, counts)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.kind, finding.pid), ("crash", Some(7)));
    assert!(finding.title.contains("710 (cudaErrorAssert)"), "{}", finding.title);
    assert_eq!(counts, &[4, 1]);
}

#[tokio::test]
async fn a_synchronization_that_does_not_return_is_a_hang() {
    let mut rows = launches(7);
    rows.push(call(7, "cudaStreamSynchronize", 12 * S, None, None));
    rows.push(json!({"kind": "off_cpu", "op": "sleeping", "pid": 7, "tid": 8, "ts": 11 * S, "syscall": 202}));
    // A watchdog asks on.
    let query = |n: i64| json!({"kind": "call", "op": "cudaEventQuery", "pid": 7, "tid": 9, "ts": n * S, "dur": 9, "ret": 600});
    rows.extend((12..20).map(query));
    let found = failures(rows).await;
    let [(finding, counts)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.kind, finding.pid), ("hang", Some(7)));
    assert!(
        finding.evidence.iter().any(|evidence| evidence.text.contains("sleeping in futex")),
        "{finding:?}"
    );
    assert_eq!(counts, &[1, 1]);
}

#[tokio::test]
async fn a_signal_ends_a_process_and_the_others_wait_for_it() {
    let mut rows = launches(7);
    rows.extend(launches(8));
    rows.push(exit(8, 12 * S, -11));
    rows.push(call(7, "cudaStreamSynchronize", 12 * S, None, None));
    rows.push(exit(7, 30 * S, -6));
    let found = failures(rows).await;
    let [(finding, counts)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.kind, finding.pid), ("crash", Some(8)));
    assert_eq!(counts, &[1, 1, 1]);
}

#[tokio::test]
async fn healthy_runs_have_no_failures() {
    let mut rows = launches(7);
    rows.push(call(7, "cuLibraryUnload", 13 * S, Some(1), Some(4)));
    rows.push(exit(7, 14 * S, 0));
    assert!(failures(rows).await.is_empty());
    for name in ["nccl", "graphs", "shared", "qwen2-hogs", "compile"] {
        let found = failures_of(&run(name)).await;
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}
