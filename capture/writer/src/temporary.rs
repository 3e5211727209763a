//! Names of files that are not finished, and what killed processes left under such names.
//!
//! A file that needs a name before it is finished is locked (`flock`) as long as its process lives, however that ends. So a
//! file with such a name that nobody has locked is one that a killed process left, and the next process of the same user
//! that writes into the folder removes it.
//!
//! ```text
//! .inquest-0f3a91c2-5d1c0a77e2b94f06.tmp
//!          boot     random
//! ```
//! A lock may be known to one machine only (some mounts of NFS and FUSE). A file of another boot, which is one of another
//! machine or of this one before it was started again, is therefore removed only if nothing was written to it for a day.
//! Where the file system has no locks, nothing is removed.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat},
    io::{Errno, Result},
};

use crate::owner::is_own;

const START: &str = ".inquest-";
const END: &str = ".tmp";
/// Digits of the boot in a name, and those of the random number.
const BOOT_DIGITS: usize = 8;
const RANDOM_DIGITS: usize = 16;
/// The time after which a file of another boot is one that a killed process left.
const UNTOUCHED: Duration = Duration::from_secs(24 * 60 * 60);

/// The machine since its last start, as the first digits of the kernel's id; `None` if that cannot be read.
fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    id.get(..BOOT_DIGITS).map(str::to_owned)
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A name that nobody can foresee.
pub(crate) fn name() -> OsString {
    // A boot that is not known is no other file's either.
    let boot = boot().unwrap_or_else(|| format!("{:08x}", random() as u32));
    format!("{START}{boot}-{:016x}{END}", random()).into()
}

/// The boot in a name that [`name`] has made; `None` for any other name.
fn boot_of(name: &OsStr) -> Option<&str> {
    let (boot, random) = name.to_str()?.strip_prefix(START)?.strip_suffix(END)?.split_once('-')?;
    let is_number = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (is_number(boot, BOOT_DIGITS) && is_number(random, RANDOM_DIGITS)).then_some(boot)
}

/// Locks a file without a name, before it gets one of [`name`]. Where the file system has no locks, nothing is removed
/// either.
pub(crate) fn lock(file: &File) {
    let _ = fs::flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Locks a file that was created under `name`. Returns whether it still has that name: another process may have taken it for
/// one that was left, in the moment before it was locked.
pub(crate) fn hold(folder: impl AsFd, name: &OsStr, file: &File) -> bool {
    let locked = fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    !matches!(locked, Err(Errno::WOULDBLOCK)) && !matches!(stat, Err(Errno::NOENT))
}

/// Removes what killed processes of this user left in a folder. What cannot be looked at or removed is in nobody's way: new
/// files have other names.
pub(crate) fn remove_left(folder: impl AsFd) {
    let folder = folder.as_fd();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(entries) = fs::openat(folder, ".", flags, Mode::empty()).and_then(Dir::new) else { return };
    let this_boot = boot();
    for entry in entries.map_while(Result::ok) {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if let Some(boot) = boot_of(name) {
            let _ = remove_if_left(folder, name, this_boot.as_deref() == Some(boot));
        }
    }
}

/// Removes a file if it is a regular one of this user with no other name, and no living process writes to it.
fn remove_if_left(folder: impl AsFd, name: &OsStr, is_of_this_boot: bool) -> Result<()> {
    let folder = folder.as_fd();
    let is_ours = |stat: &Stat| {
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_regular && stat.st_nlink == 1 && is_own(stat.st_uid)
    };
    // Anything else is not even opened.
    let stat = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_ours(&stat) || !(is_of_this_boot || is_untouched(&stat)) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(folder, name, flags, Mode::empty())?;
    let opened = fs::fstat(&file)?;
    if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) || !is_ours(&opened) {
        return Ok(());
    }
    // Shared, because NFS locks for one process only what that process can write to.
    fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
    fs::unlinkat(folder, name, AtFlags::empty())
}

/// Whether nothing was written to a file for a day.
fn is_untouched(stat: &Stat) -> bool {
    let written =
        u64::try_from(stat.st_mtime).map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let since = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
    since.is_some_and(|since| since > UNTOUCHED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &std::path::Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_names_of_this_module_are_recognised() {
        let made = name();
        assert!(boot_of(&made).is_some(), "{made:?}");
        assert_eq!(boot_of(&made).map(str::to_owned), boot());
        for other in [
            ".inquest-0123456789abcdef.tmp",
            ".inquest-01234567-0123456789abcde.tmp",
            ".inquest-01234567-0123456789abcdef",
            ".inquest-0123456G-0123456789abcdef.tmp",
            "x.inquest-01234567-0123456789abcdef.tmp",
        ] {
            assert_eq!(boot_of(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn what_nobody_has_locked_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let folder = File::open(directory.path()).unwrap();
        let inside = |name: &OsStr| directory.path().join(name);
        let (left, held, recent, old) = (name(), name(), other_boot(1), other_boot(2));
        let precious = directory.path().join("precious");
        for name in [&left, &held, &recent, &old] {
            std::fs::write(inside(name), "left").unwrap();
        }
        let file = File::options().write(true).open(inside(&old)).unwrap();
        file.set_modified(SystemTime::now() - 2 * UNTOUCHED).unwrap();
        drop(file);
        let held_file = File::options().write(true).open(inside(&held)).unwrap();
        assert!(hold(&folder, &held, &held_file));
        std::fs::write(&precious, "precious").unwrap();
        // Links, a second name and a folder, all under such names.
        let (link, second, inner) = (name(), name(), name());
        symlink(&precious, inside(&link)).unwrap();
        std::fs::hard_link(&precious, inside(&second)).unwrap();
        std::fs::create_dir(inside(&inner)).unwrap();
        remove_left(&folder);
        let kept = [&held, &recent, &link, &second, &inner];
        let mut kept: Vec<String> = kept.map(|name| name.to_str().unwrap().to_owned()).to_vec();
        kept.push("precious".to_owned());
        kept.sort();
        assert_eq!(names(directory.path()), kept);
        // Its process has ended.
        drop(held_file);
        remove_left(&folder);
        assert!(!inside(&held).exists());
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    }

    /// A name as another machine makes it.
    fn other_boot(number: u64) -> OsString {
        let boot = boot().unwrap_or_default();
        let other = if boot == "00000000" { "11111111" } else { "00000000" };
        format!("{START}{other}-{number:016x}{END}").into()
    }

    #[test]
    fn a_file_that_was_taken_for_a_left_one_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let folder = File::open(directory.path()).unwrap();
        let new = name();
        let path = directory.path().join(&new);
        std::fs::write(&path, "").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let other = File::open(&path).unwrap();
        fs::flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(!hold(&folder, &new, &file));
        drop(other);
        assert!(hold(&folder, &new, &file));
        std::fs::remove_file(&path).unwrap();
        assert!(!hold(&folder, &new, &file));
    }
}
