//! Files of this repository.

use std::{fs, path::Path};

use crate::mutate::gzip;

/// Returns the content of a file, by its path from the root of the repository.
pub(super) fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read(&path).unwrap_or_else(|error| unreadable(&path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Vec<u8> {
    eprintln!("{}: {error}: seeds are made where the repository is", path.display());
    std::process::exit(2)
}

/// Returns the content of a compressed file.
pub(super) fn unpacked(name: &str) -> Vec<u8> {
    gzip::unpacked(&file(name))
}

/// Returns the first lines of a compressed text.
pub(super) fn lines(name: &str, count: usize) -> Vec<u8> {
    unpacked(name).split_inclusive(|byte| *byte == b'\n').take(count).flatten().copied().collect()
}
