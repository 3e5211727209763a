//! `analyze memory` on runs recorded on an H200.

use serde_json::Value;
use tempfile::TempDir;

use super::support::{import_as, json, refused, runs_in, stdout, testdata, truth};

fn run(name: &str) -> String {
    testdata(&format!("memory/{name}.parquet"))
}

#[test]
fn the_gap_of_every_round_is_pinned_by_named_blocks() {
    for round in 1..=3 {
        let moment =
            json(&["memory", &run("generate"), "--at", &format!("round {round}, cache emptied"), "--json"]);
        let held = &moment["moment"]["allocators"][0];
        let bytes = ["reserved_bytes", "allocated_bytes", "pinned_bytes", "releasable_bytes"];
        let bytes = bytes.map(|name| held[name].as_i64().unwrap());
        assert_eq!(bytes, [1_321_205_760, 1_030_138_880, 291_066_880, 0], "{round}");
        let pinned = held["pinned"].as_array().unwrap();
        assert!(pinned.iter().all(|segment| !segment["pins"].as_array().unwrap().is_empty()), "{round}");
    }
}

#[test]
fn what_the_model_leaves_behind_is_pinned_by_named_blocks() {
    let moment = json(&["memory", &run("generate"), "--at", "cache emptied", "--json"]);
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
    let mut compared = 0;
    for run in runs_in(&["memory"]) {
        let moment = json(&["memory", &run, "--json"]);
        for held in moment["moment"]["allocators"].as_array().unwrap() {
            let bytes = |name: &str| held[name].as_i64().unwrap();
            let parts = ["allocated", "pending", "releasable", "private_releasable", "pinned", "unknown"];
            let sum: i64 = parts.iter().map(|part| bytes(&format!("{part}_bytes"))).sum();
            assert_eq!(sum, bytes("reserved_bytes"), "{run}");
            compared += 1;
        }
    }
    assert!(compared >= 17, "{compared} allocators");
}

#[test]
fn a_mark_that_is_not_there_is_bad_input() {
    let err = refused(&["memory", &run("generate"), "--at", "no'such"]);
    assert!(err.contains("has no mark"), "{err}");
}

#[test]
fn a_device_full_of_pairs_fails_for_fragmentation_which_expandable_segments_end() {
    let ooms = json(&["oom", &run("crowded"), "--json"]);
    let [full, fragmented] = &ooms.as_array().unwrap()[..] else { panic!("{ooms}") };
    assert_eq!((&full["verdict"], &full["expandable_helps"]), (&"capacity".into(), &false.into()));
    assert_eq!((&fragmented["verdict"], &fragmented["is_limited"]), (&"fragmentation".into(), &false.into()));
    let bytes = |name: &str| fragmented[name].as_i64().unwrap();
    // 237 segments of two blocks of 300 MiB, one of each free.
    assert_eq!((bytes("pool_free_bytes"), bytes("largest_free_bytes")), (237 * 314_572_800, 314_572_800));
    assert_eq!(bytes("requested_bytes"), 1 << 30);
    // One block of one segment stood in the way: its 600 MiB and what the device had left make the gigabyte.
    assert_eq!((bytes("segments_count"), bytes("segments_in_use_bytes")), (1, 314_572_800));
    assert_eq!(fragmented["expandable_helps"], true);
    // And they did: the same program with them was given its gigabyte.
    let state = truth("memory/crowded-expandable.state.json");
    let wanted =
        state["marks"].as_array().unwrap().iter().find(|mark| mark["name"] == "a gigabyte was wanted");
    assert_eq!(wanted.unwrap()["got"], true);
    assert_eq!(json(&["oom", &run("crowded-expandable"), "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn what_a_release_leaves_is_the_sum_of_its_reasons() {
    let mut compared = 0;
    for name in ["plain", "expandable", "settings", "generate", "streams", "graphs-memory", "fallback"] {
        let history = json(&["releases", &run(name), "--json"]);
        for release in history["releases"].as_array().unwrap() {
            let bytes = |name: &str| release[&format!("{name}_bytes")].as_i64().unwrap();
            assert_eq!(bytes("before") - bytes("given_back"), bytes("after"), "{name}: {release}");
            let kept: i64 = ["in_use", "pinned", "private", "releasable", "unknown"].map(bytes).iter().sum();
            assert_eq!(kept, bytes("after"), "{name}: {release}");
            // One cudaFree a segment; expandable ones are unmapped page by page.
            if name != "expandable" {
                assert_eq!(release["calls_count"], release["segments_count"], "{name}: {release}");
            }
            compared += 1;
        }
        let causes = history["causes"].as_array().unwrap();
        let sum = |is_gain: bool| -> i64 {
            causes
                .iter()
                .filter(|sum| sum["is_gain"] == is_gain)
                .map(|sum| sum["size_bytes"].as_i64().unwrap())
                .sum()
        };
        assert!(sum(true) >= sum(false) && sum(false) > 0, "{name}: {causes:?}");
    }
    assert!(compared >= 30, "{compared} releases");
}

#[test]
fn a_release_has_the_cause_that_the_record_shows() {
    let causes = |path: &str| -> Vec<String> {
        let found = json(&["releases", path, "--json"]);
        let releases = found["releases"].as_array().unwrap().iter();
        releases.map(|release| release["cause"].as_str().unwrap().to_owned()).collect()
    };
    let (emptied, made_room) = ("empty_cache", "make_room");
    let plain = [emptied, emptied, emptied, made_room, emptied, emptied];
    assert_eq!(causes(&run("plain")), plain);
    assert_eq!(causes(&run("fallback")), plain);
    // The driver refuses memory, and what is released makes room.
    assert_eq!(causes(&run("crowded-expandable")), [made_room, emptied]);
    // This recording has emptyCache as a call; the first of the two released nothing.
    assert_eq!(causes(&testdata("h200/graphs.parquet")), [emptied, emptied]);
    // Nothing probed emptyCache here, and no request failed.
    let quiet = testdata("h200/qwen2-quiet.parquet");
    assert_eq!(causes(&quiet), ["not_known"; 4]);
    let text = stdout(&["releases", &quiet]);
    assert!(text.contains("the record does not have the calls of emptyCache"), "{text}");
    let found = json(&["releases", &quiet, "--json"]);
    let released = found["causes"].as_array().unwrap().iter().filter(|sum| sum["is_gain"] == false);
    let released: Vec<&str> = released.map(|sum| sum["cause"].as_str().unwrap()).collect();
    assert_eq!(released, ["not_known"]);
}

#[test]
fn a_resume_that_forgets_two_pieces_is_told() {
    let history = json(&["releases", &run("pause"), "--json"]);
    let pauses = history["pauses"].as_array().unwrap();
    let actions: Vec<&str> = pauses.iter().map(|pause| pause["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["pause", "resume", "pause", "resume", "pause", "resume"]);
    let all: i64 = (1..=12).map(|i| i * (4 << 20)).sum();
    let bytes = |place: usize, name: &str| pauses[place][name].as_i64().unwrap();
    assert_eq!((bytes(0, "before_bytes"), bytes(0, "size_bytes"), bytes(0, "after_bytes")), (all, all, 0));
    assert_eq!((bytes(1, "before_bytes"), bytes(1, "after_bytes"), bytes(1, "missing_count")), (0, all, 0));
    // One tensor of 16 MiB was freed before the third pause; the last two were not resumed.
    assert_eq!(bytes(4, "size_bytes"), all - (16 << 20));
    assert_eq!((bytes(5, "missing_bytes"), bytes(5, "missing_count")), ((44 + 48) << 20, 2));
}

#[test]
fn a_device_is_split_to_the_byte_among_recorded_and_other_processes() {
    let moment = json(&["memory", &run("neighbour"), "--at", "beside the other", "--json"]);
    let device = &moment["moment"]["devices"][0];
    let shares = device["shares"].as_array().unwrap();
    let of = |part: &str| -> Vec<i64> {
        shares
            .iter()
            .filter(|share| share["part"] == part)
            .map(|share| share["size_bytes"].as_i64().unwrap())
            .collect()
    };
    // 300 MiB and a segment of 2 MiB here; 1 GiB and its context there.
    assert_eq!(of("allocator"), [302 << 20]);
    assert_eq!(of("other_process"), [(1 << 30) + of("context")[0]]);
    let sum: i64 = shares.iter().map(|share| share["size_bytes"].as_i64().unwrap()).sum();
    assert_eq!(device["used_bytes"], sum);
    // cuBLAS has its own memory, which PyTorch's counters do not show.
    let moment = json(&["memory", &run("generate"), "--json"]);
    let shares = moment["moment"]["devices"][0]["shares"].as_array().unwrap().clone();
    let cublas = shares.iter().find(|share| share["library"] == "libcublas.so.13").unwrap();
    assert_eq!(cublas["size_bytes"], 67_240_960);
}

#[test]
fn advice_rests_on_what_the_run_shows() {
    let review = json(&["memory", &run("crowded"), "--advice", "--json"]);
    let rules: Vec<&str> =
        review["advice"].as_array().unwrap().iter().map(|advice| advice["rule"].as_str().unwrap()).collect();
    assert!(rules.contains(&"expandable_segments"), "{rules:?}");
    // Without events nothing is advised, and that is said.
    let out = stdout(&["memory", &run("pause"), "--advice"]);
    assert!(out.contains("inconclusive: what PyTorch's allocator reserved is not on record"), "{out}");
}

/// What advice says of expandable segments is what the simulator says, or no figure.
#[test]
fn advice_on_expandable_segments_quotes_the_simulator() {
    let advised = |run: &str| -> Vec<Value> {
        let review = json(&["memory", run, "--advice", "--json"]);
        let advice = review["advice"].as_array().unwrap().iter();
        advice.filter(|advice| advice["rule"] == "expandable_segments").cloned().collect()
    };
    for name in ["h200/qwen2-profiled", "memory/examples", "memory/leak"] {
        let run = testdata(&format!("{name}.parquet"));
        let found = json(&["what-if", &run, "--conf", "expandable_segments:True", "--json"]);
        let advice = advised(&run);
        assert_eq!(advice.len(), 1, "{name}");
        // Of a range, what is saved at least.
        let most = found[0]["outcomes"][0]["peak_reserved_max_bytes"].as_i64().unwrap();
        let saved = found[0]["peak_reserved_bytes"].as_i64().unwrap() - most;
        assert_eq!(advice[0]["size_bytes"], saved, "{name}");
    }
    let profiled = testdata("h200/qwen2-profiled.parquet");
    let text = stdout(&["memory", &profiled, "--advice"]);
    let report = stdout(&["report", &profiled, "--markdown"]);
    for (form, text) in [("memory", text), ("report", report)] {
        let line = text.lines().find(|line| line.contains("were caused by fragmentation")).unwrap();
        assert!(
            line.contains("(96.0 MiB") && line.contains("a peak that is lower by 96.0 MiB"),
            "{form}: {line}"
        );
    }
    // They were on: the simulator saves nothing.
    assert_eq!(advised(&run("examples-expandable")), Vec::<Value>::new());
    // The simulation ends where it serves what failed: no peak can be compared.
    for name in ["plain", "crowded"] {
        let advice = advised(&run(name));
        assert_eq!((advice.len(), &advice[0]["size_bytes"]), (1, &0.into()), "{name}");
        assert!(advice[0]["text"].as_str().unwrap().contains("the rest is not known"), "{name}: {advice:?}");
    }
}

#[test]
fn requests_that_failed_are_simulated_with_expandable_segments() {
    let ooms = json(&["oom", &run("plain"), "--json"]);
    let [first, second] = &ooms.as_array().unwrap()[..] else { panic!("{ooms}") };
    assert_eq!((&first["expandable_serves"], &first["expandable_reason"]), (&true.into(), &Value::Null));
    assert_eq!(second["expandable_serves"], Value::Null);
    assert!(second["expandable_reason"].as_str().unwrap().contains("the rest is not known"), "{second}");
    let text = stdout(&["oom", &run("plain")]);
    assert!(text.contains("`analyze what-if` serves the request with them"), "{text}");
    let text = stdout(&["oom", &testdata("h200/mixed-7gb.parquet")]);
    assert!(text.contains("`analyze what-if` cannot serve the request with them"), "{text}");
    // Where it is certain anyway, nothing is simulated.
    let ooms = json(&["oom", &run("crowded"), "--json"]);
    assert!(ooms.as_array().unwrap().iter().all(|oom| oom["expandable_serves"].is_null()), "{ooms}");
}

#[test]
fn the_page_shows_where_memory_was() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    stdout(&["report", &run("crowded"), "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    for word in [
        "Requests that failed",
        "would have helped",
        "What would use less",
        "40 of 237 segments",
        "unexplained",
    ] {
        assert!(page.contains(word), "{word}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

/// A run of one process, imported from a database of calls only; `more` is SQL that adds to the database.
fn driver_calls(more: &str) -> (TempDir, String) {
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
    connection.execute_batch(more).unwrap();
    drop(connection);
    import_as("ingero", database)
}

#[test]
fn calls_of_the_driver_tell_of_segments_and_not_of_blocks() {
    let (_directory, out) = driver_calls(
        "CREATE TABLE event_aggregates (bucket, source, op, pid, count, stored, max_dur);
         INSERT INTO event_aggregates VALUES (0, 1, 1, 7, 3, 3, 10), (0, 1, 2, 7, 1, 1, 10);",
    );
    let driver = |at: &str| {
        let moment = json(&["memory", &out, "--at", at, "--json"]);
        assert_eq!(moment["moment"]["allocators"], serde_json::json!([]));
        moment["moment"]["drivers"][0].clone()
    };
    let before = driver("2500ns");
    assert_eq!((&before["held_bytes"], &before["is_like_torch"]), (&23_068_672.into(), &true.into()));
    let after = driver("peak");
    assert_eq!((&after["held_bytes"], &after["alloc_bytes"]), (&Value::Null, &23_068_672.into()));
    let text = stdout(&["memory", &out]);
    assert!(
        text.contains("inferred: PyTorch's allocator") && text.contains("not known: which blocks"),
        "{text}"
    );
    assert!(!text.contains("at least"), "{text}");
}

/// A database without the table says nothing of what was not stored: it may have been any number of calls.
#[test]
fn figures_of_calls_that_nobody_counted_are_lower_bounds() {
    let (_directory, out) = driver_calls("");
    let words = stdout(&["memory", &out]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("at least 2 cudaMalloc calls allocated at least 22.0 MiB"), "{words}");
    assert!(words.contains("the database has no table event_aggregates"), "{words}");
    assert!(!words.contains("inferred: PyTorch's allocator"), "{words}");
    let text = stdout(&["summary", &out]);
    assert!(text.lines().any(|line| line.starts_with("cudaFree") && line.contains('≥')), "{text}");
}

/// Two launches have rows. Whether others lay between them is known only if all calls were counted.
#[test]
fn launches_that_nobody_counted_are_not_said_to_be_absent() {
    let launches = "INSERT INTO ops VALUES (1, 3, 'cudaLaunchKernel');
         INSERT INTO events VALUES (5, 5000, 7, 7, 1, 3, 10, 0, 1, 0, 0), (6, 6000, 7, 7, 1, 3, 10, 0, 1, 0, 0);";
    let counted = "CREATE TABLE event_aggregates (bucket, source, op, pid, count, stored, max_dur);
         INSERT INTO event_aggregates VALUES (0, 1, 1, 7, 3, 3, 10), (0, 1, 2, 7, 1, 1, 10), (0, 1, 3, 7, 2, 2, 10);";
    let gaps = |more: &str| {
        let (_directory, out) = driver_calls(more);
        stdout(&["report", &out]).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (open, whole) = (gaps(launches), gaps(&format!("{launches}{counted}")));
    assert!(open.contains("how many there were is not known"), "{open}");
    assert!(!open.contains("no thread has two launches on record"), "{open}");
    assert!(whole.contains("1 times between two launches of a thread"), "{whole}");
}

/// Five calls of cudaMalloc were made, and three of them have rows.
#[test]
fn figures_of_calls_that_are_stored_in_part_are_lower_bounds() {
    let (_directory, out) = driver_calls(
        "CREATE TABLE event_aggregates (bucket, source, op, pid, count, stored, max_dur);
         INSERT INTO event_aggregates VALUES (0, 1, 1, 7, 5, 3, 10), (0, 1, 2, 7, 1, 1, 10);",
    );
    let text = stdout(&["memory", &out]);
    let title = "process 7: at least 2 cudaMalloc calls allocated at least 22.0 MiB; on record: ";
    let left =
        "at least 1 cudaFree calls released some of it; how much is not known: only a part of the calls";
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(title) && words.contains(left), "{text}");
    assert!(!words.contains("inferred: PyTorch's allocator"), "{text}");
    let text = stdout(&["summary", &out]);
    let counts =
        |op: &str| text.lines().find(|line| line.starts_with(op)).map(|line| line.matches('≥').count());
    assert_eq!(["cudaMalloc", "cudaFree"].map(counts), [Some(4), Some(0)], "one is of the group: {text}");
}

/// A buffer of 48 MiB is another process's, too, and is given up there last.
#[test]
fn what_another_process_was_given_stays_for_that() {
    let found = json(&["releases", &run("lent"), "--json"]);
    let kept: Vec<_> = found["releases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|release| [&release["given_back_bytes"], &release["exported_bytes"], &release["in_use_bytes"]])
        .map(|bytes| bytes.map(|bytes| bytes.as_i64().unwrap() >> 20))
        .collect();
    assert_eq!(kept, [[0, 48, 112], [48, 0, 64], [64, 0, 0]]);
    // The first release came before the other process gave the buffer up; ipc_collect() freed it before the second. This recorder had no
    // probe of that, so that the bytes are those of any block that was freed.
    let before = |name: &str| -> Vec<Option<i64>> {
        let releases = found["releases"].as_array().unwrap().iter();
        releases.map(|release| release[name].as_i64()).collect()
    };
    assert_eq!(before("freed_before_bytes"), [Some(0), Some(48 << 20), Some(64 << 20)]);
    assert_eq!(before("ipc_freed_bytes"), [None; 3]);
    assert_eq!(before("closed_handles_count"), [Some(0); 3]);
}

/// The parts of a pause, as PyTorch itself counted them around each call (for analyze/tests/all/memory.rs, once `sleep` is recorded).
#[test]
fn a_pause_s_parts_are_those_that_pytorch_counted() {
    let state = truth("memory/sleep.state.json");
    let query = format!(
        "SELECT cause, freed_before_bytes, released_bytes, ipc_freed_bytes, closed_handles_count FROM memory_releases WHERE pid = {} ORDER BY ts LIMIT 3",
        state["pid"]
    );
    let part = |name: &str| state["parts"][name].as_i64().unwrap();
    let expected = format!(
        "cause,freed_before_bytes,released_bytes,ipc_freed_bytes,closed_handles_count\nempty_cache,{},{},0,{}\nipc_collect,0,0,{},0\nempty_cache,0,{},0,0\n",
        // The program itself freed 40 MiB more right before: `cached`.
        part("garbage_freed_bytes") + (40 << 20),
        part("released_bytes"),
        part("closed_handles_count"),
        part("ipc_freed_bytes"),
        part("released_later_bytes")
    );
    assert_eq!(stdout(&["sql", "--format", "csv", &run("sleep"), &query]), expected);
}
