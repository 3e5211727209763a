//! Compares the ledger of runs recorded on an H200 with what the driver told the program at every mark: its total
//! minus its free bytes. The driver is queried a few milliseconds after the mark, and the program makes no driver call in
//! between.

use std::path::Path;

use analyze::trace::Trace;
use analyze_memory::device::input::Replay;
use serde_json::Value;

use super::support::runs_in;

/// Returns the number of marks of a run, and the differences between the account and what the driver said.
async fn differences(path: &Path, marks: &[Value]) -> (usize, Vec<String>) {
    let trace = Trace::open(&[path.to_owned()]).await.expect("a run");
    let times: Vec<i64> = marks.iter().map(|mark| mark["end_ns"].as_i64().expect("a time")).collect();
    let found = Replay::new(trace.files()).at(&*trace.events(), &times).await.expect("accounts");
    let mut different = Vec::new();
    for (mark, devices) in marks.iter().zip(&found) {
        let said = mark["total_bytes"].as_i64().expect("bytes") - mark["free_bytes"].as_i64().expect("bytes");
        let told = devices
            .get(&0)
            .map(|instant| instant.account.used_bytes() + instant.changes.values().sum::<i64>());
        if told != Some(said) {
            let name = &mark["name"];
            different.push(format!("{}: {name}: {told:?}, but {said} were used", path.display()));
        }
    }
    (marks.len(), different)
}

#[tokio::test]
async fn devices_are_used_as_the_driver_said() {
    let (mut compared, mut different) = (0, Vec::new());
    for run in runs_in(&["memory"]) {
        let path = Path::new(&run);
        let state = std::fs::read_to_string(path.with_extension("state.json")).expect("a state");
        let state: Value = serde_json::from_str(&state).expect("JSON");
        let (count, differing) = differences(path, state["marks"].as_array().expect("marks")).await;
        compared += count;
        different.extend(differing);
    }
    assert!(compared > 300, "{compared} marks");
    assert!(different.is_empty(), "{} of {compared} marks:\n{}", different.len(), different.join("\n"));
}
