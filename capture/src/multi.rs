//! Many function probes as one kernel link (`uprobe.multi`, Linux 6.6; sessions, 6.13).
//!
//! One link covers all functions of a library: it is attached and taken away in one step instead of one
//! by one, and a hit costs less. aya 0.14 cannot load programs for such links, so this file makes the two
//! `bpf(2)` calls itself, with the instructions that aya's object reader has relocated to aya's maps.
#![expect(unsafe_code, reason = "bpf(2) has no safe interface")]

use std::{
    collections::HashSet,
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use aya::{Ebpf, maps::Map};
use aya_obj::{Object, generated::bpf_insn};
use capture_wire::kfunc;

use crate::{btf::Functions, error::CaptureError};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_TRACE_UPROBE_SESSION: u32 = 57;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
/// `BPF_JMP | BPF_CALL`, and the source register that makes it a call of a kernel function.
const CALL: u8 = 0x85;
const PSEUDO_KFUNC_CALL: u8 = 2;
const LOG_BYTES: usize = 64 << 10;

/// The head of `union bpf_attr` for BPF_PROG_LOAD (include/uapi/linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The head of `union bpf_attr` for BPF_LINK_CREATE with `uprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    pad: u32,
}

/// Where a program for many functions runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The program runs at the functions' entries.
    Entry,
    /// The program runs at the functions' returns.
    Return,
    /// The program runs at entry and return (uprobe session).
    Session,
}

impl Shape {
    const fn attach_type(self) -> u32 {
        match self {
            Self::Entry | Self::Return => BPF_TRACE_UPROBE_MULTI,
            Self::Session => BPF_TRACE_UPROBE_SESSION,
        }
    }
}

/// A loaded program for links over many functions.
pub(crate) struct Program {
    fd: OwnedFd,
    shape: Shape,
}

fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: every attr is a prefix of the kernel's union, of the size given; its pointers outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands return a new file descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn fd_of(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::RingBuf(data)
        | Map::StackTraceMap(data) => Some(data.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}

/// Parses the object and puts the maps of `loaded` into its instructions.
///
/// # Errors
/// If the embedded object is malformed.
pub(crate) fn relocated(object: &[u8], loaded: &Ebpf) -> Result<Object, CaptureError> {
    let failed = |error: String| CaptureError::Multi { what: "the embedded object", error };
    let mut object = Object::parse(object).map_err(|error| failed(error.to_string()))?;
    let maps = object.maps.clone();
    let fds: Vec<(&str, RawFd, &aya_obj::Map)> =
        loaded.maps().filter_map(|(name, map)| Some((name, fd_of(map)?, maps.get(name)?))).collect();
    let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_maps(fds.into_iter(), &sections).map_err(|error| failed(error.to_string()))?;
    object.relocate_calls(&sections).map_err(|error| failed(error.to_string()))?;
    Ok(object)
}

/// Puts the running kernel's BTF ids of kernel functions into call instructions.
fn name_kernel_functions(instructions: &mut [bpf_insn], functions: &Functions) {
    for instruction in instructions {
        if instruction.code == CALL && instruction.src_reg() == 0 {
            let id = match instruction.imm as u32 {
                kfunc::SESSION_IS_RETURN => functions.session_is_return,
                kfunc::SESSION_COOKIE => functions.session_cookie,
                _ => continue,
            };
            instruction.set_src_reg(PSEUDO_KFUNC_CALL);
            instruction.imm = id as i32;
        }
    }
}

impl Program {
    /// Loads one of the object's programs for links of the given shape.
    ///
    /// # Errors
    /// If the object lacks the program, or the kernel refuses it because it is too old for the shape.
    pub(crate) fn load(
        object: &Object,
        name: &'static str,
        shape: Shape,
        functions: &Functions,
    ) -> Result<Self, CaptureError> {
        let program = object.programs.get(name).ok_or(CaptureError::MissingPart(name))?;
        let function =
            object.functions.get(&program.function_key()).ok_or(CaptureError::MissingPart(name))?;
        let mut instructions = function.instructions.clone();
        if shape == Shape::Session {
            name_kernel_functions(&mut instructions, functions);
        }
        let mut prog_name = [0u8; 16];
        let length = name.len().min(prog_name.len() - 1);
        prog_name[..length].copy_from_slice(&name.as_bytes()[..length]);
        let mut log = vec![0u8; LOG_BYTES];
        let mut attr = ProgLoad {
            prog_type: BPF_PROG_TYPE_KPROBE,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: program.license.as_ptr() as u64,
            prog_name,
            expected_attach_type: shape.attach_type(),
            ..ProgLoad::default()
        };
        let fd = bpf(BPF_PROG_LOAD, &attr).or_else(|_| {
            // Once more, for the verifier's reason.
            (attr.log_level, attr.log_size, attr.log_buf) = (1, LOG_BYTES as u32, log.as_mut_ptr() as u64);
            bpf(BPF_PROG_LOAD, &attr)
        });
        let fd = fd.map_err(|source| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
            let said = String::from_utf8_lossy(&log[..end]);
            let last = said.lines().rfind(|line| !line.starts_with("processed")).unwrap_or_default();
            CaptureError::Multi { what: name, error: format!("{source} {last}") }
        })?;
        Ok(Self { fd, shape })
    }

    /// Attaches the program at `points` (offset in the file, cookie) of one file, in one step.
    ///
    /// # Errors
    /// If one of the points cannot be probed; none of them is attached then.
    pub(crate) fn attach(&self, path: &Path, points: &[(u64, u64)]) -> io::Result<OwnedFd> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let offsets: Vec<u64> = points.iter().map(|(offset, _)| *offset).collect();
        let cookies: Vec<u64> = points.iter().map(|(_, cookie)| *cookie).collect();
        let attr = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            attach_type: self.shape.attach_type(),
            path: path.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            cookies: cookies.as_ptr() as u64,
            cnt: points.len() as u32,
            multi_flags: if self.shape == Shape::Return { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
            ..LinkCreate::default()
        };
        bpf(BPF_LINK_CREATE, &attr)
    }
}
