//! What an earlier recorder left at the place of a recording, and whether a new recording may take that place.

use std::{
    fs::{File, TryLockError},
    io::BufReader,
    path::Path,
};

use rustix::fs::FileType;

use crate::{
    WriteError,
    frame::{lacks_head, next_frame},
    new_file::Place,
    owner::is_own,
};

/// Whether nothing was recorded: there is no row in the file.
fn has_no_rows(file: &File) -> bool {
    if matches!(lacks_head(file), Ok(true)) {
        return true;
    }
    let Ok(file) = file.try_clone() else { return false };
    let mut file = BufReader::new(file);
    matches!(next_frame(&mut file), Ok(Some(_))) && matches!(next_frame(&mut file), Ok(None))
}

/// Checks that a recording may be created at `place`. Returns the file that it replaces, if there is one: a recording
/// without rows or, with `force`, any that nobody writes to. As long as that is held, no other recorder may replace it.
///
/// # Errors
/// If there is something else than a regular file of this user with one name, if another process records into it, or
/// if it has rows and `force` is false.
pub(crate) fn check(place: &Place, path: &Path, force: bool) -> Result<Option<File>, WriteError> {
    let Some(stat) = place.stat()? else { return Ok(None) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        place.free(true)?;
        return Err(place.is_not_a_file("a symbolic link"));
    }
    if stat.st_nlink != 1 {
        return Err(place.is_not_a_file("one of several names of a file"));
    }
    if !is_own(stat.st_uid) {
        return Err(place.is_not_a_file(format!("a file of user {}", stat.st_uid)));
    }
    let file = place.read()?;
    // A file system without locks knows no recorder that holds one. Shared first: NFS locks for one process only what that
    // process can write to.
    let is_taken = |locked| matches!(locked, Err(TryLockError::WouldBlock));
    if is_taken(file.try_lock_shared()) || is_taken(file.try_lock()) {
        return Err(WriteError::BeingRecorded(path.to_owned()));
    }
    if force || has_no_rows(&file) { Ok(Some(file)) } else { Err(WriteError::Unfinished(path.to_owned())) }
}
