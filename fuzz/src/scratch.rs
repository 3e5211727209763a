//! Files for readers that take a path, in memory where there is such a folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

thread_local! {
    /// The folder of this thread; it is removed with the thread.
    static FOLDER: TempDir = folder();
}

fn folder() -> TempDir {
    let is_chosen = env::var_os("TMPDIR").is_some();
    let in_memory = if is_chosen { None } else { tempfile::tempdir_in(Path::new("/dev/shm")).ok() };
    in_memory.unwrap_or_else(|| tempfile::tempdir().expect("a folder for temporary files"))
}

/// Returns the path of a file with this name. Nothing is there unless this thread has written it.
pub(crate) fn path(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}

/// Writes a file, and returns its path.
pub(crate) fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    fs::write(&path, bytes).expect("a temporary file");
    path
}

/// Returns the path of a file with this name that does not exist.
pub(crate) fn absent(name: &str) -> PathBuf {
    let path = path(name);
    let _ = fs::remove_file(&path);
    path
}
