//! Builds the libraries of `capture demo`: shared objects of a few kilobytes without a GPU, which the program embeds. So a source
//! build and an installed program have them alike.

use std::{env, io, path::Path, process::Command};

/// The files of `src/demo/stub`, which are the names of the libraries.
const LIBRARIES: [&str; 2] = ["libcuda", "libcudart"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/demo/stub");
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("src/demo/stub");
    let (out, rustc, target) = (env::var("OUT_DIR")?, env::var("RUSTC")?, env::var("TARGET")?);
    for name in LIBRARIES {
        let mut command = Command::new(&rustc);
        command
            .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", name, "--target", &target])
            // Without the standard library there is nothing that could unwind, and nothing to link to.
            .args(["-C", "panic=abort", "-C", "opt-level=2", "-C", "strip=debuginfo"])
            .arg("-o")
            .arg(Path::new(&out).join(format!("{name}.so")))
            .arg(sources.join(format!("{name}.rs")));
        if let Ok(linker) = env::var("RUSTC_LINKER") {
            command.arg("-C").arg(format!("linker={linker}"));
        }
        let status = command.status()?;
        if !status.success() {
            return Err(io::Error::other(format!("building {name}.so: {status}")).into());
        }
    }
    Ok(())
}
