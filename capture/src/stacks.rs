//! Call stacks, which the kernel interns under a number, and the names of their frames.
//!
//! A stack is spelled out when its number is first seen, as files and offsets, while its process lives; at
//! the end the names are looked up, from symbol tables and from the map that a runtime with generated code
//! writes (`python -X perf`: /tmp/perf-PID.map). So even a recording that was killed has its stacks.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use capture_wire::Call;
use trace_schema::{Kind, Row};

use crate::{
    attach::through_root,
    caller::Callers,
    elf::Symbols,
    kernel::Kernel,
    perf_map::{self, PerfMap},
};

/// One frame.
#[derive(Clone)]
enum Frame {
    /// A frame in a file: path, file name, and offset in bytes.
    File { path: PathBuf, name: String, offset: u64 },
    /// A frame in generated code, by its address.
    Address(u64),
}

/// A stack as it was found: process, the kernel's number, and the return address of the probed function. The
/// last one belongs to it, because a frame-pointer walk from a function's first instruction skips the caller.
type Found = (u32, u32, u64);

/// Every stack seen so far.
#[derive(Default)]
pub(crate) struct Stacks {
    numbers: HashMap<Found, u32>,
    seen: BTreeMap<(u32, u32), Vec<Frame>>,
    /// User ids of processes with frames in generated code; `None` for one that was gone when it was looked at.
    users: HashMap<u32, Option<u32>>,
}

fn row(ts_ns: i64, pid: u32, id: u32, text: String) -> Row {
    Row {
        stack: Some(id),
        detail: Some(text.into()),
        ..Row::new(ts_ns, Kind::Name, "stack".into(), pid, pid)
    }
}

fn folded(frames: impl DoubleEndedIterator<Item = String>) -> String {
    // Frames are read innermost first and written outermost first.
    frames.rev().collect::<Vec<_>>().join(";")
}

impl Stacks {
    /// The number of a call's stack and, if the stack is new, the row that has its frames.
    pub(crate) fn number(
        &mut self,
        call: &Call,
        id: u32,
        kernel: &Kernel,
        callers: &mut Callers,
    ) -> (u32, Option<Row>) {
        let (ts_ns, pid) = (call.ts as i64, call.pid);
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry((pid, id, call.caller)).or_insert(next);
        if number != next {
            return (number, None);
        }
        let mut addresses = kernel.stack(id);
        if !addresses.iter().take(2).any(|address| *address == call.caller) {
            addresses.insert(addresses.len().min(1), call.caller);
        }
        let frames: Vec<Frame> = addresses
            .into_iter()
            .map(|address| match callers.place(pid, address) {
                Some(place) => Frame::File {
                    path: place.path.to_owned(),
                    name: place.name.to_string(),
                    offset: place.offset,
                },
                None => Frame::Address(address),
            })
            .collect();
        if frames.iter().any(|frame| matches!(frame, Frame::Address(_))) {
            self.users.entry(pid).or_insert_with(|| perf_map::user(pid));
        }
        let text = folded(frames.iter().map(|frame| match frame {
            Frame::File { name, offset, .. } => format!("{name}+0x{offset:x}"),
            Frame::Address(address) => format!("0x{address:x}"),
        }));
        self.seen.insert((pid, number), frames);
        (number, Some(row(ts_ns, pid, number, text)))
    }

    /// Rows of all stacks, with the function names that symbol tables and perf maps have; and a sentence for each perf map
    /// that was not read to its end.
    pub(crate) fn named(self, ts_ns: i64) -> (Vec<Row>, Vec<String>) {
        let mut files: HashMap<PathBuf, Symbols> = HashMap::new();
        // Stacks come by process, so that one map is held at a time.
        let mut generated: Option<(u32, PerfMap)> = None;
        let mut notes = Vec::new();
        let users = self.users;
        let rows = self
            .seen
            .into_iter()
            .map(|((pid, id), frames)| {
                let text = folded(frames.into_iter().enumerate().map(|(depth, frame)| {
                    match frame {
                        Frame::File { path, name, offset } => {
                            let symbols = files.entry(path).or_insert_with_key(|path| {
                                let inside = through_root(pid, path);
                                Symbols::read(if inside.exists() { &inside } else { path })
                            });
                            // A return address may be the first byte after its function.
                            let at = if depth == 0 { offset } else { offset.saturating_sub(1) };
                            match symbols.name(at) {
                                Some(function) => function.replace(';', ":"),
                                None => format!("{name}+0x{offset:x}"),
                            }
                        }
                        Frame::Address(address) => {
                            if generated.as_ref().is_none_or(|(of, _)| *of != pid) {
                                let map = PerfMap::read(pid, users.get(&pid).copied().flatten());
                                notes.extend(map.cut.clone());
                                generated = Some((pid, map));
                            }
                            let name = generated.as_ref().and_then(|(_, map)| map.name(address));
                            name.map_or_else(|| format!("0x{address:x}"), |name| name.replace(';', ":"))
                        }
                    }
                }));
                row(ts_ns, pid, id, text)
            })
            .collect();
        (rows, notes)
    }
}
