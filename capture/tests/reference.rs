//! capture/PROBES.md is what the program says of itself; `BLESS=1` writes it.

use std::{fs, path::Path, process::Command};

#[test]
fn the_list_of_probes_is_current() {
    let output = Command::new(env!("CARGO_BIN_EXE_capture")).arg("probes").output().unwrap();
    assert!(output.status.success());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("PROBES.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &output.stdout).unwrap();
    }
    let found = fs::read(&path).unwrap_or_default();
    assert!(found == output.stdout, "{} is stale: BLESS=1 cargo nextest run -p capture", path.display());
}
