//! Finds the libraries that a process has mapped and places the probes in them, once per file.
//!
//! A uprobe sits on a file, not on a process: it fires wherever that file is mapped, and the kernel
//! side asks whether the process is traced. So a child that maps the same file needs nothing.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use capture_wire::cookie;
use procfs::process::{MMPermissions, MMapPath, Process};
use trace_schema::{AttachedProbe, Library as LibraryInfo};

use crate::{
    elf::{self, Elf},
    error::CaptureError,
    kernel::{CALL_ENTRY, CALL_POINT, CALL_RETURN, Kernel, LIBRARY_LOADED},
    probes::{self, Event, FunctionProbe, Library},
};

/// glibc's and musl's notification point of the dynamic loader.
const LOADER_NOTIFIES: &str = "_dl_debug_state";
/// glibc's state of the list of libraries.
const LOADER_STATE: &str = "_r_debug";
/// Offset of `r_state` in `struct r_debug` (link.h, 64 bit).
const R_STATE_OFFSET: i64 = 24;

/// What was placed where.
#[derive(Default)]
pub(crate) struct Attacher {
    /// Device and inode of every file looked at.
    done: HashSet<(u64, u64)>,
    /// Allocator libraries without the allocator's own symbol.
    needs_usage: HashSet<u32>,
    /// Libraries with probes.
    pub(crate) libraries: Vec<LibraryInfo>,
    /// Every probe tried.
    pub(crate) probes: Vec<AttachedProbe>,
}

/// A file that a process has mapped executable.
struct Mapped {
    path: PathBuf,
    inode: (u64, u64),
}

fn mapped(pid: u32) -> Vec<Mapped> {
    let Ok(maps) = Process::new(pid as i32).and_then(|process| process.maps()) else {
        return Vec::new();
    };
    let mut seen = HashSet::new();
    maps.into_iter()
        .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
        .filter_map(|map| match map.pathname {
            MMapPath::Path(path) => {
                let (major, minor) = map.dev;
                let device = ((major as u64) << 32) | (minor as u64 & 0xffff_ffff);
                Some(Mapped { path, inode: (device, map.inode) })
            }
            _ => None,
        })
        .filter(|file| seen.insert(file.inode))
        .collect()
}

impl Attacher {
    /// Places the probes that a process's libraries call for and that are not there yet; returns the
    /// paths of the libraries that were new.
    ///
    /// # Errors
    /// If the embedded object lacks a program. A library that cannot be probed is noted, not fatal.
    pub(crate) fn attach(&mut self, kernel: &mut Kernel, pid: u32) -> Result<Vec<String>, CaptureError> {
        let mut new = Vec::new();
        let files = mapped(pid);
        // The allocator's library first: it decides whether its fallback in libc10 is needed.
        for library in [Library::C10Cuda, Library::C10, Library::Cudart, Library::Cuda] {
            for file in &files {
                let name = file.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                if !library.matches(&name)
                    || library == Library::C10 && !self.needs_usage.contains(&pid)
                    || !self.done.insert(file.inode)
                {
                    continue;
                }
                self.attach_library(kernel, pid, library, &file.path)?;
                new.push(file.path.display().to_string());
            }
        }
        for file in &files {
            let name = file.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            if (name.starts_with("ld-") || name.starts_with("ld.so")) && self.done.insert(file.inode) {
                self.attach_loader(kernel, pid, &file.path)?;
            }
        }
        Ok(new)
    }

    fn note(&mut self, symbol: &str, path: &Path, error: Option<String>) {
        self.probes.push(AttachedProbe {
            symbol: symbol.to_owned(),
            library: path.display().to_string(),
            error,
        });
    }

    fn attach_library(
        &mut self,
        kernel: &mut Kernel,
        pid: u32,
        library: Library,
        path: &Path,
    ) -> Result<(), CaptureError> {
        let wanted: Vec<(u32, &FunctionProbe)> =
            probes::numbered().filter(|(_, probe)| probe.library == library).collect();
        let target = through_root(pid, path);
        let elf = match elf::read(&target, |name| wanted.iter().any(|(_, probe)| probe.matches(name))) {
            Ok(elf) => elf,
            Err(error) => {
                self.note("*", path, Some(error.to_string()));
                return Ok(());
            }
        };
        self.libraries.push(LibraryInfo { path: path.display().to_string(), build_id: elf.build_id.clone() });
        for (number, probe) in wanted {
            let Some(function) = elf.functions.iter().find(|function| probe.matches(&function.name)) else {
                if library == Library::C10Cuda {
                    self.needs_usage.insert(pid);
                }
                self.note(probe.symbol, path, Some("this library has no such symbol".to_owned()));
                continue;
            };
            let error = place(kernel, probe, number, function.offset, &target)?;
            self.note(&function.name, path, error);
        }
        Ok(())
    }

    /// Makes the dynamic loader tell when it has mapped libraries.
    fn attach_loader(&mut self, kernel: &mut Kernel, pid: u32, path: &Path) -> Result<(), CaptureError> {
        let target = through_root(pid, path);
        let symbol = |elf: &Elf, name| elf.functions.iter().find(|function| function.name == name).cloned();
        let names = |name: &str| name == LOADER_NOTIFIES || name == LOADER_STATE;
        let error = match elf::read(&target, names) {
            Err(error) => Some(error.to_string()),
            Ok(elf) => match symbol(&elf, LOADER_NOTIFIES) {
                None => Some("this loader has no such symbol".to_owned()),
                Some(notifies) => {
                    // Without the state word every notification counts, which only costs time.
                    let distance = symbol(&elf, LOADER_STATE)
                        .map_or(0, |state| state.address as i64 - notifies.address as i64 + R_STATE_OFFSET);
                    let cookie = (distance as i32 as u32 as u64) << cookie::R_STATE_SHIFT;
                    hook(kernel, LIBRARY_LOADED, notifies.offset, cookie, &target)?
                }
            },
        };
        self.note(LOADER_NOTIFIES, path, error);
        Ok(())
    }
}

/// A path as the traced process sees it, from here: it may live in a container.
fn through_root(pid: u32, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Attaches one program at one place; the kernel's refusal is returned as text.
fn hook(
    kernel: &mut Kernel,
    program: &'static str,
    offset: u64,
    cookie: u64,
    target: &Path,
) -> Result<Option<String>, CaptureError> {
    let point =
        UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(offset), cookie: Some(cookie) };
    let result = kernel.uprobe(program)?.attach(point, target, UProbeScope::AllProcesses);
    Ok(result.err().map(|error| error_chain(&error)))
}

fn place(
    kernel: &mut Kernel,
    probe: &FunctionProbe,
    number: u32,
    offset: u64,
    target: &Path,
) -> Result<Option<String>, CaptureError> {
    let cookie = cookie::pack(number, probe.out);
    match probe.event {
        Event::Call(_) => {
            // The return first: an entry without it would leave calls open for ever.
            if let Some(error) = hook(kernel, CALL_RETURN, offset, cookie, target)? {
                return Ok(Some(error));
            }
            hook(kernel, CALL_ENTRY, offset, cookie, target)
        }
        Event::Allocator | Event::AllocatorUsage => hook(kernel, CALL_POINT, offset, cookie, target),
    }
}

/// An error with its causes on one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
