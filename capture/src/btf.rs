//! Offsets of kernel struct fields, read from the running kernel's BTF (format: the kernel's
//! Documentation/bpf/btf.rst). Rust emits no CO-RE relocations, so the loader looks the few fields up
//! itself and patches them into the program as constants.

use std::{collections::HashMap, fmt};

use crate::error::CaptureError;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_FUNC: u32 = 12;

/// Where the fields that the programs read lie in `task_struct`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskOffsets {
    pub(crate) pid: u32,
    pub(crate) tgid: u32,
    pub(crate) comm: u32,
    pub(crate) cpu: u32,
    pub(crate) stack: u32,
    pub(crate) flags: u32,
    pub(crate) exit_code: u32,
    /// Whether the quota of the task's control group took it off its queue; [`ABSENT`] before Linux 6.18.
    pub(crate) throttled: u32,
    /// The task's run queue; [`ABSENT`] in a kernel without quotas.
    pub(crate) queue: u32,
    /// Within the run queue: the number of throttled groups above it.
    pub(crate) queue_throttles: u32,
}

impl fmt::Display for TaskOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, tgid, comm, cpu, stack, flags, exit_code, .. } = self;
        write!(
            f,
            "task_struct has pid at byte {pid}, tgid at {tgid}, comm at {comm}, cpu at {cpu}, stack at {stack}, flags at \
             {flags}, exit_code at {exit_code}; throttling is {}",
            if self.tells_throttling() { "shown" } else { "not shown" }
        )
    }
}

impl TaskOffsets {
    /// Whether this kernel shows that a task was throttled.
    pub(crate) fn tells_throttling(&self) -> bool {
        self.throttled != ABSENT || self.queue != ABSENT
    }
}

/// Offset of a field that the running kernel does not have.
const ABSENT: u32 = u32::MAX;

/// BTF ids of the kernel functions that the programs call; 0 if the running kernel lacks the function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Functions {
    pub(crate) session_is_return: u32,
    pub(crate) session_cookie: u32,
}

/// Reads the ids of kernel functions from the running kernel's BTF.
///
/// # Errors
/// If the kernel has no BTF, or it is malformed.
pub(crate) fn functions() -> Result<Functions, CaptureError> {
    let data = std::fs::read(PATH).map_err(|error| CaptureError::NoBtf(error.to_string()))?;
    let btf = Btf::parse(&data).ok_or_else(|| CaptureError::NoBtf("it is malformed".to_owned()))?;
    let id = |name| btf.functions.get(name).copied().unwrap_or_default();
    Ok(Functions { session_is_return: id("bpf_session_is_return"), session_cookie: id("bpf_session_cookie") })
}

/// Reads the offsets of task fields from the running kernel's BTF.
///
/// # Errors
/// If the kernel has no BTF, it is malformed, or it lacks a field that the programs need.
pub(crate) fn task_offsets() -> Result<TaskOffsets, CaptureError> {
    let data = std::fs::read(PATH).map_err(|error| CaptureError::NoBtf(error.to_string()))?;
    let btf = Btf::parse(&data).ok_or_else(|| CaptureError::NoBtf("it is malformed".to_owned()))?;
    let field =
        |struct_name, field, label| btf.offset(struct_name, field).ok_or(CaptureError::NoField(label));
    // Older kernels keep the CPU in the task itself, newer ones in its embedded thread_info.
    let cpu = match btf.offset("task_struct", "cpu") {
        Some(offset) => offset,
        None => {
            field("task_struct", "thread_info", "task_struct.thread_info")?
                + field("thread_info", "cpu", "thread_info.cpu")?
        }
    };
    // Where the scheduler says that a control group's CPU time is used up. A kernel may have neither.
    let throttled = btf.offset("task_struct", "throttled").unwrap_or(ABSENT);
    let queue = btf.offset("task_struct", "se").zip(btf.offset("sched_entity", "cfs_rq"));
    let queue_throttles = btf.offset("cfs_rq", "throttle_count");
    Ok(TaskOffsets {
        stack: field("task_struct", "stack", "task_struct.stack")?,
        flags: field("task_struct", "flags", "task_struct.flags")?,
        exit_code: field("task_struct", "exit_code", "task_struct.exit_code")?,
        throttled,
        queue: queue.filter(|_| queue_throttles.is_some()).map_or(ABSENT, |(entity, queue)| entity + queue),
        queue_throttles: queue_throttles.unwrap_or(ABSENT),
        pid: field("task_struct", "pid", "task_struct.pid")?,
        tgid: field("task_struct", "tgid", "task_struct.tgid")?,
        comm: field("task_struct", "comm", "task_struct.comm")?,
        cpu,
    })
}

/// Parsed BTF: structs by name with the byte offsets of their members, and functions by name with their id.
struct Btf<'a> {
    structs: HashMap<&'a str, Vec<(&'a str, u32)>>,
    functions: HashMap<&'a str, u32>,
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn string(strings: &[u8], at: u32) -> Option<&str> {
    let rest = strings.get(at as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// Bytes that follow a type's 12-byte head, by kind; `None` for a kind that does not exist.
fn tail_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        2 | 7..=12 | 16 | 18 => 0,
        3 => 12,
        KIND_STRUCT | KIND_UNION | 15 | 19 => 12 * count,
        6 | 13 => 8 * count,
        _ => return None,
    })
}

impl<'a> Btf<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        if data.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let header = u32_at(data, 4)? as usize;
        let part = |offset: usize, len: usize| {
            let start = header.checked_add(u32_at(data, offset)? as usize)?;
            data.get(start..start.checked_add(u32_at(data, len)? as usize)?)
        };
        let types = part(8, 12)?;
        let strings = part(16, 20)?;
        let (mut structs, mut functions) = (HashMap::new(), HashMap::new());
        let mut at = 0;
        // Number 0 is void and not written down.
        let mut id = 0;
        while at < types.len() {
            let (name, info) = (u32_at(types, at)?, u32_at(types, at + 4)?);
            let (kind, count) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let tail = at + 12;
            id += 1;
            if kind == KIND_FUNC {
                functions.insert(string(strings, name)?, id);
            }
            if kind == KIND_STRUCT {
                let bitfields = info >> 31 != 0;
                let members = (0..count)
                    .map(|i| {
                        let offset = u32_at(types, tail + 12 * i + 8)?;
                        let bits = if bitfields { offset & 0xff_ffff } else { offset };
                        Some((string(strings, u32_at(types, tail + 12 * i)?)?, bits / 8))
                    })
                    .collect::<Option<Vec<_>>>()?;
                structs.entry(string(strings, name)?).or_insert(members);
            }
            at = tail + tail_bytes(kind, count)?;
        }
        Some(Self { structs, functions })
    }

    fn offset(&self, struct_name: &str, field: &str) -> Option<u32> {
        let members = self.structs.get(struct_name)?;
        members.iter().find(|(name, _)| *name == field).map(|(_, offset)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_the_fields() {
        if !std::path::Path::new(PATH).exists() {
            assert!(matches!(task_offsets(), Err(CaptureError::NoBtf(_))));
            return;
        }
        let offsets = task_offsets().expect("offsets");
        assert_eq!(offsets.tgid, offsets.pid + 4, "{offsets:?}");
        assert!(offsets.comm > offsets.tgid, "{offsets:?}");
    }

    #[test]
    fn broken_data_is_refused() {
        assert!(Btf::parse(b"").is_none());
        assert!(Btf::parse(&[0; 24]).is_none());
        let mut header = vec![0u8; 24];
        header[..2].copy_from_slice(&MAGIC.to_ne_bytes());
        header[4..8].copy_from_slice(&24u32.to_ne_bytes());
        header[12..16].copy_from_slice(&1000u32.to_ne_bytes());
        assert!(Btf::parse(&header).is_none());
    }
}
