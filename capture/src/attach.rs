//! Finds the libraries that a process has mapped and places the probes in them, once per file.
//!
//! A uprobe sits on a file, not on a process: it fires wherever that file is mapped, and the kernel
//! side asks whether the process is traced. So a child that maps the same file needs nothing, and a
//! container's copy of a library is just another file.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use capture_wire::cookie;
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use procfs::process::{MMPermissions, MMapPath, Process};
use trace_schema::{AttachedProbe, Class, Library as LibraryInfo};

use crate::{
    elf::{self, Elf, Function, Scope},
    error::CaptureError,
    kernel::{CUDA_STARTS, Kernel, LIBRARY_LOADED, Point, PointKind},
    probes::{self, Event, FunctionProbe, Library, MarkKind, Profile, Without},
};

/// glibc's and musl's notification point of the dynamic loader.
const LOADER_NOTIFIES: &str = "_dl_debug_state";
/// glibc's state of the list of libraries.
const LOADER_STATE: &str = "_r_debug";
/// Offset of `r_state` in `struct r_debug` (link.h, 64 bit).
const R_STATE_OFFSET: u64 = 24;
/// The driver function that every process calls before any other.
const CUDA_INIT: &str = "cuInit";
/// Functions by which a program is recognised that has the CUDA runtime linked in.
const RUNTIME_MARKS: [&str; 2] = ["cudaMalloc", "cudaLaunchKernel"];

/// Which calls get their call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stacks {
    /// Calls that allocate, free or map memory, and allocator events.
    pub(crate) alloc: bool,
    /// All calls.
    pub(crate) all: bool,
    /// Calls of at least this duration, in nanoseconds.
    pub(crate) slow_ns: Option<i64>,
}

impl Stacks {
    /// Whether any call stack is taken.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }

    /// Whether a function's stack is taken at its entry.
    fn at_entry(self, event: Event) -> bool {
        let memory = match event {
            Event::Call(op) => matches!(op.class(), Class::Alloc | Class::Free | Class::Map),
            Event::Allocator | Event::AllocatorUsage | Event::EmptyCache | Event::IpcCollect => true,
            _ => false,
        };
        self.all || self.alloc && memory
    }
}

/// Places probes in files, and remembers which files have them.
pub(crate) struct Attacher {
    profile: Profile,
    /// Probes that the user leaves out (`--without`).
    without: Vec<Without>,
    stacks: Stacks,
    /// Whether every new driver library is watched for processes that start to use CUDA.
    all_cuda: bool,
    /// Files that have been examined.
    done: HashSet<Identity>,
    /// Processes whose allocator library lacks the symbol of its events, so that its usage reports are probed.
    needs_usage: HashSet<u32>,
    /// Libraries in which probes were placed.
    pub(crate) libraries: Vec<LibraryInfo>,
    /// Every probe that was tried, with its error if it has one.
    pub(crate) probes: Vec<AttachedProbe>,
}

/// A file that a process has mapped executable.
struct Mapped {
    path: PathBuf,
    identity: Identity,
}

/// Identity of a file regardless of its path: device, inode, size in bytes.
type Identity = (u64, u64, u64);

/// Containers of one image see one file, each through an overlay with a device number of its own; probes
/// sit on the file beneath. There the device says nothing, and inode and size of the file beneath show through.
fn identity(path: &Path) -> Option<Identity> {
    let file = fs::metadata(path).ok()?;
    let overlay = statfs(path).is_ok_and(|system| system.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
    Some((if overlay { 0 } else { file.dev() }, file.ino(), file.size()))
}

impl Mapped {
    fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn mapped(pid: u32) -> Vec<Mapped> {
    let Ok(maps) = Process::new(pid as i32).and_then(|process| process.maps()) else {
        return Vec::new();
    };
    let mut seen = HashSet::new();
    maps.into_iter()
        .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
        .filter_map(|map| match map.pathname {
            // A file that is gone, with its process or by deletion, cannot be probed.
            MMapPath::Path(path) => Some(Mapped { identity: identity(&through_root(pid, &path))?, path }),
            _ => None,
        })
        .filter(|file| seen.insert(file.identity))
        .collect()
}

/// Result of examining the libraries of a process.
pub(crate) struct Found {
    /// Paths of the libraries in which probes were placed just now.
    pub(crate) new: Vec<String>,
    /// Path of PyTorch's allocator library, if the process has mapped it.
    pub(crate) allocator: Option<PathBuf>,
}

/// Whether a process has the CUDA driver's library mapped.
pub(crate) fn uses_cuda(pid: u32) -> bool {
    mapped(pid).iter().any(|file| Library::Cuda.matches(&file.name()))
}

impl Attacher {
    /// Makes an attacher for the probes of `profile` without those in `without`.
    pub(crate) fn new(profile: Profile, without: Vec<Without>, stacks: Stacks, all_cuda: bool) -> Self {
        Self {
            profile,
            without,
            stacks,
            all_cuda,
            done: HashSet::new(),
            needs_usage: HashSet::new(),
            libraries: Vec::new(),
            probes: Vec::new(),
        }
    }

    /// Places the probes in those libraries of a process that have none yet.
    ///
    /// # Errors
    /// If the embedded object lacks a program. A library that cannot be probed is noted, not fatal.
    pub(crate) fn attach(&mut self, kernel: &mut Kernel, pid: u32) -> Result<Found, CaptureError> {
        let mut new = Vec::new();
        let mut allocator = None;
        let files = mapped(pid);
        for library in Library::ALL {
            for file in files.iter().filter(|file| library.matches(&file.name())) {
                if library == Library::C10Cuda {
                    allocator = Some(file.path.clone());
                }
                if library == Library::C10 && !self.needs_usage.contains(&pid)
                    || !self.done.insert(file.identity)
                {
                    continue;
                }
                if self.attach_library(kernel, pid, library, &file.path)? {
                    new.push(file.path.display().to_string());
                } else {
                    // Its process may have gone meanwhile; the next one to map it gets another try.
                    self.done.remove(&file.identity);
                }
            }
        }
        for file in &files {
            let name = file.name();
            if Library::C10.matches(&name) || !self.done.insert(file.identity) {
                continue;
            }
            if name.starts_with("ld-") || name.starts_with("ld.so") {
                self.attach_loader(kernel, pid, &file.path)?;
                continue;
            }
            let mut has_probes = false;
            if Library::Torch.matches(&name) {
                has_probes |= self.attach_library(kernel, pid, Library::Torch, &file.path)?;
            }
            if has_runtime(&through_root(pid, &file.path)) {
                has_probes |= self.attach_library(kernel, pid, Library::Cudart, &file.path)?;
            }
            if has_probes {
                new.push(file.path.display().to_string());
            }
        }
        Ok(Found { new, allocator })
    }

    /// Places a probe in a driver library that reports processes which start to use it.
    ///
    /// # Errors
    /// If the embedded object lacks a program.
    pub(crate) fn watch_driver(&mut self, kernel: &mut Kernel, path: &Path) -> Result<(), CaptureError> {
        let error = match elf::read(path, Scope::All, |name| name == CUDA_INIT) {
            Err(error) => Some(error.to_string()),
            Ok(elf) => match elf.functions.first() {
                None => Some("this library has no such symbol".to_owned()),
                Some(function) => kernel.hook(CUDA_STARTS, path, function.offset, 0)?,
            },
        };
        self.note(CUDA_INIT, path, error);
        Ok(())
    }

    fn note(&mut self, symbol: &str, path: &Path, error: Option<String>) {
        self.probes.push(AttachedProbe {
            symbol: symbol.to_owned(),
            library: path.display().to_string(),
            error,
        });
    }

    fn point(&self, number: u32, probe: &FunctionProbe, function: &Function) -> Point {
        let mut flags = 0;
        let mut add = |condition: bool, flag: u64| flags |= if condition { flag } else { 0 };
        add(probe.reads.is_some(), cookie::READ);
        add(self.stacks.at_entry(probe.event), cookie::STACK);
        let (kind, text) = match probe.event {
            Event::Call(_) | Event::IpcCollect => (PointKind::Call, None),
            Event::NamingCall(_) => {
                add(true, cookie::NAMES);
                (PointKind::Call, None)
            }
            Event::Allocator | Event::AllocatorUsage | Event::EmptyCache => (PointKind::Entry, None),
            Event::KernelName => (PointKind::Named, Some(3)),
            Event::Mark(MarkKind::Pop) => (PointKind::Named, Some(cookie::NO_TEXT)),
            Event::Mark(_) => {
                add(probe.symbol.ends_with("Ex"), cookie::TEXT_IN_ATTRIBUTES);
                (PointKind::Named, Some(0))
            }
        };
        flags |= text.map_or(0, |argument| argument << cookie::TEXT_SHIFT);
        Point { offset: function.offset, cookie: cookie::pack(number, probe.out, flags), kind }
    }

    /// Places the probes of one library; returns whether its file could be read and is one that has functions of its family.
    fn attach_library(
        &mut self,
        kernel: &mut Kernel,
        pid: u32,
        library: Library,
        path: &Path,
    ) -> Result<bool, CaptureError> {
        let wanted: Vec<(u32, &FunctionProbe)> = probes::numbered()
            .filter(|(_, probe)| probe.library == library && probe.profile <= self.profile)
            .filter(|(_, probe)| {
                let left_out = self.without.iter().any(|without| without.covers(probe));
                // What stands in for the allocator's own events is needed then.
                if left_out && matches!(probe.event, Event::Allocator) {
                    self.needs_usage.insert(pid);
                }
                !left_out
            })
            .collect();
        let target = through_root(pid, path);
        let scope = if library == Library::Torch { Scope::Exported } else { Scope::All };
        let is_wanted = |name: &str| wanted.iter().any(|(_, probe)| probe.matches(name));
        let elf = match elf::read(&target, scope, is_wanted) {
            Ok(elf) => elf,
            Err(error) => {
                self.note("*", path, Some(error.to_string()));
                return Ok(false);
            }
        };
        let mut absent = Vec::new();
        let (mut points, mut names, mut places) = (Vec::new(), Vec::new(), HashSet::new());
        for (number, probe) in wanted {
            let mut found = false;
            for function in elf.functions.iter().filter(|function| probe.matches(&function.name)) {
                found = true;
                // Two names of one place are one function.
                if places.insert(function.offset) {
                    points.push(self.point(number, probe, function));
                    names.push(function.name.clone());
                }
            }
            if !found {
                absent.push(probe.symbol.to_owned());
                // Other functions come and go with versions; without this one, the allocator is unseen.
                if matches!(probe.event, Event::Allocator) {
                    self.needs_usage.insert(pid);
                    self.note(probe.symbol, path, Some("this library has no such symbol".to_owned()));
                }
            }
        }
        // Of the libraries that may have PyTorch's CUDA code, the one that should is noted if it does not.
        if library == Library::Torch && points.is_empty() && !is_torch_cuda(path) {
            return Ok(false);
        }
        let (path_text, build_id) = (path.display().to_string(), elf.build_id.clone());
        self.libraries.push(LibraryInfo { path: path_text, build_id, absent });
        let errors = kernel.attach_functions(&target, &points)?;
        for (name, error) in names.iter().zip(errors) {
            self.note(name, path, error);
        }
        if library == Library::Cuda && self.all_cuda {
            self.watch_driver(kernel, &target)?;
        }
        Ok(true)
    }

    /// Places a probe in the dynamic loader that reports when it has mapped libraries.
    fn attach_loader(&mut self, kernel: &mut Kernel, pid: u32, path: &Path) -> Result<(), CaptureError> {
        let target = through_root(pid, path);
        let symbol = |elf: &Elf, name| elf.functions.iter().find(|function| function.name == name).cloned();
        let names = |name: &str| name == LOADER_NOTIFIES || name == LOADER_STATE;
        let error = match elf::read(&target, Scope::All, names) {
            Err(error) => Some(error.to_string()),
            Ok(elf) => match symbol(&elf, LOADER_NOTIFIES) {
                None => Some("this loader has no such symbol".to_owned()),
                Some(notifies) => {
                    // Without the state word every notification counts, which only costs time.
                    let distance = symbol(&elf, LOADER_STATE).map_or(0, |state| {
                        // Addresses are those that a file states, and need not be near each other.
                        state.address.wrapping_sub(notifies.address).wrapping_add(R_STATE_OFFSET)
                    });
                    let cookie = u64::from(distance as u32) << cookie::R_STATE_SHIFT;
                    kernel.hook(LIBRARY_LOADED, &target, notifies.offset, cookie)?
                }
            },
        };
        self.note(LOADER_NOTIFIES, path, error);
        Ok(())
    }
}

/// Whether a file is the library in which current builds of PyTorch have their CUDA code.
fn is_torch_cuda(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libtorch_cuda"))
}

/// Whether a file contains the CUDA runtime, linked statically and not stripped.
fn has_runtime(path: &Path) -> bool {
    elf::has_static_functions(path, &RUNTIME_MARKS)
}

/// Translates a path that the traced process sees, possibly in a container, to one that this process can open.
pub(crate) fn through_root(pid: u32, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    root.join(path.strip_prefix("/").unwrap_or(path))
}
