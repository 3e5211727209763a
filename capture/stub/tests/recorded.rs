//! The verdicts on recorded scenarios of the courtroom, held against the truth: those of this program now, whatever
//! they were when the traces were recorded.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn hold(directory: &str) {
    let directory: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/courtroom").join(directory);
    let courtroom = Path::new(env!("CARGO_BIN_EXE_courtroom"));
    let analyze = courtroom.with_file_name("analyze");
    assert!(analyze.exists(), "{} is not built: run the tests of the whole workspace", analyze.display());
    let output = Command::new(courtroom).arg("--recorded").arg(&directory).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(table.lines().filter(|line| line.ends_with("yes")).count(), 16, "{table}");
}

#[test]
fn every_verdict_holds_on_a_small_machine() {
    hold("vm");
}

#[test]
fn every_verdict_holds_on_the_h200_machine() {
    hold("h200");
}
