//! Every recorded scenario against a source that is not the recorder: PyTorch's profiler, the program itself, or
//! the library it called through (`testdata/record/scenarios.py`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::support::{run, stdout, truth};

type Counts = BTreeMap<String, (u64, u64)>;

/// Calls and bytes of each function inside a span of one process.
fn recorded(name: &str, span: &Value) -> Counts {
    let query = format!(
        "SELECT op, count(*), coalesce(sum(size_bytes), 0) FROM events WHERE kind = 'call' AND pid = {} AND ts >= {} AND ts < {} GROUP BY op",
        span["pid"], span["start_ns"], span["end_ns"]
    );
    stdout(&["sql", "--format", "csv", &run(name), &query])
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            (cells[0].to_owned(), (cells[1].parse().unwrap(), cells[2].parse().unwrap()))
        })
        .collect()
}

/// What the profiler sees and no probe is for, and the synchronisations around the span.
const BESIDE: [&str; 6] = [
    "INVALID",
    "cudaDeviceSynchronize",
    "cudaGraphGetNodes",
    "cudaStreamIsCapturing",
    "cudaThreadExchangeStreamCaptureMode",
    "cudaDeviceGetAttribute",
];

fn check(name: &str) {
    let spans = truth(&format!("h200/{name}.counts.json"));
    let spans = spans.as_array().unwrap();
    assert!(!spans.is_empty());
    let mut checked = 0;
    for span in spans {
        let found = recorded(name, span);
        let count = |op: &str| found.get(op).map_or(0, |(count, _)| *count);
        for source in ["made", "library"] {
            for (op, expected) in span[source].as_object().into_iter().flatten() {
                assert_eq!(count(op), expected.as_u64().unwrap(), "{name}: {op} ({source})");
                checked += 1;
            }
        }
        for (op, bytes) in span["made_bytes"].as_object().into_iter().flatten() {
            assert_eq!(found[op].1, bytes.as_u64().unwrap(), "{name}: bytes of {op}");
            checked += 1;
        }
        let Some(profiler) = span["profiler"].as_object() else { continue };
        let theirs = |op: &str| profiler.get(op).map_or(0, |count| count.as_u64().unwrap());
        // The default profile probes launches on the driver's layer, where those of both layers pass.
        for (driver, runtime) in
            [("cuLaunchKernel", "cudaLaunchKernel"), ("cuLaunchKernelEx", "cudaLaunchKernelExC")]
        {
            assert_eq!(count(driver), theirs(driver) + theirs(runtime), "{name}: {driver}");
            checked += 1;
        }
        for (op, expected) in profiler {
            if !BESIDE.contains(&op.as_str()) && !op.contains("LaunchKernel") {
                assert_eq!(count(op), expected.as_u64().unwrap(), "{name}: {op} (profiler)");
                checked += 1;
            }
        }
    }
    assert!(checked >= 4, "{name}: only {checked} counts were compared");
}

#[test]
fn graphs() {
    check("graphs");
}

#[test]
fn compiled_by_triton() {
    check("compile");
}

#[test]
fn stream_ordered_allocator() {
    check("malloc_async");
}

#[test]
fn pluggable_allocator_that_pauses() {
    check("pluggable");
}

#[test]
fn two_processes_on_one_gpu() {
    check("shared");
}

#[test]
fn nccl_on_two_gpus() {
    check("nccl");
}
