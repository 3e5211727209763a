//! The stub CUDA libraries of the demo, which `build.rs` builds out of `stub/` and which are a part of this program.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
};

/// The library with the driver's functions.
pub(super) const DRIVER: &str = "libcuda.so";
/// The library with the runtime's functions.
pub(super) const RUNTIME: &str = "libcudart.so";

/// The content of each library.
const CONTENT: [(&str, &[u8]); 2] = [
    (DRIVER, include_bytes!(concat!(env!("OUT_DIR"), "/libcuda.so"))),
    (RUNTIME, include_bytes!(concat!(env!("OUT_DIR"), "/libcudart.so"))),
];

/// Writes the libraries into a temporary folder of their own, which nobody else may enter: a privileged process loads them.
///
/// # Errors
/// If they cannot be written.
pub(super) fn write() -> io::Result<tempfile::TempDir> {
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("inquest-demo-").permissions(Permissions::from_mode(0o700)).tempdir()?;
    for (name, content) in CONTENT {
        fs::write(folder.path().join(name), content)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        elf::{self, Scope},
        probes,
    };

    #[test]
    fn the_libraries_have_functions_that_are_probed() {
        let folder = write().expect("a folder");
        let mode = fs::metadata(folder.path()).expect("a folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let probed: BTreeSet<&str> = probes::numbered().map(|(_, probe)| probe.symbol).collect();
        for (name, expected) in [(DRIVER, "cuLaunchKernel"), (RUNTIME, "cudaLaunchKernel")] {
            let elf = elf::read(&folder.path().join(name), Scope::All, |name| probed.contains(name));
            let functions = elf.expect("an ELF file").functions;
            assert_eq!(functions.len(), 5, "{functions:?}");
            assert!(functions.iter().any(|function| function.name == expected), "{functions:?}");
        }
    }
}
