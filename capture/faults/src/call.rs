//! What a system call does, and to which file.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::{ffi::OsStringExt, fs::FileExt},
    path::{Path, PathBuf},
};

use crate::listener::Waiting;

/// What a system call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Opens what exists.
    Open,
    /// Opens a file, and creates it if it is missing.
    Create,
    /// Creates a file without a name (`O_TMPFILE`).
    CreateUnnamed,
    /// Creates a folder.
    CreateFolder,
    /// Reads.
    Read,
    /// Writes, or changes the length of a file.
    Write,
    /// Makes what was written, or the names in a folder, survive a power cut.
    Sync,
    /// Gives a file another name.
    Link,
    /// Renames.
    Rename,
    /// Removes a name.
    Remove,
    /// Locks a file (`flock`).
    Lock,
}

impl Kind {
    /// Whether the call changes what a folder or a file in it is.
    pub(crate) fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Lock)
    }
}

/// Where a system call names its file: in the arguments with these numbers.
#[derive(Clone, Copy)]
enum Place {
    /// A descriptor.
    Descriptor(usize),
    /// The descriptor of a folder, and a path relative to that.
    At(usize, usize),
    /// A path.
    #[cfg(target_arch = "x86_64")]
    Path(usize),
}

/// The calls that are looked at. A call that names two files is that of the one which it makes.
const CALLS: &[(libc::c_long, Kind, Place)] = &[
    (libc::SYS_openat, Kind::Open, Place::At(0, 1)),
    (libc::SYS_read, Kind::Read, Place::Descriptor(0)),
    (libc::SYS_pread64, Kind::Read, Place::Descriptor(0)),
    (libc::SYS_readv, Kind::Read, Place::Descriptor(0)),
    (libc::SYS_preadv, Kind::Read, Place::Descriptor(0)),
    (libc::SYS_write, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_pwrite64, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_writev, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_pwritev, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_pwritev2, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_sendfile, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_copy_file_range, Kind::Write, Place::Descriptor(2)),
    (libc::SYS_ftruncate, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_fallocate, Kind::Write, Place::Descriptor(0)),
    (libc::SYS_fsync, Kind::Sync, Place::Descriptor(0)),
    (libc::SYS_fdatasync, Kind::Sync, Place::Descriptor(0)),
    (libc::SYS_flock, Kind::Lock, Place::Descriptor(0)),
    (libc::SYS_linkat, Kind::Link, Place::At(2, 3)),
    (libc::SYS_renameat, Kind::Rename, Place::At(2, 3)),
    (libc::SYS_renameat2, Kind::Rename, Place::At(2, 3)),
    (libc::SYS_unlinkat, Kind::Remove, Place::At(0, 1)),
    (libc::SYS_mkdirat, Kind::CreateFolder, Place::At(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Kind::Open, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Kind::Create, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, Kind::Link, Place::Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, Kind::Rename, Place::Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, Kind::Remove, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, Kind::Remove, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, Kind::CreateFolder, Place::Path(0)),
];

/// The numbers of the calls that are looked at.
pub(crate) fn numbers() -> impl Iterator<Item = libc::c_long> {
    CALLS.iter().map(|(number, ..)| *number)
}

/// The bytes that a call reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// Where they are in the memory of the process.
    pub(crate) address: u64,
    pub(crate) length: usize,
    /// Their place in the file; `None`: where the file is now.
    pub(crate) offset: Option<u64>,
}

/// A system call on a file.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it does.
    pub kind: Kind,
    /// The file that it does it to.
    pub path: PathBuf,
    /// The file's descriptor, if the call names one.
    pub(crate) descriptor: Option<i32>,
    /// What it reads or writes, if that is one range of bytes.
    pub(crate) buffer: Option<Buffer>,
    /// Whether it renames with flags, which some file systems cannot.
    pub(crate) has_flags: bool,
}

/// What a descriptor of a thread's process leads to.
fn path_of(tid: u32, descriptor: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{tid}/fd/{descriptor}")).ok()
}

/// A path in the memory of a thread's process.
fn text(tid: u32, address: u64) -> Option<PathBuf> {
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let count = File::open(format!("/proc/{tid}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    bytes.truncate(count);
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    Some(OsString::from_vec(bytes).into())
}

/// A path as a thread means it.
fn resolved(tid: u32, folder: i32, path: &Path) -> Option<PathBuf> {
    match folder {
        _ if path.is_absolute() => Some(path.to_owned()),
        libc::AT_FDCWD => Some(fs::read_link(format!("/proc/{tid}/cwd")).ok()?.join(path)),
        folder => Some(path_of(tid, folder)?.join(path)),
    }
}

impl Call {
    /// Finds out what a waiting call does; `None` if its file has no path.
    pub(crate) fn of(waiting: &Waiting) -> Option<Self> {
        let &(number, kind, place) = CALLS.iter().find(|(number, ..)| *number == waiting.number)?;
        let (tid, args) = (waiting.tid, waiting.args);
        // Descriptors and flags are 32 bits wide.
        let int = |index: usize| args[index] as i32;
        let path = match place {
            Place::Descriptor(index) => path_of(tid, int(index)),
            Place::At(folder, path) => resolved(tid, int(folder), &text(tid, args[path])?),
            #[cfg(target_arch = "x86_64")]
            Place::Path(path) => resolved(tid, libc::AT_FDCWD, &text(tid, args[path])?),
        };
        let descriptor = match place {
            Place::Descriptor(index) => Some(int(index)),
            _ => None,
        };
        let has_offset = [libc::SYS_pread64, libc::SYS_pwrite64].contains(&number);
        let is_range = has_offset || [libc::SYS_read, libc::SYS_write].contains(&number);
        let buffer = is_range.then(|| Buffer {
            address: args[1],
            length: args[2] as usize,
            offset: has_offset.then_some(args[3]),
        });
        let kind = match kind {
            Kind::Open => opening(int(if number == libc::SYS_openat { 2 } else { 1 })),
            other => other,
        };
        let has_flags = number == libc::SYS_renameat2 && args[4] != 0;
        Some(Self { kind, path: path?, descriptor, buffer, has_flags })
    }
}

/// What a call that opens does, by its flags.
fn opening(flags: i32) -> Kind {
    match flags {
        flags if flags & libc::O_TMPFILE == libc::O_TMPFILE => Kind::CreateUnnamed,
        flags if flags & libc::O_CREAT != 0 => Kind::Create,
        _ => Kind::Open,
    }
}

/// The process of a thread, if this process has started it.
pub(crate) fn child(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let value =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
    (value("PPid:")? == std::process::id()).then(|| value("Tgid:")).flatten()
}
