//! `analyze demo`: every scenario is listed and opens, is found to be what it is said to be, and its queries answer so.

use std::{fs, path::Path, process::Command, thread};

use analyze::demo::{SCENARIOS, Scenario};
use serde_json::Value;

use super::support::{json, outcome, path, refused, stdout};

/// What the answer to each scenario's query has, as CSV: the figures that the program names, or those behind them.
const ANSWERS: [(&str, &str); 8] = [
    ("hog", "cudaLaunchKernel,8092,213882234,159880984\n"),
    ("starved-loader", "\ngil,pt_data_worker,"),
    ("lock-convoy", "lock-holder-"),
    ("leak", "\ntrue,"),
    ("fragmentation-oom", "\n9437184,260259328,8532480,10676736,1764352\n"),
    ("pause-resume", "resume,297420,0,213909504,96468992,2\n"),
    ("healthy", "\nhost,"),
    ("empty-cache", "\n114,114,0,310278\n"),
];

/// Opens a scenario, and asks its query in a shell, as a reader does; returns what is wrong.
fn mismatches(scenario: &Scenario, folder: &Path) -> Vec<String> {
    let opened = json(&["demo", scenario.name, "--out", path(folder), "--json"]);
    let mut wrong = Vec::new();
    let first = opened["findings"]["findings"][0]["kind"].as_str();
    if first != scenario.first_finding {
        wrong.push(format!("{}: found {first:?} first", scenario.name));
    }
    let written = fs::read(folder.join(format!("{}.parquet", scenario.name))).unwrap();
    assert!(written == scenario.recording, "{}", scenario.name);
    let commands = opened["next"].as_array().unwrap().iter().map(|command| command.as_str().unwrap());
    let queries: Vec<&str> = commands.filter(|command| command.starts_with("analyze sql ")).collect();
    assert_eq!(queries.len(), 1, "{}", scenario.name);
    let query = queries[0].replacen("analyze", env!("CARGO_BIN_EXE_analyze"), 1);
    let answer = Command::new("sh").args(["-c", &query]).output().unwrap();
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let (_, expected) = ANSWERS.iter().find(|(name, _)| *name == scenario.name).unwrap();
    if !answer.contains(expected) {
        wrong.push(format!("{}: {expected:?} is not in the answer: {answer}", scenario.name));
    }
    wrong
}

#[test]
fn every_scenario_is_what_it_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    // Its path has to be quoted.
    let folder = folder.path().join("a demo's folder");
    let folder = folder.as_path();
    let wrong: Vec<String> = thread::scope(|scope| {
        let halves: Vec<_> = (0..2)
            .map(|half| {
                let own = SCENARIOS.iter().skip(half).step_by(2);
                scope.spawn(move || own.flat_map(|one| mismatches(one, folder)).collect::<Vec<_>>())
            })
            .collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn scenarios_are_listed() {
    let (listed, text) = (json(&["demo", "--json"]), stdout(&["demo"]));
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>());
    let said = refused(&["demo", "hogs"]);
    for scenario in SCENARIOS {
        assert!(text.contains(scenario.name) && text.contains(scenario.story), "{text}");
        assert!(said.contains(scenario.name), "{said}");
    }
}

#[test]
fn a_scenario_is_written_once_and_nothing_foreign_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join("inquest-demo").join(name);
    let demo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_analyze"));
        let output = command.current_dir(folder.path()).args(["demo", "starved-loader"]).args(args).output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = demo(&["--html"]);
    assert_eq!(code, Some(0), "{err}");
    for expected in
        ["pt_data_worker", "What to look for", "analyze report inquest-demo/starved-loader.parquet"]
    {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert!(fs::read_to_string(inside("starved-loader.html")).unwrap().contains("pt_data_worker"));
    let (code, _, err) = demo(&["--html"]);
    assert!(code == Some(2) && err.contains("--force"), "the page exists: {err}");
    let (code, _, err) = demo(&[]);
    assert_eq!(code, Some(0), "the recording is there already: {err}");
    let run = inside("starved-loader.parquet");
    fs::write(&run, "precious").unwrap();
    let (code, _, err) = demo(&[]);
    assert!(code == Some(2) && err.contains("--force"), "{err}");
    assert_eq!(fs::read_to_string(&run).unwrap(), "precious");
    let (code, _, err) = demo(&["--force", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let findings: Value = json(&["findings", path(&run), "--json"]);
    assert_eq!(findings["findings"][0]["kind"], "starved-loader");
    let (code, _, err) = outcome(&["demo", "leak", "--out", path(&run)]);
    assert!(code == 2 || code == 5, "a file is no folder: {err}");
}
