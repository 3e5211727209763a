//! One recording, from the first probe to the finished file.
//!
//! ```text
//!  ring buffer ─► decode ─► row ─► Recorder          twice a second: flush, lost-event counters, counters
//!       └─ exec, library: place probes, let the process run on
//! ```

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsRawFd, RawFd},
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use capture_wire::{Call, NO_STACK, Name, Process, process};
use trace_schema::{Kind, Nanos, Redaction, Row, Run, Text};
use trace_writer::Parts;

use crate::{
    attach::{self, Attacher, Found},
    caller::Callers,
    cgroup::{self, Throttling},
    clock,
    decode::{self, Event},
    describe,
    error::{CaptureError, say},
    host,
    kernel::{Kernel, Method, Setup},
    known::Known,
    launch::{self, Running},
    lost::LostCounters,
    mark_socket::MarkSocket,
    nvml::Sampler,
    options::{Options, Subject},
    outcome::{Outcome, untraced_marks},
    privileges::{self, Needs},
    probes::{self, calls, marks, process as process_probe, sched},
    progress::Progress,
    stacks::Stacks,
    torch_version,
};

/// How long events may wait in the ring buffer.
const DRAIN: Duration = Duration::from_millis(50);
/// Number of events after which a reader that cannot keep up does other work: flushing must not wait for an empty buffer.
const AT_ONCE: usize = 1 << 14;
/// Interval between two flushes: what a kill may cost, besides the events in the ring buffer.
const FLUSH: Duration = Duration::from_millis(500);
/// Interval at which memory of ended processes is freed.
const SWEEP: Duration = Duration::from_secs(5);
/// How long a continued process is watched for a stop that was left behind.
const RESUMED: Duration = Duration::from_secs(3);
/// Number of datagrams with marks after which the ring buffer comes next.
const MARKS_AT_ONCE: usize = 256;
/// Number of distinct call stacks that are kept.
const STACKS_COUNT: u32 = 1 << 16;

/// The state of a recording.
struct Session {
    kernel: Kernel,
    recorder: Parts,
    run: Run,
    attacher: Attacher,
    callers: Callers,
    stacks: Stacks,
    marks: marks::Marks,
    socket: Option<MarkSocket>,
    /// Number of datagrams that came from processes that are not traced.
    untraced_count: u64,
    sampler: Option<Sampler>,
    throttling: Throttling,
    lost: LostCounters,
    known: Known,
    redaction: Redaction,
    /// Processes that were stopped while probes were placed, and when they were continued.
    resumed: HashMap<u32, Instant>,
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
    let stacks_count = if options.stacks.any() { STACKS_COUNT } else { 0 };
    let setup = Setup { stacks_count, ..options.setup };
    let (kernel, mut events) = Kernel::load(&setup)?;
    let needs = needs(&options, kernel.method());
    privileges::drop_unneeded(needs);
    // What is at the path that the user named is looked at before anything is written.
    let socket = open_socket(&options)?;
    let sampler = options.nvml.map(|Nanos(ns)| {
        Sampler::start(Duration::from_nanos(ns as u64), move || privileges::cut_thread(needs))
    });
    let run = describe::run(&options, &kernel, sampler.as_ref());
    let create = || Parts::create(&options.out, options.force, options.max_size, &run);
    let recorder = privileges::on_cut_thread(needs, create)?;
    let mut session = Session {
        kernel,
        recorder,
        attacher: Attacher::new(options.profile, options.without.clone(), options.stacks, setup.all_cuda),
        callers: Callers::default(),
        stacks: Stacks::default(),
        marks: marks::Marks::default(),
        socket,
        untraced_count: 0,
        sampler: sampler.and_then(Result::ok),
        throttling: Throttling::default(),
        lost: LostCounters::new(run.clock.start_ns),
        known: Known::default(),
        redaction: options.redaction.clone(),
        resumed: HashMap::new(),
        rows: 0,
        run,
    };
    let started = session.begin(&options);
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            session.recorder.discard();
            return Err(error);
        }
    };
    session.recorder.begun()?;
    let failed = privileges::confine(needs).into_iter();
    failed.for_each(|failed| say(&format!("capture: a restriction of the recorder is missing: {failed}")));
    if !options.quiet && matches!(options.subject, Subject::AllCuda) {
        say(&format!("capture: {}", launch::announce_all_cuda(options.duration)));
    }
    let mut progress = Progress::new(options.progress);
    let deadline = options.duration.map(|Nanos(ns)| Instant::now() + Duration::from_nanos(ns as u64));
    let stop = || interrupted.load(Ordering::Relaxed) || deadline.is_some_and(|at| Instant::now() >= at);
    let status = match session.follow(&mut events, &mut running, &mut progress, stop) {
        Ok(status) => status,
        Err(error) => {
            session.release();
            return Err(error);
        }
    };
    progress.say("writing the file");
    let outcome = session.finish(&mut events, options.out, status);
    progress.finish();
    outcome
}

/// What decides which capabilities this recording keeps.
fn needs(options: &Options, method: Method) -> Needs {
    let is_foreign = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        !privileges::owns(folder.unwrap_or(Path::new(".")))
    };
    Needs {
        stops: matches!(options.subject, Subject::Command(_) | Subject::Name(_)),
        single: method == Method::Single,
        foreign_folder: is_foreign(&options.out) || options.marks.as_deref().is_some_and(is_foreign),
        gives_files: trace_writer::sudo_caller().is_some(),
    }
}

/// Opens the socket that the user named, or one for a command; without both there is none.
fn open_socket(options: &Options) -> Result<Option<MarkSocket>, CaptureError> {
    match &options.marks {
        Some(path) => MarkSocket::open_at(path).map(Some),
        None if matches!(options.subject, Subject::Command(_)) => MarkSocket::open_own().map(Some),
        None => Ok(None),
    }
}

/// Sleeps until the ring buffer wakes its reader, a mark has come, or the time is over.
pub(crate) fn wait(events: RawFd, marks: Option<RawFd>, timeout: Duration) {
    let pollfd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // A negative descriptor is ignored.
    let mut polls = [pollfd(events), pollfd(marks.unwrap_or(-1))];
    #[expect(unsafe_code, reason = "poll has no safe interface in the standard library")]
    // SAFETY: valid pollfds, and their count. An interrupted wait is as good as a finished one.
    unsafe {
        libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout.as_millis() as libc::c_int);
    }
}

impl Session {
    fn begin(&mut self, options: &Options) -> Result<Running, CaptureError> {
        self.run.not_captured.extend(self.kernel.attach_tracepoints()?);
        let marks = self.socket.as_ref().map(MarkSocket::path);
        let running = Running::start(&options.subject, &mut self.kernel, marks)?;
        let now_ns = clock::monotonic_ns();
        match &running {
            Running::Attached(pids) => {
                for pid in pids {
                    self.libraries_of(*pid, now_ns)?;
                }
            }
            Running::Unbounded => {
                match host::driver_library() {
                    Some(driver) => self.attacher.watch_driver(&mut self.kernel, &driver)?,
                    None => self.run.not_captured.push(
                        "processes that began to use CUDA before any other did: libcuda.so.1 is in none of the \
                         usual places"
                            .to_owned(),
                    ),
                }
                for pid in launch::every_pid().filter(|pid| attach::uses_cuda(*pid)) {
                    self.kernel
                        .add_target(pid, capture_wire::target::RECORD | capture_wire::target::FOLLOW)?;
                    self.libraries_of(pid, now_ns)?;
                }
            }
            Running::Spawned(_) | Running::Awaited(_) => {}
        }
        Ok(running)
    }

    /// Records until there is nothing left to trace or `stop` is true; returns the command's status if it ended.
    fn follow(
        &mut self,
        events: &mut RingBuf<MapData>,
        running: &mut Running,
        progress: &mut Progress,
        stop: impl Fn() -> bool,
    ) -> Result<Option<ExitStatus>, CaptureError> {
        let (mut flushed, mut swept) = (Instant::now(), Instant::now());
        loop {
            let emptied = self.drain(events, |_| ())?;
            self.push_marks(MARKS_AT_ONCE)?;
            if let Some(status) = running.ended(&self.kernel)? {
                return Ok(status);
            }
            if stop() {
                return Ok(None);
            }
            if flushed.elapsed() >= FLUSH {
                self.tick()?;
                flushed = Instant::now();
            }
            if emptied && swept.elapsed() >= SWEEP {
                self.sweep()?;
                swept = Instant::now();
            }
            if self.recorder.is_full() {
                self.next_part()?;
            }
            progress.update(self.rows, self.recorder.size_bytes(), self.lost.total());
            if emptied {
                wait(events.as_raw_fd(), self.socket.as_ref().map(MarkSocket::fd), DRAIN);
            }
        }
    }

    /// Stops tracing every process, and continues those that are stopped for probes that will not be placed any
    /// more. Returns the processes.
    fn release(&mut self) -> Vec<u32> {
        let pids = self.kernel.targets();
        for pid in &pids {
            self.kernel.remove_target(*pid);
        }
        for pid in pids.iter().filter(|pid| launch::is_stopped(**pid)) {
            launch::resume(*pid);
        }
        pids
    }

    /// The work that is done twice a second: counters, flush, processes that a stop was left behind in.
    fn tick(&mut self) -> Result<(), CaptureError> {
        let now_ns = clock::monotonic_ns();
        self.lost.read(&self.kernel, self.marks.lost_count(), now_ns)?;
        self.push_samples(now_ns)?;
        // Two threads that stop their process at once could leave one stop behind.
        self.resumed.retain(|_, since| since.elapsed() < RESUMED);
        self.resumed.keys().filter(|pid| launch::is_stopped(**pid)).for_each(|pid| launch::resume(*pid));
        Ok(self.recorder.flush()?)
    }

    /// Frees the state of processes that are gone, so that a recorder can run for months. Their last events have
    /// been read.
    fn sweep(&mut self) -> Result<(), CaptureError> {
        let is_alive = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
        let mut gone: HashSet<u32> = self.callers.pids().filter(|pid| !is_alive(*pid)).collect();
        gone.extend(self.kernel.targets().into_iter().filter(|pid| !is_alive(*pid)));
        gone.extend(self.marks.pids().filter(|pid| !is_alive(*pid)));
        if gone.is_empty() {
            return Ok(());
        }
        self.push_waiting_marks()?;
        for (slot, call) in self.kernel.open_calls() {
            if gone.contains(&call.pid) {
                self.call(&call, true)?;
                self.kernel.free_slot(slot);
            }
        }
        for pid in &gone {
            self.kernel.remove_target(*pid);
            self.callers.forget(*pid);
        }
        self.known.forget_kernels(&gone);
        let rows: Vec<Row> = gone.iter().flat_map(|pid| self.marks.end(*pid)).collect();
        rows.iter().try_for_each(|row| self.push(row))
    }

    /// Begins the next part. The finished one has the metadata known by now; the next one needs living processes only.
    fn next_part(&mut self) -> Result<(), CaptureError> {
        let run = self.metadata();
        self.recorder.next(&run)?;
        self.lost.start_over();
        self.known.start_over(&self.kernel.targets().into_iter().collect());
        Ok(())
    }

    fn push_samples(&mut self, now_ns: i64) -> Result<(), CaptureError> {
        let mut rows = self.throttling.rows(now_ns);
        rows.extend(self.sampler.iter().flat_map(Sampler::rows));
        rows.iter().try_for_each(|row| self.push(row))
    }

    /// Records the marks of at most `at_most` datagrams that wait, if they are of processes that are recorded now.
    fn push_marks(&mut self, at_most: usize) -> Result<(), CaptureError> {
        for _ in 0..at_most {
            let Some(message) = self.socket.as_ref().and_then(MarkSocket::receive) else {
                return Ok(());
            };
            if !self.kernel.records(message.pid) {
                self.untraced_count += 1;
                continue;
            }
            let mut text = message.text.as_str();
            if message.is_cut {
                // The last line is not whole.
                text = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
                self.marks.lose(1);
            }
            for line in text.lines() {
                if let Some(row) = self.marks.line(message.ts_ns, message.pid, line) {
                    self.push(&row)?;
                }
            }
        }
        Ok(())
    }

    /// Records all marks that have been sent. A process that is not recorded any more is not heard.
    fn push_waiting_marks(&mut self) -> Result<(), CaptureError> {
        self.push_marks(self.socket.as_ref().map_or(0, MarkSocket::queue_count))
    }

    fn push(&mut self, row: &Row) -> Result<(), CaptureError> {
        self.rows += 1;
        Ok(self.recorder.push(row)?)
    }

    /// Handles events of the ring buffer, at most [`AT_ONCE`]; `look` sees each one first. Returns whether the
    /// buffer is empty.
    fn drain(
        &mut self,
        events: &mut RingBuf<MapData>,
        mut look: impl FnMut(&Event),
    ) -> Result<bool, CaptureError> {
        for _ in 0..AT_ONCE {
            let Some(item) = events.next() else {
                return Ok(true);
            };
            let event = decode::decode(&item)?;
            drop(item);
            look(&event);
            self.handle(event)?;
        }
        Ok(false)
    }

    fn handle(&mut self, event: Event) -> Result<(), CaptureError> {
        match event {
            Event::Call(call) => self.call(&call, false),
            Event::OffCpu(off) => {
                self.known.name_thread(off.pid, off.tid, &off.comm);
                self.push(&sched::off_cpu_row(&off, false))
            }
            Event::Run(run) => self.push(&sched::run_row(&run)),
            Event::Process(event) => self.process(&event),
            Event::Name(name) => self.name(&name),
            Event::Fault(fault) => self.push(&process_probe::fault_row(&fault)),
        }
    }

    fn call(&mut self, call: &Call, censored: bool) -> Result<(), CaptureError> {
        let mut stack = None;
        if call.stack_id != NO_STACK {
            let id = call.stack_id as u32;
            let (number, first) = self.stacks.number(call, id, &self.kernel, &mut self.callers);
            stack = Some(number);
            if let Some(row) = first {
                self.push(&row)?;
            }
        }
        if !self.known.has_no_kernel()
            && let Some(func) = calls::launched(call)
            && let Some(name) = self.known.take_kernel(call.pid, func)
        {
            self.push(&kernel_name(call.ts as i64, call.pid, call.tid, func, name))?;
        }
        self.rows += 1;
        Ok(self.recorder.push_with(|rows| calls::write(call, censored, stack, &mut self.callers, rows))?)
    }

    fn name(&mut self, event: &Name) -> Result<(), CaptureError> {
        let Some(probe) = probes::by_number(u32::from(event.probe)) else {
            return Ok(());
        };
        match probe.event {
            probes::Event::Mark(kind) => match self.marks.nvtx(kind, event) {
                Some(row) => self.push(&row),
                None => Ok(()),
            },
            // Tens of thousands are registered, few are launched.
            probes::Event::KernelName => {
                self.known.add_kernel(event.pid, event.handle, marks::text(event));
                Ok(())
            }
            _ if event.handle == 0 || event.length == 0 => Ok(()),
            _ => self.push(&kernel_name(
                event.ts as i64,
                event.pid,
                event.tid,
                event.handle,
                marks::text(event),
            )),
        }
    }

    fn process(&mut self, event: &Process) -> Result<(), CaptureError> {
        if event.what != process::FORK {
            self.known.name_thread(event.pid, event.tid, &event.comm);
        }
        let detail = (event.what == process::EXEC).then(|| self.get_to_know(event.pid)).flatten();
        if let Some(row) = process_probe::row(event, detail) {
            self.push(&row)?;
        }
        match event.what {
            process::EXEC | process::LIBRARY => {
                let attached = self.libraries_of(event.pid, event.ts as i64);
                // Whatever went wrong, a stopped process must not stay so.
                if event.stopped != 0 {
                    launch::resume(event.pid);
                    self.resumed.insert(event.pid, Instant::now());
                }
                attached
            }
            process::EXIT => {
                if event.pid == event.tid && is_gone(event.pid) {
                    self.push_waiting_marks()?;
                    self.kernel.remove_target(event.pid);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Notes the description of a process, and returns its command line.
    fn get_to_know(&mut self, pid: u32) -> Option<String> {
        let mut info = cgroup::describe(pid);
        info.command = self.redaction.words(&info.command);
        self.throttling.watch(pid);
        let command = (!info.command.is_empty()).then(|| info.command.join(" "));
        // One that is gone already tells nothing; what was known before is better.
        if command.is_some() || !self.known.has_process(pid) {
            self.known.add_process(pid, info);
        }
        command
    }

    fn libraries_of(&mut self, pid: u32, ts_ns: i64) -> Result<(), CaptureError> {
        if !self.known.has_process(pid) {
            self.get_to_know(pid);
        }
        let Found { new, allocator } = self.attacher.attach(&mut self.kernel, pid)?;
        if let Some(library) = allocator
            && let Some(process) = self.known.process(pid)
            && process.torch_version.is_empty()
        {
            process.torch_version = torch_version::beside(pid, &library);
        }
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

    /// The metadata as it is known now.
    fn metadata(&self) -> Run {
        let mut run = self.run.clone();
        run.not_captured.extend(untraced_marks(self.untraced_count));
        run.clock.end_ns = clock::monotonic_ns();
        run.clock.wall_step_ns = clock::wall_offset_ns() - run.clock.wall_offset_ns;
        clock::note_kept(&mut run.clock);
        run.libraries.clone_from(&self.attacher.libraries);
        run.probes.clone_from(&self.attacher.probes);
        run.lost = self.lost.lost().to_vec();
        self.known.describe(&mut run);
        run
    }

    /// Ends the recording: detaches the probes, reads the last events, writes open spans as censored rows, and
    /// finishes the file.
    fn finish(
        mut self,
        events: &mut RingBuf<MapData>,
        out: PathBuf,
        status: Option<ExitStatus>,
    ) -> Result<Outcome, CaptureError> {
        self.push_waiting_marks()?;
        // What comes now is sent after the recording.
        self.socket = None;
        for pid in self.release() {
            self.name_living_threads(pid);
        }
        let end_ns = clock::monotonic_ns();
        self.kernel.detach_functions();
        // Read what is open before the last drain: what returns in between is then known to be whole.
        let open_calls = self.kernel.open_calls();
        let open_off = self.kernel.open_off_cpu();
        let mut closed = HashSet::new();
        let mut look = |event: &Event| {
            match event {
                Event::Call(call) => closed.insert((call.tid, call.ts)),
                Event::OffCpu(off) => closed.insert((off.tid, off.out_ts)),
                _ => false,
            };
        };
        while !self.drain(events, &mut look)? {}
        self.push_samples(end_ns)?;
        for (_, call) in open_calls.iter().filter(|(_, call)| !closed.contains(&(call.tid, call.ts))) {
            self.call(call, true)?;
        }
        for off in open_off.iter().filter(|off| !closed.contains(&(off.tid, off.out_ts))) {
            self.push(&sched::off_cpu_row(off, true))?;
        }
        let marks_lost_count = self.marks.lost_count();
        let marks = std::mem::take(&mut self.marks).open();
        let (stacks, cut) = std::mem::take(&mut self.stacks).named(end_ns);
        self.run.not_captured.extend(cut);
        marks.iter().chain(&stacks).try_for_each(|row| self.push(row))?;
        self.lost.read(&self.kernel, marks_lost_count, clock::monotonic_ns())?;
        let (lost, libraries) = (self.lost.total(), self.attacher.libraries.len());
        let mut run = self.metadata();
        run.clock.end_ns = end_ns;
        let finished = self.recorder.finish(&run)?;
        Ok(Outcome { out, finished, lost, untraced_count: self.untraced_count, libraries, status })
    }

    fn name_living_threads(&mut self, pid: u32) {
        let tasks = procfs::process::Process::new(pid as i32).and_then(|process| process.tasks());
        for task in tasks.into_iter().flatten().flatten() {
            if let Ok(stat) = task.stat() {
                self.known.name_thread(pid, task.tid as u32, stat.comm.as_bytes());
            }
        }
    }
}

fn kernel_name(ts_ns: i64, pid: u32, tid: u32, func: u64, name: Text) -> Row {
    Row { func: Some(func), detail: Some(name), ..Row::new(ts_ns, Kind::Name, "kernel".into(), pid, tid) }
}

/// Whether a process has ended. One whose leader ended before its other threads has not; the sweep finds it later.
fn is_gone(pid: u32) -> bool {
    procfs::process::Process::new(pid as i32)
        .and_then(|process| process.stat())
        .map_or(true, |stat| matches!(stat.state, 'Z' | 'X'))
}
