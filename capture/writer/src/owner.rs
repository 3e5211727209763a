//! Who owns the files that are written: the user of this process or, as root because of `sudo`, the user who called it.

use std::{env, fs::File, os::unix::fs::fchown};

use rustix::process::geteuid;

/// The user and group that called `sudo`, if this process is root because of that.
pub fn sudo_caller() -> Option<(u32, u32)> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    if geteuid().is_root() { number("SUDO_UID").zip(number("SUDO_GID")) } else { None }
}

/// Gives a file to the user who called `sudo`. It must have its name already: root without CAP_FOWNER may not name the files of
/// others. Some file systems have no owners, and root may lack the capability; the file is root's then.
pub(crate) fn give(file: &File) {
    if let Some((uid, gid)) = sudo_caller() {
        let _ = fchown(file, Some(uid), Some(gid));
    }
}

/// Whether a file of this user is one that this program creates for whoever started it.
pub(crate) fn is_own(uid: u32) -> bool {
    uid == geteuid().as_raw() || sudo_caller().is_some_and(|(caller, _)| caller == uid)
}
