//! The names of functions in generated code, from the file that a runtime writes (`python -X perf`: /tmp/perf-PID.map).
//!
//! The traced process writes this file and a privileged recorder reads it. So the recorder reads a plain file of that
//! process's user only, follows no link at its name, and reads no more than [`MAP_BYTES`].

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use procfs::process::Process;

use crate::attach::through_root;

/// Longest part of a map that is read, in bytes: some million functions.
const MAP_BYTES: u64 = 64 << 20;

/// A map of addresses to names.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// `(start, size, name)`, sorted by start; of those with one start, the last one written is last.
    functions: Vec<(u64, u64, String)>,
    /// What to tell if the file is longer than what was read.
    pub(crate) cut: Option<String>,
}

/// The user that a process runs as; `None` if it is gone.
pub(crate) fn user(pid: u32) -> Option<u32> {
    let status = Process::new(pid as i32).and_then(|process| process.status());
    status.ok().map(|status| status.euid)
}

impl PerfMap {
    /// Reads the map of a process that ran as `user`, in its own /tmp or, if the process is gone, in that of this machine. A
    /// map that is not there, or is not to be trusted, has no names.
    pub(crate) fn read(pid: u32, user: Option<u32>) -> Self {
        let Some(user) = user else {
            return Self::default();
        };
        let path = Path::new("/tmp").join(format!("perf-{pid}.map"));
        let (text, is_cut) = read(&through_root(pid, &path), user, MAP_BYTES)
            .or_else(|_| read(&path, user, MAP_BYTES))
            .unwrap_or_default();
        let cut = is_cut.then(|| {
            let mib = MAP_BYTES >> 20;
            format!("names of generated code after the first {mib} MiB of {} (call stacks)", path.display())
        });
        Self { cut, ..Self::parse(&text) }
    }

    /// Parses lines of `start size name`, with numbers in hexadecimal.
    pub(crate) fn parse(text: &str) -> Self {
        let mut functions: Vec<(u64, u64, String)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.splitn(3, ' ');
                let number =
                    |word: Option<&str>| u64::from_str_radix(word?.trim_start_matches("0x"), 16).ok();
                Some((number(words.next())?, number(words.next())?, words.next()?.to_owned()))
            })
            .collect();
        functions.sort_by_key(|(start, _, _)| *start);
        Self { functions, cut: None }
    }

    /// Name of the function at an address.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, _, _)| *start <= address);
        let (start, size, name) = self.functions.get(after.checked_sub(1)?)?;
        (address - start < *size).then_some(name)
    }
}

/// Reads a plain file of a user, at most `limit` bytes of it; and whether it is longer.
fn read(path: &Path, user: u32, limit: u64) -> io::Result<(String, bool)> {
    // Opening a pipe must not wait for its writer.
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != user {
        return Err(io::Error::other("not a plain file of the traced process's user"));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    let is_cut = bytes.len() as u64 > limit;
    if is_cut {
        // The last line is not whole.
        bytes.truncate(limit as usize);
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0));
    }
    Ok((String::from_utf8_lossy(&bytes).into_owned(), is_cut))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn perf_maps_are_read_and_rubbish_is_not() {
        let map = PerfMap::parse("8000 10 py::main:/m.py\nnonsense\n0x7f00 20 py::step:/a b.py\n");
        assert_eq!(map.functions.len(), 2);
        let names = [0x7eff, 0x7f00, 0x7f1f, 0x7f20, 0x800f, 0x8010].map(|address| map.name(address));
        let (step, main) = (Some("py::step:/a b.py"), Some("py::main:/m.py"));
        assert_eq!(names, [None, step, step, None, main, None]);
        // Generated code may take the place of older code.
        assert_eq!(PerfMap::parse("10 8 old\n10 8 new\n").name(0x12), Some("new"));
    }

    #[test]
    fn only_a_plain_file_of_the_user_is_read_and_not_without_end() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("perf-1.map");
        fs::write(&path, "10 8 one\n20 8 two\n").expect("a file");
        let owner = fs::metadata(&path).expect("the file").uid();
        assert_eq!(read(&path, owner, 18).expect("read"), ("10 8 one\n20 8 two\n".to_owned(), false));
        assert_eq!(read(&path, owner, 17).expect("read"), ("10 8 one".to_owned(), true));
        assert!(read(&path, owner + 1, 18).is_err(), "a file of another user");
        let link = directory.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(read(&link, owner, 18).is_err(), "a link");
        assert!(read(Path::new("/dev/zero"), owner, 18).is_err(), "a device");
    }
}
