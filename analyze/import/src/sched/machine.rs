//! Converts scheduler events, in the order of time, to rows: it does what `capture` does in the kernel.
//!
//! ```text
//! thread  ████ switch-out ░░░░ asleep ░░░░ waking ▒▒▒ in a queue ▒▒▒ switch-in ████ switch-out
//!              └──────────────── off_cpu ────────────────────────────┘└─── run ───┘
//! ```
//! Every thread is traced, except for the idle threads. An interval whose end is not recorded is censored: at
//! the end of the recording, when a thread that was off CPU already leaves a CPU again, and when events were
//! lost meanwhile.

use std::collections::{BTreeMap, HashMap};

use trace_schema::{Kind, Lost, ProcessInfo, Row, Run, Text, Thread};
use trace_writer::{Finished, Recorder, WriteError};

use super::state::State;
use crate::limits::{CPUS_COUNT, THREADS_COUNT};

/// Largest number of loss intervals that are kept apart; later losses are added to the last interval.
const MAX_LOST: usize = 1 << 14;
/// Largest difference in ns between times that are each rounded to a microsecond.
const ROUNDING_NS: u64 = 2_000;

/// A thread, as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task<'a> {
    /// Kernel thread id.
    pub(crate) tid: u32,
    /// Name of the thread; empty if it is not stated.
    pub(crate) comm: &'a str,
}

/// An event of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A CPU switches from one thread to another (`sched_switch`).
    Switch {
        /// The thread that leaves; `None` if nothing is known about the CPU before.
        prev: Option<Task<'a>>,
        /// State in which it leaves.
        state: State,
        /// The thread that comes.
        next: Task<'a>,
    },
    /// A thread is about to be woken (`sched_waking`); the event runs on the waker's CPU.
    Waking {
        /// Id of the woken thread.
        tid: u32,
    },
    /// A thread is woken (`sched_wakeup`); the event may run on another CPU than the waker's.
    Wakeup {
        /// Id of the woken thread.
        tid: u32,
        /// CPU whose run queue it is put into, if that is stated.
        cpu: Option<u32>,
    },
    /// A thread is moved to the run queue of another CPU (`sched_migrate_task`).
    Migrate {
        /// Id of the thread.
        tid: u32,
        /// The CPU that it is moved to.
        cpu: u32,
    },
    /// A task is created (`task_newtask` or `sched_process_fork`).
    New {
        /// The new task.
        child: Task<'a>,
        /// `true` for a thread of the process that created it, `false` for a new process, `None` if it is not
        /// stated.
        is_thread: Option<bool>,
    },
    /// A process executes a program (`sched_process_exec`).
    Exec {
        /// Id of the thread that executes it, which is then that of the process.
        tid: u32,
        /// Path of the program.
        file: &'a str,
    },
    /// A thread ends (`sched_process_exit`).
    Exit {
        /// The thread that ends.
        task: Task<'a>,
    },
}

/// Time and place of an event, and what the CPU was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Time in ns.
    pub(crate) ts: i64,
    /// Number of the CPU, if it is stated.
    pub(crate) cpu: Option<u32>,
    /// Id of the current thread, if it is stated.
    pub(crate) tid: Option<u32>,
    /// Process id of the current thread, if it is stated.
    pub(crate) pid: Option<u32>,
    /// `true` if an interrupt caused the event, `false` if the current thread did, `None` if it is not
    /// stated.
    pub(crate) in_interrupt: Option<bool>,
}

/// A scheduling slice of a thread, and its wait before, as `perf sched timehist` reports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice<'a> {
    /// The thread.
    pub(super) task: Task<'a>,
    /// Process id of the thread.
    pub(super) pid: u32,
    /// CPU on which the thread ran.
    pub(super) cpu: u32,
    /// Start of the slice, in ns.
    pub(super) start: i64,
    /// End of the slice, in ns.
    pub(super) end: i64,
    /// How long the thread was off CPU before the slice, in ns.
    pub(super) wait_ns: i64,
    /// Part of that wait after the wakeup, in ns; 0 if no wakeup is recorded.
    pub(super) delay_ns: i64,
    /// State in which the thread left the CPU at the end.
    pub(super) state: State,
}

/// The waker of a thread: what ended its sleep.
#[derive(Clone, Copy, Debug)]
enum Waker {
    Interrupt,
    Task(u32),
}

/// A thread that has left its CPU and has not come back yet.
struct Away {
    ts: i64,
    state: State,
    cpu: Option<u32>,
    next_tid: Option<u32>,
    next_comm: Option<Text>,
    wake_ts: Option<i64>,
    waker: Option<Waker>,
    /// CPU whose run queue the thread is in, as far as events say.
    queue: Option<u32>,
    /// Number of losses before the thread left.
    losses: u64,
}

/// The state of one CPU.
#[derive(Default)]
struct Cpu {
    /// Id of the thread that runs on the CPU, and the start of its scheduling slice in ns.
    current: Option<(u32, i64)>,
    last_ns: i64,
}

/// Number of cases in which the events did not state a fact, by the kind of fact.
#[derive(Default)]
struct Untold {
    returns: u64,
    slices: u64,
    wakers: u64,
    children: u64,
}

/// Tracks threads and CPUs, and writes rows for off-CPU intervals and scheduling slices.
pub(crate) struct Machine {
    recorder: Recorder,
    /// Metadata of the run, to which limits may be added.
    pub(crate) run: Run,
    away: HashMap<u32, Away>,
    cpus: HashMap<u32, Cpu>,
    processes: HashMap<u32, u32>,
    comms: HashMap<u32, Text>,
    span: Option<(i64, i64)>,
    losses: u64,
    switches: u64,
    untold: Untold,
}

impl Machine {
    /// Creates a machine that writes to `recorder`.
    pub(crate) fn new(recorder: Recorder, run: Run) -> Self {
        Self {
            recorder,
            run,
            away: HashMap::new(),
            cpus: HashMap::new(),
            processes: HashMap::from([(0, 0)]),
            comms: HashMap::new(),
            span: None,
            losses: 0,
            switches: 0,
            untold: Untold::default(),
        }
    }

    /// Discards the recording.
    pub(crate) fn discard(self) {
        self.recorder.discard();
    }

    /// Returns the time of the last event in ns; no later one may be earlier.
    pub(crate) fn last_ns(&self) -> Option<i64> {
        self.span.map(|(_, last)| last)
    }

    /// Returns the number of context switches so far.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    /// Returns the reason for which the trace cannot be read on, if it has more threads or CPUs than a machine.
    pub(crate) fn excess(&self) -> Option<String> {
        let threads = self.away.len().max(self.processes.len()).max(self.comms.len());
        if THREADS_COUNT.is_exceeded_by(threads) {
            return Some(THREADS_COUNT.over("the threads up to here are more"));
        }
        CPUS_COUNT.is_exceeded_by(self.cpus.len()).then(|| CPUS_COUNT.over("the CPUs up to here are more"))
    }

    /// Records that the thread `tid` belongs to the process `pid`.
    pub(crate) fn learn(&mut self, tid: u32, pid: u32) {
        self.processes.insert(tid, pid);
    }

    /// Keeps the name of a thread as its last one and returns it. If none is stated, returns the last one.
    pub(crate) fn name(&mut self, task: Task<'_>) -> Option<Text> {
        let known = self.comms.get(&task.tid);
        if task.comm.is_empty() || known.is_some_and(|known| **known == *task.comm) {
            return known.cloned();
        }
        let comm = Text::new(task.comm);
        self.comms.insert(task.tid, comm.clone());
        Some(comm)
    }

    /// Returns whether a name of the thread is known.
    pub(crate) fn is_named(&self, tid: u32) -> bool {
        self.comms.contains_key(&tid)
    }

    /// Returns the process id of a thread; 0 if it is unknown.
    fn process(&self, tid: u32) -> u32 {
        self.processes.get(&tid).copied().unwrap_or_default()
    }

    /// Takes an event that is not earlier than the one before.
    pub(crate) fn event(&mut self, at: &Moment, event: &Event<'_>) -> Result<(), WriteError> {
        self.span = Some(self.span.map_or((at.ts, at.ts), |(first, last)| (first, last.max(at.ts))));
        if let (Some(tid), Some(pid)) = (at.tid, at.pid) {
            self.learn(tid, pid);
        }
        match *event {
            Event::Switch { prev, state, next } => self.switch(at, prev, state, next)?,
            Event::Waking { tid } => self.woken(at, tid, true, None),
            Event::Wakeup { tid, cpu } => self.woken(at, tid, false, cpu),
            Event::Migrate { tid, cpu } => {
                if let Some(queue) = self.away.get_mut(&tid).and_then(|away| away.queue.as_mut()) {
                    *queue = cpu;
                }
            }
            Event::New { child, is_thread } => self.new_task(at, child, is_thread)?,
            Event::Exec { tid, file } => {
                self.learn(tid, tid);
                self.life(at, "exec", tid, Some(Text::new(file)))?;
            }
            Event::Exit { task } => {
                self.name(task);
                self.life(at, "exit", task.tid, None)?;
            }
        }
        if let Some(cpu) = at.cpu {
            self.cpus.entry(cpu).or_default().last_ns = at.ts;
        }
        Ok(())
    }

    fn life(
        &mut self,
        at: &Moment,
        op: &'static str,
        tid: u32,
        detail: Option<Text>,
    ) -> Result<(), WriteError> {
        let row = Row::new(at.ts, Kind::Process, op.into(), self.process(tid), tid);
        self.recorder.push(&Row { comm: self.comms.get(&tid).cloned(), detail, ..row })
    }

    fn new_task(&mut self, at: &Moment, child: Task<'_>, is_thread: Option<bool>) -> Result<(), WriteError> {
        // The thread that had this id before has ended.
        self.away.remove(&child.tid);
        self.name(child);
        match is_thread {
            None => {
                // Another event may have stated the process just before.
                self.untold.children += u64::from(!self.processes.contains_key(&child.tid));
                Ok(())
            }
            Some(true) => {
                let parent = at.tid.map_or(0, |tid| self.process(tid));
                match parent {
                    0 => drop(self.processes.remove(&child.tid)),
                    parent => self.learn(child.tid, parent),
                }
                Ok(())
            }
            Some(false) => {
                self.learn(child.tid, child.tid);
                self.life(at, "fork", child.tid, None)
            }
        }
    }

    fn switch(
        &mut self,
        at: &Moment,
        prev: Option<Task<'_>>,
        state: State,
        next: Task<'_>,
    ) -> Result<(), WriteError> {
        self.switches += 1;
        let comm = prev.and_then(|prev| self.name(prev));
        let next_comm = self.name(next);
        let since = at.cpu.and_then(|cpu| {
            let slot = self.cpus.entry(cpu).or_default();
            slot.current.replace((next.tid, at.ts))
        });
        match (since, at.cpu) {
            (Some((tid, start)), Some(cpu)) if prev.is_some_and(|prev| prev.tid == tid) => {
                if tid != 0 {
                    let row = Row::new(start, Kind::Run, "run".into(), self.process(tid), tid);
                    self.recorder.push(&Row { dur: Some(at.ts - start), comm, cpu: Some(cpu), ..row })?;
                }
            }
            (Some(_), _) => self.untold.slices += 1,
            (None, _) => {}
        }
        if let Some(prev) = prev.filter(|prev| prev.tid != 0) {
            if let Some(open) = self.away.remove(&prev.tid) {
                self.untold.returns += 1;
                self.push(prev.tid, &open, None, None)?;
            }
            if state != State::Dead {
                let away = Away {
                    ts: at.ts,
                    state,
                    cpu: at.cpu,
                    next_tid: Some(next.tid),
                    next_comm,
                    wake_ts: None,
                    waker: None,
                    queue: at.cpu.filter(|_| state == State::Runnable),
                    losses: self.losses,
                };
                self.away.insert(prev.tid, away);
            }
        }
        if next.tid != 0
            && let Some(away) = self.away.remove(&next.tid)
        {
            // The thread may have come back and left again among the lost events.
            let is_whole = away.losses == self.losses;
            self.untold.returns += u64::from(!is_whole);
            self.push(next.tid, &away, is_whole.then_some(at.ts), at.cpu)?;
        }
        Ok(())
    }

    fn woken(&mut self, at: &Moment, tid: u32, is_waker_here: bool, cpu: Option<u32>) {
        let Some(away) = self.away.get_mut(&tid).filter(|away| away.state != State::Runnable) else { return };
        let current = at.cpu.and_then(|cpu| self.cpus.get(&cpu)?.current);
        let waker = at.tid.or(current.map(|(tid, _)| tid));
        if away.wake_ts.is_none() {
            away.wake_ts = Some(at.ts);
            away.waker = match (is_waker_here, at.in_interrupt, waker) {
                (false, _, _) | (true, _, None) => None,
                // The idle thread itself ends no sleep, so an interrupt did.
                (true, Some(true), _) | (true, _, Some(0)) => Some(Waker::Interrupt),
                (true, Some(false), Some(tid)) => Some(Waker::Task(tid)),
                (true, None, Some(_)) => None,
            };
            self.untold.wakers += u64::from(away.waker.is_none());
        }
        away.queue = away.queue.or(cpu);
    }

    /// Takes a scheduling slice that does not end earlier than the one before.
    pub(super) fn slice(&mut self, slice: &Slice<'_>) -> Result<(), WriteError> {
        let Slice { task, start, end, cpu, .. } = *slice;
        self.switches += 1;
        self.span = Some(self.span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        self.learn(task.tid, slice.pid);
        let comm = self.name(task);
        if let Some(mut away) = self.away.remove(&task.tid) {
            // Each of the three times is rounded.
            let is_same = start
                .checked_sub(away.ts)
                .and_then(|away_ns| away_ns.checked_sub(slice.wait_ns))
                .is_some_and(|rest| rest.unsigned_abs() <= ROUNDING_NS);
            let back = start.max(away.ts);
            away.wake_ts = (slice.delay_ns > 0).then(|| back.saturating_sub(slice.delay_ns).max(away.ts));
            self.untold.returns += u64::from(!is_same);
            self.push(task.tid, &away, is_same.then_some(back), Some(cpu))?;
        }
        if end > start {
            let row = Row::new(start, Kind::Run, "run".into(), slice.pid, task.tid);
            self.recorder.push(&Row { dur: Some(end - start), comm, cpu: Some(cpu), ..row })?;
        }
        if slice.state != State::Dead {
            let away = Away {
                ts: end,
                state: slice.state,
                cpu: Some(cpu),
                next_tid: None,
                next_comm: None,
                wake_ts: None,
                waker: None,
                queue: None,
                losses: self.losses,
            };
            self.away.insert(task.tid, away);
        }
        Ok(())
    }

    /// Writes the row of an off-CPU interval, with its end if that is known.
    fn push(
        &mut self,
        tid: u32,
        away: &Away,
        end: Option<i64>,
        in_cpu: Option<u32>,
    ) -> Result<(), WriteError> {
        let in_cpu = in_cpu.filter(|_| end.is_some());
        let is_runnable = away.state == State::Runnable;
        let runnable_from = if is_runnable { Some(away.ts) } else { away.wake_ts };
        // A thread that comes back on a CPU has waited in that CPU's run queue.
        let waited_for = in_cpu.filter(|_| runnable_from.is_some()).or(away.queue);
        let comm = |tid: u32| self.comms.get(&tid).cloned();
        let (waker_pid, waker_tid, waker_comm) = match away.waker {
            None => (None, None, None),
            Some(Waker::Interrupt) => (Some(0), Some(0), None),
            Some(Waker::Task(tid)) => (self.processes.get(&tid).copied(), Some(tid), comm(tid)),
        };
        let row = Row::new(away.ts, Kind::OffCpu, away.state.name().into(), self.process(tid), tid);
        self.recorder.push(&Row {
            dur: end.map(|end| end - away.ts),
            comm: comm(tid),
            cpu: waited_for.or(away.cpu),
            in_cpu,
            runnable_ns: end.zip(runnable_from).map(|(end, from)| end - from),
            waker_pid,
            waker_tid,
            waker_comm,
            next_pid: away.next_tid.and_then(|tid| self.processes.get(&tid).copied()),
            next_tid: away.next_tid,
            next_comm: away.next_comm.clone(),
            ..row
        })
    }

    /// Takes a loss of `count` events, found at `ts`, since the last event of one CPU, or of all if `cpu` is
    /// `None`.
    pub(crate) fn lost(&mut self, ts: i64, cpu: Option<u32>, count: u64) {
        self.losses += 1;
        let first = self.span.map_or(ts, |(first, _)| first);
        let from_ns = match cpu {
            Some(cpu) => self.cpus.remove(&cpu).map_or(first, |cpu| cpu.last_ns),
            None => {
                self.cpus.clear();
                self.span.map_or(ts, |(_, last)| last)
            }
        };
        let is_full = self.run.lost.len() >= MAX_LOST;
        match self.run.lost.last_mut().filter(|_| is_full) {
            Some(last) => {
                last.from_ns = last.from_ns.min(from_ns);
                last.to_ns = last.to_ns.max(ts);
                last.count = last.count.saturating_add(count);
            }
            None => {
                let from_ns = from_ns.min(ts);
                self.run.lost.push(Lost { probe: "off_cpu".to_owned(), from_ns, to_ns: ts, count });
            }
        }
    }

    /// Writes the intervals that are still open, and the run.
    pub(crate) fn finish(mut self) -> Result<Finished, WriteError> {
        let mut open: Vec<_> = std::mem::take(&mut self.away).into_iter().collect();
        open.sort_by_key(|(tid, away)| (away.ts, *tid));
        for (tid, away) in open {
            if let Err(error) = self.push(tid, &away, None, None) {
                self.discard();
                return Err(error);
            }
        }
        let mut run = self.run;
        (run.clock.start_ns, run.clock.end_ns) = self.span.unwrap_or_default();
        run.joined_running = true;
        self.comms.remove(&0);
        let names: BTreeMap<u32, Text> = self.comms.into_iter().collect();
        let of = |tid: u32| self.processes.get(&tid).copied();
        let mut pids: Vec<u32> = names.keys().filter_map(|tid| of(*tid)).filter(|pid| *pid != 0).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut known: HashMap<u32, ProcessInfo> =
            run.processes.drain(..).map(|process| (process.pid, process)).collect();
        let info = |pid| known.remove(&pid).unwrap_or_else(|| ProcessInfo { pid, ..ProcessInfo::default() });
        run.processes = pids.into_iter().map(info).collect();
        let unknown_count = names.keys().filter(|tid| of(**tid).is_none()).count();
        run.threads = names
            .iter()
            .map(|(tid, comm)| Thread {
                pid: of(*tid).unwrap_or_default(),
                tid: *tid,
                comm: comm.to_string(),
            })
            .collect();
        let untold = self.untold;
        let mut say = |count: u64, what: String| {
            if count > 0 {
                run.not_captured.push(what);
            }
        };
        let unknown = format!("the processes of {unknown_count} of {} threads: their pid is 0", names.len());
        say(unknown_count as u64, unknown);
        say(
            untold.wakers,
            format!(
                "who ended {} sleeps: a thread's own deed and an interrupt's during it look the same, or it is not told",
                untold.wakers
            ),
        );
        say(untold.returns, format!("the ends of {} intervals off CPU", untold.returns));
        say(untold.slices, format!("{} slices on CPUs: another thread left than had come", untold.slices));
        say(
            untold.children,
            format!("whether {} new tasks are processes or threads: they have no row", untold.children),
        );
        run.not_captured.extend(
            [
                "calls of CUDA, work of GPUs and memory",
                "the system calls in which threads slept",
                "whether a thread that could go on had to leave because its control group had used up its CPU time",
                "where threads were that were off CPU when the recording began",
            ]
            .map(str::to_owned),
        );
        self.recorder.finish_sorted(&run)
    }
}
