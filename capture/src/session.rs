//! One recording, from the first probe to the finished file.
//!
//! ```text
//!  ring buffer ─► decode ─► row ─► Recorder          once a second: flush, lost-event counters
//!       └─ exec, library: place probes, let the process run on
//! ```

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    os::fd::{AsRawFd, RawFd},
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use capture_wire::{Process, process};
use trace_schema::{Nanos, Row, Run, Thread};
use trace_writer::{Finished, Recorder};

pub(crate) use crate::launch::Subject;
use crate::{
    attach::Attacher,
    caller::Callers,
    clock,
    decode::{self, Event},
    error::CaptureError,
    host,
    kernel::Kernel,
    launch::{self, Running},
    lost::LostCounters,
    probes::{calls, process as process_probe, sched},
    progress::Progress,
};

/// How long events may wait in the kernel's buffer.
const DRAIN: Duration = Duration::from_millis(50);
/// How much of a recording a kill may cost.
const FLUSH: Duration = Duration::from_secs(1);

/// What to record, and where to.
pub(crate) struct Options {
    pub(crate) out: PathBuf,
    pub(crate) subject: Subject,
    pub(crate) duration: Option<Nanos>,
    pub(crate) force: bool,
    pub(crate) buffer_bytes: u32,
    pub(crate) progress: bool,
}

/// How it went.
#[derive(Debug)]
pub(crate) struct Outcome {
    out: PathBuf,
    finished: Finished,
    lost: u64,
    libraries: usize,
    status: Option<ExitStatus>,
}

impl Outcome {
    /// Whether a traced command ended by itself, and not well.
    pub(crate) fn command_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finished { rows_count, size_bytes } = self.finished;
        let size = trace_schema::Bytes(size_bytes as i64);
        write!(f, "capture: {rows_count} events, {size}, {} lost: {}", self.lost, self.out.display())?;
        if self.libraries == 0 {
            write!(f, "\ncapture: no CUDA library was loaded: there are no calls in this run")?;
        }
        match self.status {
            Some(status) if !status.success() => write!(f, "\ncapture: the command ended with {status}"),
            _ => Ok(()),
        }
    }
}

/// Everything a recording carries along.
struct Session {
    kernel: Kernel,
    recorder: Recorder,
    attacher: Attacher,
    callers: Callers,
    lost: LostCounters,
    threads: BTreeMap<(u32, u32), String>,
    rows: u64,
}

/// Records until the command ends, the time is up or a signal comes.
///
/// # Errors
/// If this machine cannot trace, the subject does not exist, or the file cannot be written. What was
/// flushed before then stays in the recording.
pub(crate) fn record(options: Options) -> Result<Outcome, CaptureError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|source| CaptureError::Io { what: "signal handler".to_owned(), source })?;
    }
    let (kernel, mut events) = Kernel::load(options.buffer_bytes)?;
    let run = describe(&options.subject);
    let recorder = Recorder::create(&options.out, options.force, &run)?;
    let mut session = Session {
        kernel,
        recorder,
        attacher: Attacher::default(),
        callers: Callers::default(),
        lost: LostCounters::new(run.clock.start_ns),
        threads: BTreeMap::new(),
        rows: 0,
    };
    let started = session.begin(&options.subject);
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            session.recorder.discard();
            return Err(error);
        }
    };
    let mut progress = Progress::new(options.progress);
    let deadline = options.duration.map(|Nanos(ns)| Instant::now() + Duration::from_nanos(ns as u64));
    let stop = || interrupted.load(Ordering::Relaxed) || deadline.is_some_and(|at| Instant::now() >= at);
    let status = match session.follow(&mut events, &mut running, &mut progress, stop) {
        Ok(status) => status,
        Err(error) => {
            // One of them may be stopped for probes that nobody will place now.
            session.kernel.targets().into_iter().for_each(launch::resume);
            return Err(error);
        }
    };
    progress.say("writing the file");
    let outcome = session.finish(&mut events, run, options.out, status);
    progress.finish();
    outcome
}

/// What is known before the first event.
fn describe(subject: &Subject) -> Run {
    Run {
        producer: concat!("inquest capture ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: subject.describe(),
        joined_running: matches!(subject, Subject::Processes(_)),
        host: host::host(),
        gpus: host::gpus(),
        clock: clock::start(),
        lost_is_counted: true,
        not_captured: vec![
            "GPU-side execution: kernels and copies on the device have no rows".to_owned(),
            "runtime calls through a private copy of the CUDA runtime, as cuBLASLt and cuDNN have: only their \
             driver calls have rows, with that library as caller"
                .to_owned(),
            "GPU counters (NVML): memory in use, utilisation, clocks".to_owned(),
            "call stacks".to_owned(),
        ],
        ..Run::default()
    }
}

/// Sleeps until the buffer has much to say, or the time is over.
fn wait(events: RawFd, timeout: Duration) {
    let mut poll = libc::pollfd { fd: events, events: libc::POLLIN, revents: 0 };
    #[expect(unsafe_code, reason = "poll has no safe interface in the standard library")]
    // SAFETY: one valid pollfd, and its count. An interrupted wait is as good as a finished one.
    unsafe {
        libc::poll(&raw mut poll, 1, timeout.as_millis() as libc::c_int);
    }
}

impl Session {
    fn begin(&mut self, subject: &Subject) -> Result<Running, CaptureError> {
        self.kernel.attach_tracepoints()?;
        let running = Running::start(subject, &mut self.kernel)?;
        if let Running::Attached(pids) = &running {
            for pid in pids {
                self.libraries_of(*pid, clock::monotonic_ns())?;
            }
        }
        Ok(running)
    }

    /// Records until there is nothing left to trace or `stop` says so; the command's status if it ended.
    fn follow(
        &mut self,
        events: &mut RingBuf<MapData>,
        running: &mut Running,
        progress: &mut Progress,
        stop: impl Fn() -> bool,
    ) -> Result<Option<ExitStatus>, CaptureError> {
        let mut flushed = Instant::now();
        loop {
            self.drain(events)?;
            if let Some(status) = running.ended()? {
                return Ok(status);
            }
            if stop() {
                return Ok(None);
            }
            if flushed.elapsed() >= FLUSH {
                self.lost.read(&self.kernel, clock::monotonic_ns())?;
                self.recorder.flush()?;
                flushed = Instant::now();
            }
            progress.update(self.rows, self.recorder.size_bytes(), self.lost.total());
            wait(events.as_raw_fd(), DRAIN);
        }
    }

    fn push(&mut self, row: &Row) -> Result<(), CaptureError> {
        self.rows += 1;
        Ok(self.recorder.push(row)?)
    }

    /// Takes everything out of the kernel's buffer.
    fn drain(&mut self, events: &mut RingBuf<MapData>) -> Result<(), CaptureError> {
        while let Some(item) = events.next() {
            let event = decode::decode(&item)?;
            drop(item);
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), CaptureError> {
        match event {
            Event::Call(call) => match calls::row(&call, false, &mut self.callers) {
                Some(row) => self.push(&row),
                None => Ok(()),
            },
            Event::OffCpu(off) => {
                self.name_thread(off.pid, off.tid, &off.comm);
                self.push(&sched::off_cpu_row(&off, false))
            }
            Event::Run(run) => self.push(&sched::run_row(&run)),
            Event::Process(event) => self.process(&event),
        }
    }

    fn name_thread(&mut self, pid: u32, tid: u32, comm: &[u8]) {
        let known = self.threads.entry((pid, tid)).or_default();
        let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
        if known.as_bytes() != &comm[..end] {
            *known = decode::comm(comm);
        }
    }

    fn process(&mut self, event: &Process) -> Result<(), CaptureError> {
        if event.what != process::FORK {
            self.name_thread(event.pid, event.tid, &event.comm);
        }
        let detail = (event.what == process::EXEC).then(|| command_line(event.pid)).flatten();
        if let Some(row) = process_probe::row(event, detail) {
            self.push(&row)?;
        }
        match event.what {
            process::EXEC | process::LIBRARY => {
                let attached = self.libraries_of(event.pid, event.ts as i64);
                // Whatever went wrong, a stopped process must not stay so.
                if event.stopped != 0 {
                    launch::resume(event.pid);
                }
                attached
            }
            process::EXIT => {
                if event.pid == event.tid && is_gone(event.pid) {
                    self.kernel.remove_target(event.pid);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn libraries_of(&mut self, pid: u32, ts_ns: i64) -> Result<(), CaptureError> {
        let new = self.attacher.attach(&mut self.kernel, pid)?;
        if new.is_empty() {
            self.callers.mark_stale(pid);
        } else {
            self.callers.refresh(pid);
        }
        for path in new {
            self.push(&process_probe::library_row(ts_ns, pid, &path))?;
        }
        Ok(())
    }

    /// Ends recording: no new events, the last ones out, open spans as censored rows, the file.
    fn finish(
        mut self,
        events: &mut RingBuf<MapData>,
        mut run: Run,
        out: PathBuf,
        status: Option<ExitStatus>,
    ) -> Result<Outcome, CaptureError> {
        for pid in self.kernel.targets() {
            self.name_living_threads(pid);
            self.kernel.remove_target(pid);
        }
        run.clock.end_ns = clock::monotonic_ns();
        // Read what is open before the last drain: what returns in between is then known to be whole.
        let open_calls = self.kernel.open_calls();
        let open_off = self.kernel.open_off_cpu();
        let mut closed = HashSet::new();
        while let Some(item) = events.next() {
            let event = decode::decode(&item)?;
            drop(item);
            match &event {
                Event::Call(call) => closed.insert((call.tid, call.ts)),
                Event::OffCpu(off) => closed.insert((off.tid, off.out_ts)),
                _ => false,
            };
            self.handle(event)?;
        }
        for call in open_calls.iter().filter(|call| !closed.contains(&(call.tid, call.ts))) {
            if let Some(row) = calls::row(call, true, &mut self.callers) {
                self.push(&row)?;
            }
        }
        for off in open_off.iter().filter(|off| !closed.contains(&(off.tid, off.out_ts))) {
            self.push(&sched::off_cpu_row(off, true))?;
        }
        self.lost.read(&self.kernel, clock::monotonic_ns())?;
        let lost = self.lost.total();
        let libraries = self.attacher.libraries.len();
        run.libraries = self.attacher.libraries;
        run.probes = self.attacher.probes;
        run.lost = self.lost.into_lost();
        run.threads = self.threads.into_iter().map(|((pid, tid), comm)| Thread { pid, tid, comm }).collect();
        let finished = self.recorder.finish(&run)?;
        Ok(Outcome { out, finished, lost, libraries, status })
    }

    fn name_living_threads(&mut self, pid: u32) {
        let tasks = procfs::process::Process::new(pid as i32).and_then(|process| process.tasks());
        for task in tasks.into_iter().flatten().flatten() {
            if let Ok(stat) = task.stat() {
                self.name_thread(pid, task.tid as u32, stat.comm.as_bytes());
            }
        }
    }
}

fn command_line(pid: u32) -> Option<String> {
    let words = procfs::process::Process::new(pid as i32).and_then(|process| process.cmdline()).ok()?;
    Some(words.join(" "))
}

/// Whether a process has no thread left but its ending leader.
fn is_gone(pid: u32) -> bool {
    procfs::process::Process::new(pid as i32)
        .and_then(|process| process.tasks())
        .map_or(true, |tasks| tasks.flatten().all(|task| task.tid as u32 == pid))
}
