//! Names the library that made a call, and the file that holds an address, from a process's memory map.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use procfs::process::{MMPermissions, MMapPath, Process};
use trace_schema::Text;

/// An executable mapping of a file.
#[derive(Clone)]
struct Range {
    start: u64,
    end: u64,
    /// Offset in the file at which the mapping starts, in bytes.
    offset: u64,
    file: Arc<File>,
}

/// A mapped file.
struct File {
    path: PathBuf,
    name: Text,
}

/// One process's executable mappings.
#[derive(Default)]
struct Map {
    /// Mappings, sorted by address.
    ranges: Vec<Range>,
    /// Whether a library was loaded since: the map is read again before an address counts as unknown.
    stale: bool,
}

/// The place of an address in a mapped file.
pub(crate) struct Place<'a> {
    /// The file, as the process sees it.
    pub(crate) path: &'a Path,
    /// File name without directories.
    pub(crate) name: &'a Text,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
}

/// A cached answer of [`Callers::name`].
#[derive(Clone, Default)]
struct Recent {
    pid: u32,
    address: u64,
    name: Option<Text>,
}

/// Size of [`Callers::recent`]: a power of two.
const RECENT: usize = 256;

/// The maps of all traced processes.
#[derive(Default)]
pub(crate) struct Callers {
    maps: HashMap<u32, Map>,
    /// Cache of recent answers: call sites are few, and calls are many.
    recent: Vec<Recent>,
    files: HashMap<PathBuf, Arc<File>>,
}

impl Callers {
    /// Reads a process's mappings now; a process that is gone keeps the last ones.
    pub(crate) fn refresh(&mut self, pid: u32) {
        let Ok(maps) = Process::new(pid as i32).and_then(|process| process.maps()) else {
            return;
        };
        let mut ranges: Vec<Range> = Vec::new();
        for map in maps {
            if let MMapPath::Path(path) = map.pathname
                && map.perms.contains(MMPermissions::EXECUTE)
                && let Some(name) = path.file_name()
            {
                let file = match self.files.get(&path) {
                    Some(file) => Arc::clone(file),
                    None => {
                        // Never freed: they are few, and a row takes one without counting references.
                        let name = Text::Static(name.to_string_lossy().into_owned().leak());
                        let file = Arc::new(File { path: path.clone(), name });
                        self.files.insert(path, Arc::clone(&file));
                        file
                    }
                };
                let (start, end) = map.address;
                ranges.push(Range { start, end, offset: map.offset, file });
            }
        }
        let entry = self.maps.entry(pid).or_default();
        // A process on its way out shows no mappings; what it had is still the better answer.
        if !ranges.is_empty() {
            ranges.sort_unstable_by_key(|range| range.start);
            entry.ranges = ranges;
            self.recent.clear();
        }
        entry.stale = false;
    }

    /// Notes that a process may have mapped something since its mappings were read.
    pub(crate) fn mark_stale(&mut self, pid: u32) {
        self.maps.entry(pid).or_default().stale = true;
    }

    /// Processes whose mappings are known.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.maps.keys().copied()
    }

    /// Forgets a process that is gone.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
        self.recent.clear();
    }

    /// The name of the file that holds `address`, or `None` for generated code and unknown processes.
    pub(crate) fn name(&mut self, pid: u32, address: u64) -> Option<Text> {
        let slot = ((address ^ u64::from(pid)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % RECENT;
        if let Some(recent) = self.recent.get(slot)
            && (recent.pid, recent.address) == (pid, address)
        {
            return recent.name.clone();
        }
        let name = self.place(pid, address).map(|place| place.name.clone());
        self.recent.resize(RECENT, Recent::default());
        self.recent[slot] = Recent { pid, address, name: name.clone() };
        name
    }

    /// The file that holds `address`, with the offset in it; `None` for generated code and unknown processes.
    pub(crate) fn place(&mut self, pid: u32, address: u64) -> Option<Place<'_>> {
        if self.find(pid, address).is_none() && self.maps.get(&pid).is_none_or(|map| map.stale) {
            self.refresh(pid);
        }
        let range = self.find(pid, address)?;
        let offset = address - range.start + range.offset;
        Some(Place { path: &range.file.path, name: &range.file.name, offset })
    }

    fn find(&self, pid: u32, address: u64) -> Option<&Range> {
        let ranges = &self.maps.get(&pid)?.ranges;
        let after = ranges.partition_point(|range| range.start <= address);
        ranges.get(after.checked_sub(1)?).filter(|range| address < range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_this_program() {
        let mut callers = Callers::default();
        let pid = std::process::id();
        let here = names_this_program as *const () as u64;
        let program = std::env::current_exe().expect("path");
        let name = callers.name(pid, here).expect("mapped");
        assert_eq!(Some(std::ffi::OsStr::new(&*name)), program.file_name());
        assert_eq!(callers.name(pid, 8), None);
    }
}
