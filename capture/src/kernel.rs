//! The eBPF side as user space sees it: load, tables, ring buffer.

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{HashMap, MapData, PerCpuArray, RingBuf},
    programs::{BtfTracePoint, UProbe},
};
use bytemuck::Pod;
use capture_wire::{Call, OffCpu, OpenKey, probe};

use crate::{
    btf,
    error::CaptureError,
    probes::{process, sched},
};

/// Built by `capture/ebpf/build.sh`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../ebpf/capture-ebpf.o");

/// The generic function probes, by name in the object.
pub(crate) const CALL_ENTRY: &str = "call_entry";
pub(crate) const CALL_RETURN: &str = "call_return";
pub(crate) const CALL_POINT: &str = "call_point";
pub(crate) const LIBRARY_LOADED: &str = "library_loaded";

const OPEN_KEY: usize = size_of::<OpenKey>();
const CALL: usize = size_of::<Call>();
const OFF_CPU: usize = size_of::<OffCpu>();

/// The loaded programs and their tables.
pub(crate) struct Kernel {
    ebpf: Ebpf,
    targets: HashMap<MapData, u32, u32>,
    lost: PerCpuArray<MapData, u64>,
    open: HashMap<MapData, [u8; OPEN_KEY], [u8; CALL]>,
    off: HashMap<MapData, u32, [u8; OFF_CPU]>,
}

fn from_bytes<T: Pod>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(bytes)
}

impl Kernel {
    /// Loads the programs; nothing is attached yet.
    pub(crate) fn load(buffer_bytes: u32) -> Result<(Self, RingBuf<MapData>), CaptureError> {
        if !may_trace() {
            return Err(CaptureError::NotPermitted);
        }
        let offsets = btf::task_offsets()?;
        let mut ebpf = EbpfLoader::new()
            .override_global("TASK_PID", &offsets.pid, true)
            .override_global("TASK_TGID", &offsets.tgid, true)
            .override_global("TASK_COMM", &offsets.comm, true)
            .override_global("TASK_CPU", &offsets.cpu, true)
            .map_max_entries("EVENTS", buffer_bytes)
            .load(OBJECT)?;
        for name in [CALL_ENTRY, CALL_RETURN, CALL_POINT, LIBRARY_LOADED] {
            uprobe_of(&mut ebpf, name)?.load().map_err(|source| CaptureError::Program { name, source })?;
        }
        let mut take = |name| ebpf.take_map(name).ok_or(CaptureError::MissingPart(name));
        macro_rules! map {
            ($name:literal, $kind:ident) => {
                $kind::try_from(take($name)?).map_err(|source| CaptureError::Map { name: $name, source })?
            };
        }
        let events = map!("EVENTS", RingBuf);
        let targets = map!("TARGETS", HashMap);
        let lost = map!("LOST", PerCpuArray);
        let open = map!("OPEN", HashMap);
        let off = map!("OFF", HashMap);
        Ok((Self { ebpf, targets, lost, open, off }, events))
    }

    /// Attaches the scheduler's and the process probes: from here on, targets are recorded.
    pub(crate) fn attach_tracepoints(&mut self) -> Result<(), CaptureError> {
        let btf = Btf::from_sys_fs().map_err(|error| CaptureError::NoBtf(error.to_string()))?;
        for name in sched::TRACEPOINTS.iter().chain(process::TRACEPOINTS).copied() {
            let failed = |source| CaptureError::Program { name, source };
            let program = self.ebpf.program_mut(name).ok_or(CaptureError::MissingPart(name))?;
            let program: &mut BtfTracePoint = program.try_into().map_err(failed)?;
            program.load(name, &btf).map_err(failed)?;
            program.attach().map_err(failed)?;
        }
        Ok(())
    }

    /// One of the function probes.
    pub(crate) fn uprobe(&mut self, name: &'static str) -> Result<&mut UProbe, CaptureError> {
        uprobe_of(&mut self.ebpf, name)
    }

    /// Traces a process from now on. `flags`: [`capture_wire::target`].
    pub(crate) fn add_target(&mut self, pid: u32, flags: u32) -> Result<(), CaptureError> {
        self.targets.insert(pid, flags, 0).map_err(|source| CaptureError::Map { name: "TARGETS", source })
    }

    /// Traces it no more.
    pub(crate) fn remove_target(&mut self, pid: u32) {
        // It may have gone already, which is just as well.
        let _ = self.targets.remove(&pid);
    }

    /// Every traced process.
    pub(crate) fn targets(&self) -> Vec<u32> {
        self.targets.keys().flatten().collect()
    }

    /// Events lost so far by one probe, over all CPUs.
    pub(crate) fn lost(&self, probe: u32) -> Result<u64, CaptureError> {
        debug_assert!(probe < probe::COUNT);
        self.lost
            .get(&probe, 0)
            .map(|per_cpu| per_cpu.iter().sum())
            .map_err(|source| CaptureError::Map { name: "LOST", source })
    }

    /// Calls that have not returned.
    pub(crate) fn open_calls(&self) -> Vec<Call> {
        self.open.iter().flatten().map(|(_, call)| from_bytes(&call)).collect()
    }

    /// Threads that are off CPU.
    pub(crate) fn open_off_cpu(&self) -> Vec<OffCpu> {
        self.off.iter().flatten().map(|(_, off)| from_bytes(&off)).collect()
    }
}

fn uprobe_of<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, CaptureError> {
    ebpf.program_mut(name)
        .ok_or(CaptureError::MissingPart(name))?
        .try_into()
        .map_err(|source| CaptureError::Program { name, source })
}

/// Whether this process holds CAP_SYS_ADMIN, or both CAP_BPF and CAP_PERFMON.
pub(crate) fn may_trace() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    let Ok(status) = procfs::process::Process::myself().and_then(|me| me.status()) else {
        return false;
    };
    let held = |wanted| status.capeff & wanted == wanted;
    held(SYS_ADMIN) || held(PERFMON | BPF)
}
