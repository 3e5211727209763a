//! Creates files that appear whole or not at all, and that never change what another name leads to.
//!
//! ```text
//! open the folder ─► is the name free? ─► write a file without a name ─► give it the name
//!                                         (O_TMPFILE)                    (linkat; with --force also renameat)
//! ```
//!
//! A file without a name is gone when its process ends, however it ends. Where the file system has none, the file has
//! a random name until it is finished; it is removed if writing fails, and after a kill by the next process that writes
//! into the folder ([`temporary`]). The content is on the disk before the name is, and the name before [`NewFile::finish`]
//! returns.
//!
//! The folder is opened once, and every later step is relative to it. A name that exists is replaced by renaming and
//! is never opened for writing, so a link there changes nothing elsewhere.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat},
    io::{Errno, retry_on_intr},
};

use crate::{WriteError, owner::give, temporary};

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The owner alone: runs, and other files with a run's rows.
    Owner,
    /// Whoever the umask admits: files that are made to be passed on, such as reports.
    Umask,
}

impl Access {
    fn mode(self) -> Mode {
        Mode::from_raw_mode(match self {
            Self::Owner => 0o600,
            Self::Umask => 0o666,
        })
    }
}

/// Whether a path names a stream that is open already, such as `/dev/stdout` or the shell's `>(command)`.
fn is_stream(path: &Path) -> bool {
    let streams = ["/dev/stdout", "/dev/stderr"];
    streams.iter().any(|stream| path == Path::new(stream))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// The kind of a file, for messages.
fn kind(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown kind",
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// A name in a folder that is held open.
pub(crate) struct Place {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
}

impl Place {
    /// Opens the folder of a path.
    ///
    /// # Errors
    /// If the path names a folder or a stream, or if its folder cannot be entered.
    pub(crate) fn open(path: &Path) -> Result<Self, WriteError> {
        let refused = |what: &str| WriteError::NotAFile { path: path.to_owned(), what: what.to_owned() };
        if is_stream(path) {
            return Err(refused("a stream"));
        }
        let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
        let name = name.ok_or_else(|| refused("the name of a folder"))?.to_owned();
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| fs::openat(CWD, folder, flags, Mode::empty()))
            .map_err(|error| WriteError::Folder { path: folder.to_owned(), source: error.into() })?;
        Ok(Self { path: path.to_owned(), folder: opened, name })
    }

    pub(crate) fn io(&self, error: Errno) -> WriteError {
        WriteError::Io { path: self.path.clone(), source: error.into() }
    }

    pub(crate) fn is_not_a_file(&self, what: impl Into<String>) -> WriteError {
        WriteError::NotAFile { path: self.path.clone(), what: what.into() }
    }

    /// What has this name; links are not followed. `None`: nothing has it.
    pub(crate) fn stat(&self) -> Result<Option<Stat>, WriteError> {
        match fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io(error)),
        }
    }

    /// Checks that a file may have this name: nothing has it or, with `force`, a regular file has it, or a symbolic link
    /// that leads to a regular file or to nothing.
    pub(crate) fn free(&self, force: bool) -> Result<(), WriteError> {
        let Some(stat) = self.stat()? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            match fs::statat(&self.folder, &self.name, AtFlags::empty()) {
                Ok(stat) if is_regular(&stat) => {}
                Ok(stat) => {
                    return Err(self.is_not_a_file(format!("a symbolic link to {}", kind(&stat))));
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.io(error)),
            }
        } else if !is_regular(&stat) {
            return Err(self.is_not_a_file(kind(&stat)));
        }
        if force { Ok(()) } else { Err(WriteError::Exists(self.path.clone())) }
    }

    /// Checks that files can be created in the folder.
    fn is_writable(&self) -> Result<(), WriteError> {
        let access = fs::Access::WRITE_OK | fs::Access::EXEC_OK;
        fs::accessat(&self.folder, ".", access, AtFlags::EACCESS).map_err(|error| {
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            WriteError::Folder { path: folder.unwrap_or(Path::new(".")).to_owned(), source: error.into() }
        })
    }

    /// Opens the file for reading, which must not be a link.
    pub(crate) fn read(&self) -> Result<File, WriteError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        retry_on_intr(|| fs::openat(&self.folder, &self.name, flags, Mode::empty()))
            .map(File::from)
            .map_err(|error| self.io(error))
    }

    /// Removes the name, if it is that of `file`.
    pub(crate) fn remove(&self, file: &File) -> Result<(), WriteError> {
        let own = fs::fstat(file).map_err(|error| self.io(error))?;
        match self.stat()? {
            Some(stat) if (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino) => {
                fs::unlinkat(&self.folder, &self.name, AtFlags::empty()).map_err(|error| self.io(error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the names in the folder survive a power cut, where the file system can.
    fn sync(&self) -> Result<(), WriteError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = retry_on_intr(|| fs::openat(&self.folder, ".", flags, Mode::empty()))
            .and_then(|folder| retry_on_intr(|| fs::fsync(&folder)));
        match synced {
            // A folder that this user may not list, and file systems that cannot sync one.
            Ok(()) | Err(Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF) => {
                Ok(())
            }
            Err(error) => Err(self.io(error)),
        }
    }

    /// Creates a file without a name; `None` if the file system has none, or if it could not get a name later.
    fn unnamed(&self, access: Access) -> Result<Option<File>, WriteError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match retry_on_intr(|| fs::openat(&self.folder, ".", flags, access.mode())) {
            Ok(file) => Ok(Path::new("/proc/self/fd").exists().then(|| File::from(file))),
            // Kernels and file systems without such files say so in these ways.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => Ok(None),
            Err(error) => Err(self.io(error)),
        }
    }

    /// Creates a file with a random name.
    fn named(&self, access: Access) -> Result<(File, OsString), WriteError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        loop {
            let name = temporary::name();
            match retry_on_intr(|| fs::openat(&self.folder, &name, flags, access.mode())).map(File::from) {
                Ok(file) if temporary::hold(&self.folder, &name, &file) => return Ok((file, name)),
                // Whoever took it for a file that was left removes it, or has.
                Ok(_) | Err(Errno::EXIST) => {}
                Err(error) => return Err(self.io(error)),
            }
        }
    }

    /// Gives a file without a name this one.
    fn link(&self, file: &File, name: &OsStr) -> Result<(), Errno> {
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::linkat(CWD, unnamed, &self.folder, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Gives a file without a name a random one.
    fn link_randomly(&self, file: &File) -> Result<OsString, WriteError> {
        temporary::lock(file);
        loop {
            let name = temporary::name();
            match self.link(file, &name) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.io(error)),
            }
        }
    }

    /// Renames a file to this name, which nothing may have.
    fn rename_new(&self, temporary: &OsStr) -> Result<(), WriteError> {
        let (folder, flags) = (&self.folder, RenameFlags::NOREPLACE);
        match fs::renameat_with(folder, temporary, folder, &self.name, flags) {
            // The file system cannot rename like this: NFS, for one. What comes to have the name in between is replaced.
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.free(false)?;
                fs::renameat(folder, temporary, folder, &self.name).map_err(|error| self.io(error))
            }
            Err(Errno::EXIST) => Err(WriteError::Exists(self.path.clone())),
            renamed => renamed.map_err(|error| self.io(error)),
        }
    }
}

/// Checks that a file with a run can be written: its folder is there and can be written to, and nothing has its name or,
/// with `force`, a regular file or a link to one has it. Call it before work that would be in vain.
///
/// # Errors
/// If the file cannot be written.
pub fn check_run(out: &Path, force: bool) -> Result<(), WriteError> {
    let place = Place::open(out)?;
    place.free(force)?;
    place.is_writable()
}

/// A file that is being written, and gets its name when it is finished. It is gone if it is dropped before.
///
/// As root with the variables of `sudo`, its owner is the user who called `sudo`.
pub struct NewFile {
    path: PathBuf,
    file: File,
    /// `None`: the output is a stream.
    place: Option<Place>,
    force: bool,
    /// The name of the unfinished file, if it needs one.
    temporary: Option<OsString>,
}

impl NewFile {
    /// Checks that a file can be written, as [`check_run`] does; streams such as `/dev/stdout` can be.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn check(path: &Path, force: bool) -> Result<(), WriteError> {
        if is_stream(path) { Ok(()) } else { check_run(path, force) }
    }

    /// Creates a file that will be at `path`; streams such as `/dev/stdout` are written to as they are.
    ///
    /// # Errors
    /// If something is at `path` that may not be replaced: see [`check_run`]. If the file cannot be created.
    pub fn create(path: &Path, force: bool, access: Access) -> Result<Self, WriteError> {
        if is_stream(path) {
            let file = File::options().append(true).open(path);
            let file = file.map_err(|source| WriteError::Io { path: path.to_owned(), source })?;
            return Ok(Self { path: path.to_owned(), file, place: None, force, temporary: None });
        }
        let place = Place::open(path)?;
        place.free(force)?;
        Self::at(place, force, access)
    }

    /// Creates a file that will be at a place.
    pub(crate) fn at(place: Place, force: bool, access: Access) -> Result<Self, WriteError> {
        temporary::remove_left(&place.folder);
        match place.unnamed(access)? {
            Some(file) => Ok(Self::new(place, force, file, None)),
            None => Self::with_name(place, force, access),
        }
    }

    fn with_name(place: Place, force: bool, access: Access) -> Result<Self, WriteError> {
        let (file, name) = place.named(access)?;
        Ok(Self::new(place, force, file, Some(name)))
    }

    fn new(place: Place, force: bool, file: File, temporary: Option<OsString>) -> Self {
        Self { path: place.path.clone(), file, place: Some(place), force, temporary }
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Io { path: self.path.clone(), source }
    }

    /// Returns the file to write to, which is also open for reading unless it is a stream.
    ///
    /// # Errors
    /// If this process has too many open files.
    pub fn writer(&self) -> Result<File, WriteError> {
        self.file.try_clone().map_err(|source| self.failed(source))
    }

    /// Gives the file its name, and returns its size in bytes. Whoever wrote to it must have flushed before. From then on the
    /// file survives a power cut.
    ///
    /// # Errors
    /// If something has the name by now that may not be replaced, if the operating system refuses the name, or if it cannot
    /// write to the disk; then the file may have its name.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        let metadata = self.file.metadata().map_err(|source| self.failed(source))?;
        let Some(place) = &self.place else { return Ok(metadata.len()) };
        // First, so that no power cut leaves the name without the content.
        self.file.sync_all().map_err(|source| self.failed(source))?;
        if self.temporary.is_none() {
            match place.link(&self.file, &place.name) {
                Ok(()) => {}
                Err(Errno::EXIST) if self.force => self.temporary = Some(place.link_randomly(&self.file)?),
                Err(Errno::EXIST) => return Err(WriteError::Exists(self.path.clone())),
                Err(error) => return Err(place.io(error)),
            }
        }
        if let Some(temporary) = &self.temporary {
            if self.force {
                place.free(true)?;
                fs::renameat(&place.folder, temporary, &place.folder, &place.name)
                    .map_err(|error| place.io(error))?;
            } else {
                place.rename_new(temporary)?;
            }
        }
        self.temporary = None;
        give(&self.file);
        place.sync()?;
        Ok(metadata.len())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let (Some(place), Some(name)) = (&self.place, &self.temporary) {
            // What led here is reported; that the file cannot be removed, too, adds nothing.
            let _ = fs::unlinkat(&place.folder, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs as std_fs,
        io::Write,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    use super::*;

    /// Creates files in both ways: without a name, and with a random one as on file systems that need it.
    type Way = fn(Place, bool) -> Result<NewFile, WriteError>;

    const WAYS: [Way; 2] = [
        |place, force| NewFile::at(place, force, Access::Owner),
        |place, force| NewFile::with_name(place, force, Access::Owner),
    ];

    fn names(folder: &Path) -> Vec<String> {
        let entries = std_fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn fill(new: &NewFile, text: &str) {
        new.writer().unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        for create in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            let new = create(Place::open(&path).unwrap(), false).unwrap();
            fill(&new, "half");
            assert!(!path.exists());
            drop(new);
            assert!(names(folder.path()).is_empty());
            let new = create(Place::open(&path).unwrap(), false).unwrap();
            fill(&new, "whole");
            assert_eq!(new.finish().unwrap(), 5);
            assert_eq!(std_fs::read_to_string(&path).unwrap(), "whole");
            assert_eq!(names(folder.path()), ["out"]);
            assert_eq!(std_fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_a_killed_process_left_goes_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| Place::open(&folder.path().join(name)).unwrap();
        let create = |name: &str| NewFile::with_name(place(name), false, Access::Owner).unwrap();
        // Whoever has its lock is gone, and nobody removes it.
        drop(place("left").named(Access::Owner).unwrap());
        let living = create("living");
        assert_eq!(names(folder.path()).len(), 2);
        let out = folder.path().join("out");
        NewFile::create(&out, false, Access::Owner).unwrap().finish().unwrap();
        assert_eq!(names(folder.path()).len(), 2, "the file that is being written, and the new one");
        living.finish().unwrap();
        assert_eq!(names(folder.path()), ["living", "out"]);
    }

    #[test]
    fn what_appears_meanwhile_stays_unless_forced() {
        for create in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            for force in [false, true] {
                let new = create(Place::open(&path).unwrap(), force).unwrap();
                fill(&new, "new");
                std_fs::write(&path, "other").unwrap();
                match (new.finish(), force) {
                    (Err(WriteError::Exists(_)), false) | (Ok(3), true) => {}
                    (found, _) => panic!("force {force}: {found:?}"),
                }
                let expected = if force { "new" } else { "other" };
                assert_eq!(std_fs::read_to_string(&path).unwrap(), expected);
                assert_eq!(names(folder.path()), ["out"]);
            }
        }
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        for create in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let precious = folder.path().join("precious");
            std_fs::write(&precious, "precious").unwrap();
            let symbolic = folder.path().join("symbolic");
            symlink(&precious, &symbolic).unwrap();
            let hard = folder.path().join("hard");
            std_fs::hard_link(&precious, &hard).unwrap();
            let dangling = folder.path().join("dangling");
            symlink(folder.path().join("nothing"), &dangling).unwrap();
            for link in [symbolic, hard, dangling] {
                let refused = NewFile::create(&link, false, Access::Owner);
                assert!(matches!(refused, Err(WriteError::Exists(_))), "{}", link.display());
                assert!(Place::open(&link).unwrap().free(true).is_ok());
                let new = create(Place::open(&link).unwrap(), true).unwrap();
                fill(&new, "new");
                new.finish().unwrap();
                let metadata = std_fs::symlink_metadata(&link).unwrap();
                assert!(metadata.is_file() && metadata.nlink() == 1, "{}", link.display());
                assert_eq!(std_fs::read_to_string(&link).unwrap(), "new");
            }
            assert_eq!(std_fs::read_to_string(&precious).unwrap(), "precious");
            assert_eq!(names(folder.path()), ["dangling", "hard", "precious", "symbolic"]);
        }
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name);
        std_fs::create_dir(inside("folder")).unwrap();
        symlink(inside("folder"), inside("link")).unwrap();
        symlink("/dev/full", inside("device")).unwrap();
        fs::mknodat(CWD, inside("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for (path, what) in [
            (inside("folder"), "is a folder"),
            (inside("new/"), "is the name of a folder"),
            (inside("link"), "is a symbolic link to a folder"),
            (inside("device"), "is a symbolic link to a character device"),
            (inside("pipe"), "is a named pipe"),
            ("/dev/full".into(), "is a character device"),
            ("/".into(), "is the name of a folder"),
        ] {
            for refused in [check_run(&path, true), NewFile::create(&path, true, Access::Owner).map(drop)] {
                let error = refused.expect_err("a refusal").to_string();
                assert!(error.contains(what), "{}: {error}", path.display());
            }
        }
        assert!(check_run(Path::new("/dev/stdout"), true).is_err());
        assert!(NewFile::check(Path::new("/dev/stdout"), false).is_ok());
        assert_eq!(names(folder.path()), ["device", "folder", "link", "pipe"]);
    }

    #[test]
    fn a_folder_that_is_missing_or_read_only_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = check_run(&missing.join("out"), false).expect_err("a refusal");
        let said = error.to_string();
        assert!(matches!(error, WriteError::Folder { .. }) && said.contains("missing"), "{said}");
        std_fs::write(&missing, "a file").unwrap();
        assert!(matches!(check_run(&missing.join("out"), false), Err(WriteError::Folder { .. })));
        // Nothing can be created there, not even by root.
        assert!(NewFile::create(Path::new("/proc/out"), false, Access::Owner).is_err());
    }
}
