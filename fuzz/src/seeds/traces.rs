//! Traces of other tools.

use serde_json::Value;

use super::files::{file, lines, unpacked};
use crate::mutate::gzip;

/// Returns traces of PyTorch's profiler: an object, and the list of its events alone.
pub fn kineto() -> Vec<Vec<u8>> {
    /// Number of events that stay of a trace.
    const EVENTS_COUNT: usize = 60;
    let mut trace: Value =
        serde_json::from_slice(&unpacked("testdata/kineto/small.json.gz")).expect("a trace of Kineto");
    let events = trace["traceEvents"].as_array_mut().expect("a list of events");
    let step = events.len().div_ceil(EVENTS_COUNT);
    let is_rare = |event: &Value| event["ph"] == "M" || event["name"] == "[memory]";
    let mut index = 0;
    let mut rare_count = 0;
    events.retain(|event| {
        index += 1;
        rare_count += usize::from(is_rare(event));
        index % step == 0 || is_rare(event) && rare_count < 12
    });
    let alone = trace["traceEvents"].to_string();
    vec![trace.to_string().into_bytes(), alone.into_bytes()]
}

/// Returns traces of Perfetto: with events as messages, and in compact lists.
pub fn perfetto() -> Vec<Vec<u8>> {
    vec![file("testdata/sched/duty.pftrace"), unpacked("testdata/sched/duty.compact.pftrace.gz")]
}

/// Returns texts of perf: `perf script` with and without processes, and `perf sched timehist`.
pub fn perf() -> Vec<Vec<u8>> {
    ["perf", "perf-pid", "timehist"]
        .map(|name| lines(&format!("testdata/sched/duty.{name}.txt.gz"), 40))
        .into()
}

/// Returns a text of ftrace, with its comments.
pub fn ftrace() -> Vec<Vec<u8>> {
    vec![lines("testdata/sched/duty.ftrace.txt.gz", 60)]
}

/// Returns snapshots of PyTorch's allocator, as every protocol writes them.
pub fn snapshots() -> Vec<Vec<u8>> {
    ["old", "small.p0", "small.p2", "small.p5"]
        .map(|name| file(&format!("testdata/snapshots/{name}.pickle")))
        .into()
}

/// Returns rows of `events` as CSV and as JSON lines.
pub fn rows() -> Vec<Vec<u8>> {
    let csv = "ts,dur,kind,op,pid,tid,addr,size_bytes,detail\n1,2,call,cudaMalloc,3,4,5,6,\"a\nb\"\n6,,mark,range,3,4,,,\"c\"\"d\"\n\
               7,1,off_cpu,sleeping,3,4,,,\n";
    let json = "{\"ts\":1,\"dur\":2,\"kind\":\"call\",\"op\":\"cudaFree\",\"pid\":3,\"tid\":4,\"detail\":\"a\\n\\u00e9\"}\n\
                {\"ts\":6,\"kind\":\"mark\",\"op\":\"point\",\"pid\":3,\"tid\":4}\n";
    vec![csv.into(), json.into()]
}

/// Returns tables of any tool, for the map of the target.
pub fn csv() -> Vec<Vec<u8>> {
    let table = "time_us,took_us,func,tid,ptr,size\n10.5,2.25,malloc,7,0x7f00,100\n11,1,free,7,0x7f00,\n1.2e1,,free,8,12,5\n";
    vec![table.into(), table.replace("free", "\"a,\"\"b\n\"\"\"").into()]
}

/// Returns files of several formats with gzip around them.
pub fn compressed() -> Vec<Vec<u8>> {
    let small = [rows(), ftrace(), perf(), snapshots()].concat();
    let more = file("testdata/sched/duty.compact.pftrace.gz");
    small.iter().map(|content| gzip::packed(content)).chain([more]).collect()
}
