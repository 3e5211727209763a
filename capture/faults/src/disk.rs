//! What of a folder has reached the disk, and what a power cut leaves of it.
//!
//! ```text
//! write ─► write ─► sync ─► write ─► power cut
//! ├── on the disk ────────┤├─ gone ─┤
//! ```
//! The model is the strictest that POSIX allows for files that only grow: a file has what it had when it was last synced, and
//! a name is there if its folder was synced after it was made. A name that was replaced or removed stays so.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    call::{Call, Kind},
    fault::PowerCut,
};

/// The files in a folder and in those within it, links not followed.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => files.extend(self::files(&entry.path())?),
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files.sort();
    Ok(files)
}

/// What is on the disk.
pub(crate) struct Disk {
    folder: PathBuf,
    /// Length in bytes that is on the disk, by device and inode of the file.
    synced: HashMap<(u64, u64), u64>,
    /// Names that are not on the disk.
    fresh: HashSet<PathBuf>,
}

impl Disk {
    /// Takes all that is in the folder for on the disk.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let mut synced = HashMap::new();
        for file in files(folder)? {
            let metadata = file.symlink_metadata()?;
            synced.insert((metadata.dev(), metadata.ino()), metadata.len());
        }
        Ok(Self { folder: folder.to_owned(), synced, fresh: HashSet::new() })
    }

    /// Notes a call of a thread that is about to be done.
    pub(crate) fn note(&mut self, call: &Call, tid: u32) {
        match (call.kind, call.descriptor) {
            (Kind::Sync, Some(descriptor)) => {
                let Ok(metadata) = fs::metadata(format!("/proc/{tid}/fd/{descriptor}")) else { return };
                if metadata.is_dir() {
                    self.fresh.retain(|name| name.parent() != Some(call.path.as_path()));
                } else {
                    self.synced.insert((metadata.dev(), metadata.ino()), metadata.len());
                }
            }
            (Kind::Create | Kind::CreateFolder | Kind::Link | Kind::Rename, _)
                if call.path.symlink_metadata().is_err() =>
            {
                self.fresh.insert(call.path.clone());
            }
            _ => {}
        }
    }

    /// Takes from the folder what is not on the disk.
    pub(crate) fn cut_power(&self, cut: PowerCut) -> io::Result<()> {
        for path in files(&self.folder)? {
            let metadata = path.symlink_metadata()?;
            let synced = self.synced.get(&(metadata.dev(), metadata.ino())).copied().unwrap_or(0);
            if metadata.len() > synced {
                let file = File::options().write(true).open(&path)?;
                file.set_len(synced)?;
                if cut.keeps_length {
                    file.set_len(metadata.len())?;
                }
            }
        }
        for path in self.fresh.iter().filter(|_| cut.takes_names) {
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path)?,
                Ok(_) => fs::remove_file(path)?,
                // It was renamed or removed since.
                Err(_) => {}
            }
        }
        Ok(())
    }
}
