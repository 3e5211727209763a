//! What is found about memory in recorded runs, and in a made-up run without PyTorch that leaks.

use std::path::Path;

use analyze::{
    questions::findings::{self, Finding, Rank},
    trace::Trace,
};
use serde_json::{Value, json};

use super::support::{import_rows, json as answer, stdout, testdata};

const MIB: i64 = 1 << 20;

/// Kinds of findings about memory.
const KINDS: [&str; 5] = ["out-of-memory", "leak", "driver-leak", "fragmentation", "allocator-retries"];

/// Returns the findings about memory of a run, in order.
async fn found(run: &str) -> Vec<Finding> {
    let trace = Trace::open(&[run.into()]).await.unwrap();
    let mut found = findings::run(&trace).await.unwrap().findings;
    found.retain(|finding| KINDS.contains(&finding.kind));
    found
}

fn kinds(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.kind).collect()
}

/// A program that allocates 15 MiB every 5 µs and frees every other allocation; the last rows are its exit.
fn leaking(folder: &Path) -> String {
    let row = |ts: i64, op: &str| json!({"ts": ts, "dur": 10, "kind": "call", "op": op, "pid": 7, "tid": 7, "ret": 0});
    let mut rows: Vec<Value> = (0..400).map(|n| row(1_000 + n * 1_000, "cudaLaunchKernel")).collect();
    let memory = |ts: i64, op: &str, n: i64| {
        let mut row = row(ts, op);
        (row["addr"], row["caller"]) = (json!(4096 + n * 32 * MIB), json!("libjob.so"));
        row
    };
    for n in 0..80 {
        let mut alloc = memory(1_500 + n * 5_000, "cudaMallocAsync", n);
        alloc["size_bytes"] = json!(15 * MIB);
        rows.push(alloc);
        let freed = if n % 2 == 0 { 500_000 } else { 3_500 + n * 5_000 };
        rows.push(memory(freed, "cudaFreeAsync", n));
    }
    import_rows(folder, "leaking", rows)
}

#[tokio::test]
async fn a_leak_of_each_epoch_is_found_and_its_absence_is_not() {
    for run in ["memory/leak", "leaks/leak-10", "leaks/leak-12"] {
        let found = found(&testdata(&format!("{run}.parquet"))).await;
        assert_eq!((found[0].kind, found[0].rank), ("leak", Rank::Leak), "{run}: {found:?}");
        assert!(
            found[0].evidence.iter().any(|evidence| evidence.text.contains("does not tell apart")),
            "{run}"
        );
    }
    for run in ["memory/no_leak", "leaks/no_leak-6", "h200/malloc_async", "h200/nccl", "h200/mixed-7gb"] {
        let kinds = kinds(&found(&testdata(&format!("{run}.parquet"))).await);
        assert!(!kinds.contains(&"leak") && !kinds.contains(&"driver-leak"), "{run}: {kinds:?}");
    }
}

#[tokio::test]
async fn a_request_that_failed_comes_with_what_stood_in_its_way() {
    let limited = found(&testdata("h200/mixed-7gb.parquet")).await;
    assert_eq!((limited[0].kind, limited[0].rank), ("out-of-memory", Rank::OutOfMemory), "{limited:?}");
    assert!(limited[0].title.contains("a limit of the process"), "{}", limited[0].title);
    let full = found(&testdata("memory/crowded.parquet")).await;
    assert_eq!(full[0].kind, "out-of-memory");
    assert!(full[0].evidence[0].text.starts_with("2 requests failed"), "{:?}", full[0].evidence);
    // It fills the device on purpose, and marks no epochs.
    let leak = full.iter().find(|finding| finding.kind == "leak");
    assert!(leak.is_none_or(|leak| leak.open.contains("on purpose")), "{leak:?}");
}

#[tokio::test]
async fn a_leak_of_the_driver_s_memory_is_found_without_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    let run = leaking(folder.path());
    let leaks = answer(&["leaks", &run, "--json"]);
    let driver = &leaks["drivers"][0];
    // 40 windows of equal time, one allocation kept in each; a tenth is warm-up, and the last may still be freed.
    assert_eq!(driver["account"]["leaked_bytes"], 35 * 15 * MIB, "{driver}");
    assert_eq!(driver["sites"][0]["frames"], "libjob.so (stream_ordered)");
    assert_eq!(driver["verdict"], "inconclusive", "imported rows do not tell what was lost");
    let found = found(&run).await;
    assert_eq!(kinds(&found), ["driver-leak"]);
    assert!(found[0].open.contains("does not count the events it loses"), "{found:?}");
    let text = stdout(&["memory", &run]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("when most was allocated from the driver"), "{text}");
    assert!(words.contains("80 cudaMallocAsync calls allocated 1.17 GiB"), "{text}");
    // Forty are kept, and the last of the others is there at that time.
    assert!(words.contains("after 39 freeing calls, 615 MiB of it are left"), "{text}");
}
