//! `analyze memory` on runs recorded on an H200.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use serde_json::Value;

fn analyze(words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_analyze")).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn run(name: &str) -> String {
    format!("{}/../testdata/memory/{name}.parquet", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn what_the_model_leaves_behind_is_pinned_by_named_blocks() {
    let (code, out, err) = analyze(&["memory", &run("generate"), "--at", "cache emptied", "--json"]);
    assert_eq!(code, 0, "{err}");
    let moment: Value = serde_json::from_str(&out).unwrap();
    let held = &moment["moment"]["allocators"][0];
    // As PyTorch said at that mark: reserved, allocated, inactive split.
    assert_eq!(held["reserved_bytes"], 547_356_672);
    assert_eq!(held["allocated_bytes"], 34_603_008);
    assert_eq!(held["pinned_bytes"], 512_753_664);
    assert_eq!(held["releasable_bytes"], 0);
    let pinned = held["pinned"].as_array().unwrap();
    let in_use: u64 = pinned.iter().map(|segment| segment["in_use_bytes"].as_u64().unwrap()).sum();
    assert_eq!((pinned.len(), in_use), (2, 34_603_008));
    assert_eq!(pinned[0]["pins"][0]["size_bytes"], 33_554_432);
}

#[test]
fn reserved_is_the_sum_of_its_parts_in_every_run() {
    let folder = format!("{}/../testdata/memory", env!("CARGO_MANIFEST_DIR"));
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "parquet") {
            continue;
        }
        let (code, out, err) = analyze(&["memory", path.to_str().unwrap(), "--json"]);
        assert_eq!(code, 0, "{err}");
        let moment: Value = serde_json::from_str(&out).unwrap();
        for held in moment["moment"]["allocators"].as_array().unwrap() {
            let bytes = |name: &str| held[name].as_i64().unwrap();
            let parts = ["allocated", "pending", "releasable", "private_releasable", "pinned", "unknown"];
            let sum: i64 = parts.iter().map(|part| bytes(&format!("{part}_bytes"))).sum();
            assert_eq!(sum, bytes("reserved_bytes"), "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 17, "{compared} allocators");
}

#[test]
fn a_mark_that_is_not_there_is_bad_input() {
    let (code, _, err) = analyze(&["memory", &run("generate"), "--at", "no'such"]);
    assert_eq!(code, 2);
    assert!(err.contains("has no mark"), "{err}");
}

/// A run of one process, written as rows of a trace of calls only.
#[test]
fn calls_of_the_driver_tell_of_segments_and_not_of_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("calls.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE events (id, timestamp, pid, tid, source, op, duration, gpu_id, arg0, arg1, ret_code);
             CREATE TABLE sessions (started_at, stopped_at);
             INSERT INTO sessions VALUES (1000, 9000);
             CREATE TABLE ops (source_id, op_id, name);
             INSERT INTO ops VALUES (1, 1, 'cudaMalloc'), (1, 2, 'cudaFree');
             INSERT INTO events VALUES
                 (1, 1000, 7, 7, 1, 1, 10, 0, 2097152, 0, 0), (2, 2000, 7, 7, 1, 1, 10, 0, 20971520, 0, 0),
                 (3, 3000, 7, 7, 1, 1, 10, 0, 20971520, 0, 2), (4, 4000, 7, 7, 1, 2, 10, 0, 140000000, 0, 0);",
        )
        .unwrap();
    drop(connection);
    let out = directory.path().join("run.parquet");
    let (database, out) = (database.to_str().unwrap(), out.to_str().unwrap());
    let (code, _, err) = analyze(&["import", "ingero", database, "--out", out]);
    assert_eq!(code, 0, "{err}");
    let driver = |at: &str| {
        let (code, text, err) = analyze(&["memory", out, "--at", at, "--json"]);
        assert_eq!(code, 0, "{err}");
        let moment: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(moment["moment"]["allocators"], serde_json::json!([]));
        moment["moment"]["drivers"][0].clone()
    };
    let before = driver("2500ns");
    assert_eq!((&before["held_bytes"], &before["is_like_torch"]), (&23_068_672.into(), &true.into()));
    let after = driver("peak");
    assert_eq!((&after["held_bytes"], &after["alloc_bytes"]), (&Value::Null, &23_068_672.into()));
    let (_, text, _) = analyze(&["memory", out]);
    assert!(
        text.contains("inferred: PyTorch's allocator") && text.contains("not known: which blocks"),
        "{text}"
    );
}
