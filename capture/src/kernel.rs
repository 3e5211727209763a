//! The eBPF programs as user space sees them: loading, attaching, maps, ring buffer.

use std::{os::fd::OwnedFd, path::Path};

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, PerCpuArray, RingBuf, StackTraceMap},
    programs::{
        BtfTracePoint, PerfEvent, UProbe,
        perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent},
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
    },
    util::online_cpus,
};
use bytemuck::Pod;
use capture_wire::{COMM_BYTES, Call, OffCpu, Open, READ_WORDS, probe, target};
use clap::ValueEnum;

use crate::{
    btf,
    error::{CaptureError, error_chain},
    multi::{self, Shape},
    probes::{self, process, sched},
};

/// The eBPF programs, built by `capture/ebpf/build.sh`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../ebpf/capture-ebpf.o");

/// Programs that are attached to one function each.
pub(crate) const LIBRARY_LOADED: &str = "library_loaded";
pub(crate) const CUDA_STARTS: &str = "cuda_starts";

const CALL_ENTRY: &str = "call_entry";
const CALL_RETURN: &str = "call_return";
const CALL_SESSION: &str = "call_session";
const CALL_POINT: &str = "call_point";
const CALL_NAMED: &str = "call_named";

const OPEN: usize = size_of::<Open>();
const OFF_CPU: usize = size_of::<OffCpu>();

/// How function probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Method {
    /// The cheapest method that the kernel has: session, else multi, else single
    Auto,
    /// One link per library, one program for entry and return (Linux 6.13)
    Session,
    /// One link per library for entries and one for returns (Linux 6.6)
    Multi,
    /// One link per function for its entry and one for its return
    Single,
}

impl Method {
    /// The method's name, as a run's metadata has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Multi => "multi",
            Self::Single | Self::Auto => "single",
        }
    }
}

/// Settings of the eBPF programs for one recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Size of the ring buffer, in bytes.
    pub(crate) buffer_bytes: u32,
    /// How function probes are attached.
    pub(crate) method: Method,
    /// Number of distinct call stacks that are kept; 0 if none are taken.
    pub(crate) stacks_count: u32,
    /// Duration in nanoseconds from which a call gets its stack.
    pub(crate) slow_ns: u64,
    /// Whether every scheduling slice on every CPU is recorded.
    pub(crate) all_cpus: bool,
    /// Name of the programs that are traced when they are started.
    pub(crate) wait_for: Option<[u8; COMM_BYTES]>,
    /// Whether every process that initialises CUDA is traced.
    pub(crate) all_cuda: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            buffer_bytes: 64 << 20,
            method: Method::Auto,
            stacks_count: 0,
            slow_ns: u64::MAX,
            all_cpus: false,
            wait_for: None,
            all_cuda: false,
        }
    }
}

/// A place in a file for a function probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// Attach cookie: tells the program which function it is on ([`capture_wire::cookie`]).
    pub(crate) cookie: u64,
    /// What the probe reports.
    pub(crate) kind: PointKind,
}

/// What a function probe reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// The probe reports the call, from entry to return.
    Call,
    /// The probe reports the entry.
    Entry,
    /// The probe reports the entry and a string argument.
    Named,
}

/// The loaded programs of the function probes, by method.
enum Functions {
    Session { both: multi::Program, entries: Entries },
    Multi { entry: multi::Program, end: multi::Program, entries: Entries },
    Single,
}

/// Programs that run at entries only.
struct Entries {
    point: multi::Program,
    named: multi::Program,
    library: multi::Program,
    cuda: multi::Program,
}

/// The loaded programs and their maps.
pub(crate) struct Kernel {
    ebpf: Ebpf,
    functions: Functions,
    links: Vec<OwnedFd>,
    targets: HashMap<MapData, u32, u32>,
    lost: PerCpuArray<MapData, u64>,
    open: Array<MapData, [u8; OPEN]>,
    off: HashMap<MapData, u32, [u8; OFF_CPU]>,
    stacks: StackTraceMap<MapData>,
    tells_throttling: bool,
}

fn from_bytes<T: Pod>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(bytes)
}

/// Loads the programs of the function probes, by the given method or, for `Auto`, by the first one that works.
fn load_functions(ebpf: &mut Ebpf, method: Method) -> Result<Functions, CaptureError> {
    let names = btf::functions()?;
    let object = multi::relocated(OBJECT, ebpf)?;
    let load = |name, shape| multi::Program::load(&object, name, shape, &names);
    let entries = || {
        Ok::<_, CaptureError>(Entries {
            point: load(CALL_POINT, Shape::Entry)?,
            named: load(CALL_NAMED, Shape::Entry)?,
            library: load(LIBRARY_LOADED, Shape::Entry)?,
            cuda: load(CUDA_STARTS, Shape::Entry)?,
        })
    };
    let session =
        || Ok(Functions::Session { both: load(CALL_SESSION, Shape::Session)?, entries: entries()? });
    let multi = || {
        Ok(Functions::Multi {
            entry: load(CALL_ENTRY, Shape::Entry)?,
            end: load(CALL_RETURN, Shape::Return)?,
            entries: entries()?,
        })
    };
    let mut single = || {
        for name in [CALL_ENTRY, CALL_RETURN, CALL_POINT, CALL_NAMED, LIBRARY_LOADED, CUDA_STARTS] {
            uprobe_of(ebpf, name)?.load().map_err(|source| CaptureError::Program { name, source })?;
        }
        Ok(Functions::Single)
    };
    match method {
        Method::Auto => session().or_else(|_: CaptureError| multi()).or_else(|_: CaptureError| single()),
        Method::Session => session(),
        Method::Multi => multi(),
        Method::Single => single(),
    }
}

impl Kernel {
    /// Loads the programs without attaching any of them; returns them with their ring buffer.
    ///
    /// # Errors
    /// If this user may not trace, the kernel has no BTF, or it refuses a program or a map.
    pub(crate) fn load(setup: &Setup) -> Result<(Self, RingBuf<MapData>), CaptureError> {
        if !may_trace() {
            return Err(CaptureError::NotPermitted);
        }
        let offsets = btf::task_offsets()?;
        let wait_for = setup.wait_for.unwrap_or_default();
        let mut ebpf = EbpfLoader::new()
            .override_global("TASK_PID", &offsets.pid, true)
            .override_global("TASK_TGID", &offsets.tgid, true)
            .override_global("TASK_COMM", &offsets.comm, true)
            .override_global("TASK_CPU", &offsets.cpu, true)
            .override_global("TASK_STACK", &offsets.stack, true)
            .override_global("TASK_FLAGS", &offsets.flags, true)
            .override_global("TASK_EXIT_CODE", &offsets.exit_code, true)
            .override_global("TASK_THROTTLED", &offsets.throttled, true)
            .override_global("TASK_QUEUE", &offsets.queue, true)
            .override_global("QUEUE_THROTTLES", &offsets.queue_throttles, true)
            .override_global("SLOW_NS", &setup.slow_ns, true)
            .override_global("ALL_CPUS", &u32::from(setup.all_cpus), true)
            .override_global("WAIT_FOR", &wait_for, true)
            .map_max_entries("EVENTS", setup.buffer_bytes)
            .map_max_entries("STACKS", setup.stacks_count.max(1))
            .load(OBJECT)?;
        let functions = load_functions(&mut ebpf, setup.method)?;
        let mut take = |name| ebpf.take_map(name).ok_or(CaptureError::MissingPart(name));
        macro_rules! map {
            ($name:literal, $kind:ident) => {
                $kind::try_from(take($name)?).map_err(|source| CaptureError::Map { name: $name, source })?
            };
        }
        let events = map!("EVENTS", RingBuf);
        let targets = map!("TARGETS", HashMap);
        let lost = map!("LOST", PerCpuArray);
        let open = map!("OPEN", Array);
        let off = map!("OFF", HashMap);
        let stacks = map!("STACKS", StackTraceMap);
        let mut reads: Array<MapData, [u32; READ_WORDS]> = map!("READS", Array);
        for (number, probe) in probes::numbered() {
            if let Some(words) = probe.reads {
                reads.set(number, words, 0).map_err(|source| CaptureError::Map { name: "READS", source })?;
            }
        }
        let tells_throttling = offsets.tells_throttling();
        Ok((
            Self { ebpf, functions, links: Vec::new(), targets, lost, open, off, stacks, tells_throttling },
            events,
        ))
    }

    /// Whether this kernel shows that a control group has used up its CPU quota.
    pub(crate) fn tells_throttling(&self) -> bool {
        self.tells_throttling
    }

    /// How function probes are attached; never `Auto`.
    pub(crate) fn method(&self) -> Method {
        match self.functions {
            Functions::Session { .. } => Method::Session,
            Functions::Multi { .. } => Method::Multi,
            Functions::Single => Method::Single,
        }
    }

    /// Attaches function probes in one file; returns for each point, in order, why the kernel refused it.
    ///
    /// # Errors
    /// If the embedded object lacks a program.
    pub(crate) fn attach_functions(
        &mut self,
        path: &Path,
        points: &[Point],
    ) -> Result<Vec<Option<String>>, CaptureError> {
        let of = |kind| -> Vec<(u64, u64)> {
            points.iter().filter(|point| point.kind == kind).map(|p| (p.offset, p.cookie)).collect()
        };
        let (calls, entries, names) = (of(PointKind::Call), of(PointKind::Entry), of(PointKind::Named));
        // The return first: an entry without it would leave calls open for ever.
        let steps: Vec<(&multi::Program, &[(u64, u64)])> = match &self.functions {
            Functions::Session { both, entries: own } => {
                vec![(both, &calls), (&own.point, &entries), (&own.named, &names)]
            }
            Functions::Multi { entry, end, entries: own } => {
                vec![(end, &calls), (entry, &calls), (&own.point, &entries), (&own.named, &names)]
            }
            Functions::Single => return points.iter().map(|point| self.attach_single(path, point)).collect(),
        };
        let mut refused = Vec::new();
        for (program, places) in steps {
            if places.is_empty() {
                continue;
            }
            match program.attach(path, places) {
                Ok(link) => self.links.push(link),
                // One of them cannot be probed: one by one tells which.
                Err(_) => {
                    for place in places {
                        match program.attach(path, std::slice::from_ref(place)) {
                            Ok(link) => self.links.push(link),
                            Err(error) => refused.push((place.0, error.to_string())),
                        }
                    }
                }
            }
        }
        let why =
            |point: &Point| refused.iter().find(|(at, _)| *at == point.offset).map(|(_, why)| why.clone());
        Ok(points.iter().map(why).collect())
    }

    fn attach_single(&mut self, path: &Path, point: &Point) -> Result<Option<String>, CaptureError> {
        let programs: &[&'static str] = match point.kind {
            PointKind::Call => &[CALL_RETURN, CALL_ENTRY],
            PointKind::Entry => &[CALL_POINT],
            PointKind::Named => &[CALL_NAMED],
        };
        for program in programs {
            if let Some(error) = self.hook(program, path, point.offset, point.cookie)? {
                return Ok(Some(error));
            }
        }
        Ok(None)
    }

    /// Attaches one program at one place; returns why the kernel refused it, if it did.
    ///
    /// # Errors
    /// If the embedded object lacks the program, or it cannot be loaded.
    pub(crate) fn hook(
        &mut self,
        program: &'static str,
        path: &Path,
        offset: u64,
        cookie: u64,
    ) -> Result<Option<String>, CaptureError> {
        if let Functions::Session { entries, .. } | Functions::Multi { entries, .. } = &self.functions {
            let own = match program {
                LIBRARY_LOADED => Some(&entries.library),
                CUDA_STARTS => Some(&entries.cuda),
                _ => None,
            };
            if let Some(own) = own {
                let link = own.attach(path, &[(offset, cookie)]);
                return Ok(link.map(|link| self.links.push(link)).err().map(|error| error.to_string()));
            }
        }
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(offset),
            cookie: Some(cookie),
        };
        let probe = uprobe_of(&mut self.ebpf, program)?;
        if probe.fd().is_err() {
            probe.load().map_err(|source| CaptureError::Program { name: program, source })?;
        }
        let result = probe.attach(point, path, UProbeScope::AllProcesses);
        Ok(result.err().map(|error| error_chain(&error)))
    }

    /// Detaches all function probes at once, so that calls cost nothing any more.
    pub(crate) fn detach_functions(&mut self) {
        self.links.clear();
    }

    /// Attaches the scheduler and process probes: from here on, targets are recorded. Returns a sentence for each
    /// optional probe that this kernel does not have.
    ///
    /// # Errors
    /// If the kernel has no BTF or refuses a required probe.
    pub(crate) fn attach_tracepoints(&mut self) -> Result<Vec<String>, CaptureError> {
        let btf = Btf::from_sys_fs().map_err(|error| CaptureError::NoBtf(error.to_string()))?;
        for name in sched::TRACEPOINTS.iter().chain(process::TRACEPOINTS).copied() {
            let failed = |source| CaptureError::Program { name, source };
            let program = self.ebpf.program_mut(name).ok_or(CaptureError::MissingPart(name))?;
            let program: &mut BtfTracePoint = program.try_into().map_err(failed)?;
            program.load(name, &btf).map_err(failed)?;
            program.attach().map_err(failed)?;
        }
        let mut missing = Vec::new();
        let name = process::OOM_TRACEPOINT;
        let version =
            procfs::KernelVersion::current().map_or((0, 0), |version| (version.major, version.minor));
        if version < process::OOM_SINCE {
            missing.push("out-of-memory kills: this kernel's tracepoint does not name the task".to_owned());
        } else if let Some(Ok(program)) = self.ebpf.program_mut(name).map(<&mut BtfTracePoint>::try_from)
            && let Err(error) = program.load(name, &btf).and_then(|()| program.attach().map(|_| ()))
        {
            missing.push(format!("out-of-memory kills: {}", error_chain(&error)));
        }
        if let Err(error) = self.attach_faults() {
            missing.push(format!("major page faults: {}", error_chain(&error)));
        }
        Ok(missing)
    }

    fn attach_faults(&mut self) -> Result<(), CaptureError> {
        let name = process::FAULT_PROGRAM;
        let failed = |source| CaptureError::Program { name, source };
        let program = self.ebpf.program_mut(name).ok_or(CaptureError::MissingPart(name))?;
        let program: &mut PerfEvent = program.try_into().map_err(failed)?;
        program.load().map_err(failed)?;
        let cpus =
            online_cpus().map_err(|(what, source)| CaptureError::Io { what: what.to_owned(), source })?;
        for cpu in cpus {
            program
                .attach(
                    PerfEventConfig::Software(SoftwareEvent::PageFaultsMaj),
                    PerfEventScope::AllProcessesOneCpu { cpu },
                    SamplePolicy::Period(1),
                    false,
                )
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Makes a process a target from now on, with `flags` of [`capture_wire::target`].
    ///
    /// # Errors
    /// If the map of targets is full.
    pub(crate) fn add_target(&mut self, pid: u32, flags: u32) -> Result<(), CaptureError> {
        self.targets.insert(pid, flags, 0).map_err(|source| CaptureError::Map { name: "TARGETS", source })
    }

    /// Stops tracing a process.
    pub(crate) fn remove_target(&mut self, pid: u32) {
        // It may have gone already, which is just as well.
        let _ = self.targets.remove(&pid);
    }

    /// Whether a process is recorded now.
    pub(crate) fn records(&self, pid: u32) -> bool {
        self.targets.get(&pid, 0).is_ok_and(|flags| flags & target::RECORD != 0)
    }

    /// Process ids of all targets.
    pub(crate) fn targets(&self) -> Vec<u32> {
        self.targets.keys().flatten().collect()
    }

    /// Number of events that one probe has lost so far, over all CPUs.
    ///
    /// # Errors
    /// If the map of counters cannot be read.
    pub(crate) fn lost(&self, probe: u32) -> Result<u64, CaptureError> {
        debug_assert!(probe < probe::COUNT);
        self.lost
            .get(&probe, 0)
            .map(|per_cpu| per_cpu.iter().sum())
            .map_err(|source| CaptureError::Map { name: "LOST", source })
    }

    /// Calls that have not returned, with the index of the slot that each holds.
    pub(crate) fn open_calls(&self) -> Vec<(u32, Call)> {
        self.open
            .iter()
            .zip(0..)
            .filter_map(|(slot, index)| Some((index, from_bytes::<Open>(&slot.ok()?))))
            .filter(|(_, slot)| slot.owner != 0)
            .map(|(index, slot)| (index, slot.call))
            .collect()
    }

    /// Frees the slot of a call that will never return, because its thread is gone.
    pub(crate) fn free_slot(&mut self, index: u32) {
        // A slot that stays taken is one of many.
        let _ = self.open.set(index, [0; OPEN], 0);
    }

    /// Return addresses of a call stack, innermost first; empty if the number is unknown.
    pub(crate) fn stack(&self, id: u32) -> Vec<u64> {
        self.stacks
            .get(&id, 0)
            .map_or_else(|_| Vec::new(), |trace| trace.frames().iter().map(|f| f.ip).collect())
    }

    /// Off-CPU intervals of target threads that have not ended yet.
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
