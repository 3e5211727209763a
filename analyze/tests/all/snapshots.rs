//! Snapshots of PyTorch's allocator through the real command line, against what Python says they are
//! (testdata/snapshots/make.py).

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::Value;

use super::support::{import_as, json, provenance, stdout, testdata, truth};

fn snapshot(name: &str) -> String {
    testdata(&format!("snapshots/{name}"))
}

fn limits(run: &str) -> String {
    provenance(run)["not_captured"].to_string()
}

const ROWS: &str = "SELECT ts, kind, op, dur, addr, size_bytes, value, stream, device, pool_owner, pool_id, \
    CASE WHEN kind = 'name' THEN NULL ELSE detail END AS detail, frames \
    FROM events e LEFT JOIN (SELECT stack AS number, frames FROM stacks) s ON s.number = e.stack \
    WHERE kind <> 'name' ORDER BY ts, kind, op, device, addr";

#[test]
fn every_protocol_gives_the_rows_that_python_gives() {
    let expected = fs::read_to_string(snapshot("small.rows.csv")).unwrap();
    for protocol in 0..6 {
        let (_kept, run) = import_as("torch-snapshot", snapshot(&format!("small.p{protocol}.pickle")));
        assert_eq!(stdout(&["sql", &run, ROWS]), expected, "protocol {protocol}");
    }
    let (_kept, run) = import_as("torch-snapshot", snapshot("small.p4.pickle"));
    let run_facts = provenance(&run);
    assert_eq!(run_facts["producer"], "torch snapshot");
    assert_eq!(run_facts["joined_running"], false, "{run_facts}");
    assert_eq!(run_facts["clock"]["start_ns"], 1_700_000_000_000_000_000_i64);
    let environment: BTreeMap<String, String> =
        serde_json::from_value(run_facts["processes"][0]["environment"].clone()).unwrap();
    let variable = "max_split_size_mb:128,garbage_collection_threshold:0.5,expandable_segments:True,\
        roundup_power2_divisions:[1:0,2:0,4:8,8:8],backend:native";
    assert_eq!(environment["PYTORCH_CUDA_ALLOC_CONF"], variable);
    assert_eq!(environment["pinned_num_register_threads"], "1");
    assert_eq!(environment["release_lock_on_cudamalloc"], "False");
    // Each stack is spelled out once, and events know it from the first one on.
    let spelled = "SELECT count(*) AS n, count(DISTINCT stack) AS stacks FROM events WHERE kind = 'name'";
    assert_eq!(stdout(&["sql", &run, spelled]), "n,stacks\n2,2\n");
}

/// FNV-1a of 64 bits.
fn fnv1a(text: &str) -> String {
    let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}

#[test]
fn a_real_snapshot_keeps_every_event_in_order() {
    let facts = truth("snapshots/mixed-7gb.json");
    for name in ["mixed-7gb", "tail"] {
        let (_kept, run) = import_as("torch-snapshot", snapshot(&format!("{name}.pickle.gz")));
        let events = "kind = 'alloc' AND op NOT LIKE 'state%'";
        let rows = stdout(&[
            "sql",
            &run,
            &format!(
                "SELECT op, addr, size_bytes, ts / 1000 AS time_us FROM events WHERE {events} ORDER BY ts"
            ),
        ]);
        let (_, rows) = rows.split_once('\n').unwrap();
        assert_eq!(fnv1a(rows), facts[name]["fnv1a"], "{name}");
        let counts = stdout(&[
            "sql",
            &run,
            &format!("SELECT op, count(*) AS n FROM events WHERE {events} GROUP BY op ORDER BY op"),
        ]);
        let counts: BTreeMap<&str, u64> = counts
            .lines()
            .skip(1)
            .map(|line| line.split_once(',').unwrap())
            .map(|(op, n)| (op, n.parse().unwrap()))
            .collect();
        assert_eq!(serde_json::to_value(&counts).unwrap(), facts[name]["counts"], "{name}");
        let distinct =
            stdout(&["sql", &run, &format!("SELECT count(DISTINCT ts) AS n FROM events WHERE {events}")]);
        assert_eq!(distinct, format!("n\n{}\n", counts.values().sum::<u64>()), "{name}");
        let state = "SELECT count(*) AS n, sum(size_bytes) AS bytes FROM events WHERE op = 'state_segment'";
        assert!(stdout(&["sql", &run, state]).starts_with("n,bytes\n33,"));
        // The blocks of a segment fill it.
        let filled = "SELECT sum(CASE op WHEN 'state_segment' THEN size_bytes ELSE -value END) AS rest \
            FROM events WHERE op LIKE 'state%'";
        assert_eq!(stdout(&["sql", &run, filled]), "rest\n0\n");
        let is_tail = name == "tail";
        assert_eq!(provenance(&run)["joined_running"], is_tail, "{name}");
        assert_eq!(limits(&run).contains("the history begins in the middle"), is_tail, "{name}");
        for verb in ["info", "summary", "chains"] {
            stdout(&[verb, &run]);
        }
    }
}

/// Blocks and segments at an instant, without the times that a history may not reach back to.
fn held(run: &str, at: i64) -> (String, String) {
    let alive = format!("ts <= {at} AND (dur IS NULL OR ts + dur > {at})");
    let blocks = format!(
        "SELECT state, addr, size_bytes, requested_bytes FROM memory_blocks WHERE {alive} ORDER BY addr"
    );
    let segments = format!(
        "SELECT addr, size_bytes, is_small, is_expandable, stream FROM memory_segments WHERE {alive} ORDER BY addr"
    );
    (stdout(&["sql", run, &blocks]), stdout(&["sql", run, &segments]))
}

#[test]
fn a_ring_that_was_full_tells_the_same_states() {
    let (_kept, whole) = import_as("torch-snapshot", snapshot("mixed-7gb.pickle.gz"));
    let (_kept_too, tail) = import_as("torch-snapshot", snapshot("tail.pickle.gz"));
    let first = stdout(&["sql", &tail, "SELECT min(ts) AS ts FROM events WHERE kind = 'alloc'"]);
    let first: i64 = first.lines().nth(1).unwrap().parse().unwrap();
    let last = stdout(&["sql", &tail, "SELECT max(ts) AS ts FROM events WHERE kind = 'alloc'"]);
    let last: i64 = last.lines().nth(1).unwrap().parse().unwrap();
    let (mut rows, mut unknown_count) = (0, 0);
    for part in 0..=8 {
        let at = first + (last - first) * part / 8;
        let (expected, (blocks, segments)) = (held(&whole, at), held(&tail, at));
        // Up to here a block may have reached, and there is free memory behind it.
        let unknown = "unknown,140637360132096,749056,\ninactive,140637360881152,1049088,";
        unknown_count += blocks.matches(unknown).count();
        let blocks = blocks.replace(unknown, "inactive,140637360132096,1798144,");
        assert_eq!((&blocks, &segments), (&expected.0, &expected.1), "at {at}");
        rows += blocks.lines().count();
    }
    assert!(rows > 500 && unknown_count <= 9, "{rows} rows, {unknown_count} times not known");
    // What was there already has no time; and it is as the snapshot's state says.
    let censored = "SELECT bool_or(is_left_censored) AS some, \
        bool_or(is_left_censored AND alloc_ts IS NOT NULL) AS dated FROM memory_blocks";
    assert_eq!(stdout(&["sql", &tail, censored]), "some,dated\ntrue,false\n");
    assert_eq!(stdout(&["sql", &whole, censored]), "some,dated\nfalse,false\n");
    for run in [&whole, &tail] {
        assert_eq!(stdout(&["sql", run, "SELECT * FROM data_quality"]), "run,problem,rows_count\n");
    }
}

#[test]
fn call_stacks_show_that_the_cache_was_emptied() {
    let (_kept, run) = import_as("torch-snapshot", snapshot("mixed-7gb.pickle.gz"));
    let causes =
        "SELECT cause, count(*) AS n, sum(segments_count) AS segments FROM memory_releases GROUP BY cause";
    assert_eq!(stdout(&["sql", &run, causes]), "cause,n,segments\nempty_cache,5,49\n");
}

/// A snapshot as Python would write it (protocol 0), with one segment and no history.
fn state_only(blocks: &[(u64, u64, &str)]) -> Vec<u8> {
    let block = |(size, requested, state): &(u64, u64, &str)| {
        format!("(dVsize\nI{size}\nsVrequested_size\nI{requested}\nsVstate\nV{state}\nsa")
    };
    let blocks: String = blocks.iter().map(block).collect();
    let segment = format!(
        "(dVdevice\nI0\nsVaddress\nI2097152\nsVtotal_size\nI2097152\nsVstream\nI0\nsVsegment_type\nVsmall\nsVblocks\n(l{blocks}sa"
    );
    format!("(dVsegments\n(l{segment}s.").into_bytes()
}

#[test]
fn a_state_without_a_history_is_shown_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state.pickle");
    let blocks = [
        (1024, 1000, "active_allocated"),
        (512, 7, "inactive"),
        (2_095_616, 2_095_616, "active_awaiting_free"),
    ];
    fs::write(&file, state_only(&blocks)).unwrap();
    let (_kept, run) = import_as("torch-snapshot", &file);
    for at in ["peak", "end"] {
        let moment = json(&["memory", &run, "--at", at, "--json"]);
        let held = &moment["moment"]["allocators"][0];
        let bytes = ["reserved", "allocated", "pending", "pinned", "unknown"]
            .map(|name| held[format!("{name}_bytes")].as_i64());
        assert_eq!(bytes, [2_097_152, 1024, 2_095_616, 512, 0].map(Some), "{at}");
        assert_eq!(held["pinned"][0]["pins"][0]["age_ns"], Value::Null);
        assert_eq!(held["faults"], serde_json::json!([]));
    }
    // Without an allocation there are no epochs, and what is allocated is listed all the same.
    let growth = &json(&["leaks", &run, "--json"])["allocators"][0];
    assert_eq!((&growth["verdict"], &growth["epochs_count"]), (&"inconclusive".into(), &0.into()));
    let site = serde_json::json!({"frames": null, "tid": 0, "stream": 0, "blocks_count": 1, "blocks_bytes": 1024,
        "smallest_bytes": 1024, "largest_bytes": 1024});
    assert_eq!(growth["live_sites"], serde_json::json!([site]));
    let text = stdout(&["leaks", &run]);
    assert!(text.contains("no call stack is on record") && !text.contains("warm-up"), "{text}");
}

#[test]
fn a_state_that_its_events_do_not_make_is_told() {
    let (_kept, run) = import_as("torch-snapshot", snapshot("small.p4.pickle"));
    assert_eq!(stdout(&["sql", &run, "SELECT * FROM data_quality"]), "run,problem,rows_count\n");
    // Its first event, or first block, is of another size.
    let mut bytes = fs::read(snapshot("small.p0.pickle")).unwrap();
    let at = bytes.windows(5).position(|window| window == b"I513\n").unwrap();
    bytes[at + 1] = b'7';
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.pickle");
    fs::write(&file, bytes).unwrap();
    let (_kept_too, run) = import_as("torch-snapshot", &file);
    let problems = stdout(&["sql", &run, "SELECT problem FROM data_quality ORDER BY problem"]);
    assert!(problems.contains("a block of the snapshot's state is not as its events make it"), "{problems}");
    let shown = stdout(&["memory", &run, "--at", "end"]);
    assert!(shown.contains("the snapshot has") && shown.contains("its events make"), "{shown}");
}

#[test]
fn early_versions_are_read() {
    let (_kept, run) = import_as("torch-snapshot", snapshot("old.pickle"));
    let rows = "SELECT ts, op, addr, size_bytes, value, detail FROM events WHERE kind <> 'name' ORDER BY ts, addr, value";
    assert_eq!(
        stdout(&["sql", &run, rows]),
        "ts,op,addr,size_bytes,value,detail\n0,segment_alloc,139637976727552,2097152,,\n1,alloc,139637976727552,1000,,\n\
         2,state_block,139637976727552,1000,1024,active_allocated\n2,state_segment,139637976727552,2097152,,small\n\
         2,state_block,139637976728576,,2096128,inactive\n"
    );
    assert!(limits(&run).contains("they have no times"));
}

/// Whatever a file says, it is refused with a byte and the code of bad input, in little memory, and leaves
/// nothing behind.
#[test]
fn hostile_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let witness = directory.path().join("executed");
    let system = format!("\u{80}cos\nsystem\n(S'touch {}'\ntR.", witness.display());
    let system: Vec<u8> =
        system.chars().map(|c| c as u8).flat_map(|b| if b == 0x80 { vec![b, 4] } else { vec![b] }).collect();
    let whole = fs::read(snapshot("mixed-7gb.pickle.gz")).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x55;
    let nested = [vec![b']'; 30 << 20]].concat();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("system", system, "byte 2: opcode GLOBAL os.system"),
        ("empty", Vec::new(), "byte 0: the pickle is cut off"),
        ("text", b"# not a pickle\n".to_vec(), "byte 0: byte 0x23 is no opcode"),
        ("length", b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.".to_vec(), "byte "),
        ("memo", b"\x80\x04N\x94j\xff\xff\xff\xff.".to_vec(), "byte 4: it refers to object 4294967295"),
        (
            "cycle",
            b"}\x94\x8c\x08segments]\x94h\x01as.".to_vec(),
            "byte 12: a list that begins here contains itself",
        ),
        ("nested", nested, "MiB of memory"),
        ("cut", whole[..whole.len() / 2].to_vec(), "byte "),
        ("damaged", damaged, "byte "),
    ];
    for (name, bytes, words) in cases {
        let file = directory.path().join(name);
        fs::write(&file, &bytes).unwrap();
        let out = directory.path().join("run.parquet");
        // Address space, most of it the threads' own stacks.
        let script = "ulimit -v 2500000; exec \"$0\" import torch-snapshot \"$1\" --out \"$2\"";
        let output = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_analyze")])
            .args([&file, &out])
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains(words) && !message.contains("panicked"), "{name}: {message}");
        let left: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|left| left.starts_with("run"))
            .collect();
        assert!(left.is_empty(), "{name} left {left:?}");
    }
    assert!(!witness.exists(), "nothing was executed");
}
