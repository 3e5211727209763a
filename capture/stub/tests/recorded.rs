//! The verdicts on recorded scenarios of the courtroom, held against the truth: those of this program now, whatever
//! they were when the traces were recorded.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use cuda_stub::scenario::SCENARIOS;

fn hold(directory: &str, but: &[&str]) {
    let directory: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/courtroom").join(directory);
    let courtroom = Path::new(env!("CARGO_BIN_EXE_courtroom"));
    let analyze = courtroom.with_file_name("analyze");
    assert!(analyze.exists(), "{} is not built: run the tests of the whole workspace", analyze.display());
    let mut command = Command::new(courtroom);
    command.arg("--recorded").arg(&directory);
    let names = SCENARIOS.iter().map(|scenario| scenario.name).filter(|name| !but.contains(name));
    names.for_each(|name| _ = command.args(["--scenario", name]));
    let output = command.output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let held = table.lines().filter(|line| line.ends_with("yes")).count();
    assert_eq!(held, SCENARIOS.len() - but.len(), "{table}");
}

#[test]
fn every_verdict_holds_on_a_small_machine() {
    hold("vm", &[]);
}

/// That machine gives nobody real-time priority, which the hog between calls needs.
#[test]
fn every_verdict_holds_on_the_h200_machine() {
    hold("h200", &["decoy_outside"]);
}
