//! Names the library that made a call, from the return address and the process's memory map.

use std::{collections::HashMap, sync::Arc};

use procfs::process::{MMPermissions, MMapPath, Process};
use trace_schema::Text;

/// One process's executable mappings.
#[derive(Default)]
struct Map {
    /// `(start, end, file name)`, sorted.
    ranges: Vec<(u64, u64, Text)>,
    /// Answers given; call sites are few.
    known: HashMap<u64, Option<Text>>,
    /// The map is older than the last library: read it again before giving up on an address.
    stale: bool,
}

/// The maps of all traced processes.
#[derive(Default)]
pub(crate) struct Callers {
    maps: HashMap<u32, Map>,
    names: HashMap<String, Text>,
}

impl Callers {
    /// Reads a process's mappings now; a process that is gone keeps the last ones.
    pub(crate) fn refresh(&mut self, pid: u32) {
        let Ok(maps) = Process::new(pid as i32).and_then(|process| process.maps()) else {
            return;
        };
        let mut ranges: Vec<(u64, u64, Text)> = Vec::new();
        for map in maps {
            if let MMapPath::Path(path) = &map.pathname
                && map.perms.contains(MMPermissions::EXECUTE)
                && let Some(name) = path.file_name()
            {
                let name = name.to_string_lossy();
                let text = match self.names.get(name.as_ref()) {
                    Some(text) => Arc::clone(text),
                    None => {
                        let text: Text = name.as_ref().into();
                        self.names.insert(name.into_owned(), Arc::clone(&text));
                        text
                    }
                };
                ranges.push((map.address.0, map.address.1, text));
            }
        }
        let entry = self.maps.entry(pid).or_default();
        // A process on its way out shows no mappings; what it had is still the better answer.
        if !ranges.is_empty() {
            ranges.sort_unstable_by_key(|range| range.0);
            entry.ranges = ranges;
            entry.known.clear();
        }
        entry.stale = false;
    }

    /// Says that a process may have mapped something since.
    pub(crate) fn mark_stale(&mut self, pid: u32) {
        self.maps.entry(pid).or_default().stale = true;
    }

    /// The file that holds `address`, or `None` for generated code and unknown processes.
    pub(crate) fn name(&mut self, pid: u32, address: u64) -> Option<Text> {
        if let Some(known) = self.maps.get(&pid).and_then(|map| map.known.get(&address)) {
            return known.clone();
        }
        let mut found = self.find(pid, address);
        if found.is_none() && self.maps.get(&pid).is_none_or(|map| map.stale) {
            self.refresh(pid);
            found = self.find(pid, address);
        }
        let map = self.maps.entry(pid).or_default();
        map.known.insert(address, found.clone());
        found
    }

    fn find(&self, pid: u32, address: u64) -> Option<Text> {
        let ranges = &self.maps.get(&pid)?.ranges;
        let after = ranges.partition_point(|range| range.0 <= address);
        let (_, end, name) = ranges.get(after.checked_sub(1)?)?;
        (address < *end).then(|| Arc::clone(name))
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
