//! `run_time`: what the wall time of each process that made CUDA calls was spent on, without overlap and without rest.
//!
//! ```text
//! process      ├─────────────────────────────── wall time ────────────────────────────────┤
//! main thread  ├─ host ─┤─ launch ─┤─────────────── asleep for B ──────┤ launch ├─ sync ───┤
//! B            (asleep)            ├── disk ──┤─ runs ─┤─ preempted ───┤ wakes it
//! account      │ host   │ launch   │ disk     │ other  │ waiting for   │ launch │ sync     │
//!              ▲ start-up          ▲ running              a CPU
//!                       the first launch
//! ```
//! The account follows the thread that drives the GPU: the one with most launches, or with most calls if none are on record.
//! While it sleeps, the account follows the thread that woke it, as `walk` does, so that time that several threads spend at
//! once counts once. A thread that waits for CPython's global interpreter lock is woken by a timer again and again: the
//! account then follows the thread that has the lock. Before the driving thread's first event, and after its exit, the
//! account follows the process's main thread.
//! A process lasts from its fork to the exit of its main thread, as far as the recording has them, else from the beginning
//! of the recording to its end.
//!
//! This walk accounts for the time of each step (`_steps`), too: what it passes on is cut at the borders of the steps.

mod busy;
mod calls;
mod interpreter_lock;
mod lives;
mod part;
mod spent;
mod stage;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use analyze_engine::{
    derived_table::{Output, Writer},
    rows,
    rows::Rows,
};
use analyze_run::{
    coverage::Coverage,
    error::AnalyzeError,
    hash::HashMap,
    reading::{Names, TASK_COLUMNS},
};
use analyze_verdict::{
    blocker::{Blocker, syscall_name},
    call::{Call, Marked, Sink},
    derived::{Source, thread_names},
    schedule::Schedule,
    thread_state::State,
    time_split::Parts,
    walk::{Link, Walker},
};
use trace_schema::{Class, Kind};

use self::{
    busy::Busy,
    calls::Calls,
    interpreter_lock::{Wait, holder_at, waits},
    lives::Lives,
    part::{Part, state_name},
    spent::{Key, Spent},
    stage::{Stage, Stages},
};
use super::{
    def::TableDef,
    steps::{
        find::{self, Found, LEAST_STEPS, Range},
        times::{StepRows, Steps, Times},
    },
};

pub(super) use part::STEP_COLUMNS;

/// Number of off-CPU intervals that are walked at once, so that the links of a whole run are never in memory together.
const WALKED: usize = 1024;
/// Largest depth that is told apart: a thread is the driving one, woke it, or is further away.
const DEPTH: usize = 2;

pub(crate) const TABLE: TableDef = TableDef {
    name: "_run_time",
    needs: &[Kind::Call],
    schema: TimeRows::schema,
    make: |source, output| Box::pin(fill(source, Some(output), None)),
};

rows! {
    /// The time of a process that one thing took; times are in nanoseconds.
    struct TimeRow<'a> => TimeRows {
        run: &'a str,
        pid: u32,
        tid: u32,
        wall_ts: i64,
        wall_ns: i64,
        stage: Option<&'a str>,
        part: &'a str,
        state: &'a str,
        op: Option<&'a str>,
        thread_pid: u32,
        thread_tid: u32,
        thread_comm: Option<&'a str>,
        task_pid: Option<u32>,
        task_comm: Option<&'a str>,
        time_ns: i64,
        intervals_count: i64,
        gpu_busy_ns: Option<i64>,
        gpu_idle_ns: Option<i64>,
        depth: i64,
        waited_in: Option<&'a str>,
        syscall: Option<&'a str>,
        waits_count: i64,
        longest_ns: i64,
    }
}

/// What is known of a thread that made calls.
#[derive(Debug, Default)]
struct Thread {
    calls: Calls,
    launches_count: u64,
    first_launch_ts: Option<i64>,
    /// Time in nanoseconds from which on a stretch of host code is a pause.
    pause_ns: Option<i64>,
}

/// A range that a thread marked over `[ts, end)`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Mark {
    slot: usize,
    name: u32,
    ts: i64,
    end: i64,
}

/// A process whose time is accounted for: run, process, driving thread and its wall time.
struct Process<'a> {
    run: u32,
    pid: u32,
    /// Number of the driving thread in the schedule.
    driver: usize,
    /// Start and end in nanoseconds.
    wall: (i64, i64),
    stages: Stages,
    busy: Option<&'a Busy>,
}

impl Process<'_> {
    /// Adds `[ts, end)`, in nanoseconds, which was spent on one thing, cut at the stages; `slept_from` is when the driving
    /// thread fell asleep, if it slept.
    fn add(
        &self,
        spent: &mut HashMap<Key, Spent>,
        (ts, end): (i64, i64),
        key: &Key,
        slept_from: Option<i64>,
    ) {
        self.stages.cut(ts, end, |ts, end, stage| {
            // Compilers explain a pause before its length does.
            let stage = key.stage.filter(|_| stage == Some(Stage::Running)).or(stage);
            let gpu = self.busy.map_or((0, 0), |busy| busy.split(ts, end));
            spent.entry(Key { stage, ..*key }).or_default().add(end - ts, gpu, slept_from);
        });
    }
}

/// The sink that accounts for the time of each process, and of each of its steps, once all rows are read. It keeps every
/// top-level call at 16 bytes, and every marked range at 32 if steps are asked for.
struct Accounts {
    /// Where the rows of `_run_time` go: one writer for each scan that asks for them.
    times: Vec<Writer<TimeRows>>,
    /// Where the rows of `_steps` go, if they are asked for.
    steps: Option<Writer<StepRows>>,
    marks: Vec<Mark>,
    /// When marks were lost, or stored in part, by run, in nanoseconds.
    lost_marks: HashMap<u32, Vec<(i64, i64)>>,
    /// Threads with calls by their number in the schedule.
    threads: Vec<Thread>,
    thread_names: HashMap<(u32, u32), u32>,
    lives: Lives,
    /// When GPUs had work, by the run's name and process.
    busy: HashMap<(String, u32), Busy>,
    /// Start and end of each run's recording in nanoseconds, and whether its first launches are on record.
    runs: HashMap<u32, (i64, i64, bool)>,
    coverage: Coverage,
}

impl Accounts {
    /// Returns the processes with calls, in the order of run and process ID.
    fn processes(&self, schedule: &Schedule) -> Vec<Process<'_>> {
        let mut slots: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for slot in (0..self.threads.len()).filter(|slot| self.threads[*slot].calls.count() > 0) {
            let (run, pid, _) = schedule.key(slot);
            slots.entry((run, pid)).or_default().push(slot);
        }
        let mut launching: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for ((run, pid), slots) in &slots {
            if slots.iter().any(|slot| self.threads[*slot].launches_count > 0) {
                launching.entry(*run).or_default().insert(*pid);
            }
        }
        let process = |((run, pid), slots): ((u32, u32), Vec<usize>)| {
            let rank = |slot: &&usize| {
                let thread = &self.threads[**slot];
                (thread.launches_count, thread.calls.count(), u32::MAX - schedule.key(**slot).2)
            };
            let driver = *slots.iter().max_by_key(rank)?;
            let name = schedule.names.name(run).to_owned();
            let (from, to, has_first) = self.runs.get(&run).copied().unwrap_or_default();
            let threads = || slots.iter().map(|slot| &self.threads[*slot]);
            let first_call = threads().filter_map(|thread| thread.calls.first_ts()).min()?;
            let last_call = threads().filter_map(|thread| thread.calls.last_end()).max()?;
            let fork = self.lives.forks.get(&(name.clone(), pid)).copied();
            let exit = self.lives.exits.get(&(name.clone(), pid, pid)).copied();
            // A source without a clock of its own says nothing of the time before the first call and after the last.
            let (from, to) = if from < to { (from, to) } else { (first_call, last_call) };
            let start = fork.map_or(from, |fork| fork.max(from)).min(first_call);
            let end = exit.map_or(to, |exit| exit.min(to)).max(last_call);
            let launches = threads().filter_map(|thread| thread.first_launch_ts);
            let first_launch_ts =
                launches.min().filter(|_| has_first && self.coverage.has_kernel_launches(run));
            let is_launch = |op: u32| schedule.names.class(op) == Some(Class::Launch);
            let pause_at = |ts: i64| {
                let around = threads().map(|thread| thread.calls.around(ts, is_launch));
                let around: Vec<(Option<i64>, Option<i64>)> = around.collect();
                let from = around.iter().filter_map(|(before, _)| *before).max()?;
                let to = around.iter().filter_map(|(_, after)| *after).min();
                Some((from, to.unwrap_or(end).min(end)))
            };
            let compilers = self.lives.compilers(&name, pid, launching.get(&run)).filter(|ts| *ts < end);
            let stages = Stages::new(first_launch_ts, compilers, pause_at);
            let busy = self.busy.get(&(name.clone(), pid)).or_else(|| self.busy.get(&(name.clone(), 0)));
            Some(Process { run, pid, driver, wall: (start, end), stages, busy })
        };
        slots.into_iter().filter_map(process).collect()
    }

    /// Returns which thread the account follows when: its number in the schedule, from and to in nanoseconds. The spans cover
    /// the wall time.
    fn followed(&self, process: &Process<'_>, schedule: &Schedule) -> Vec<(usize, i64, i64)> {
        let (start, end) = process.wall;
        let (run, pid, tid) = schedule.key(process.driver);
        let main = schedule.known_slot((run, pid, pid)).filter(|main| *main != process.driver);
        let Some(main) = main else { return vec![(process.driver, start, end)] };
        let first_state = schedule.pieces_of(process.driver).first().map(|state| state.ts);
        let first_call = self.threads[process.driver].calls.first_ts();
        let born = first_state.into_iter().chain(first_call).min().unwrap_or(start).clamp(start, end);
        let exit = self.lives.exits.get(&(schedule.names.name(run).to_owned(), pid, tid)).copied();
        let gone = exit.unwrap_or(end).clamp(born, end);
        let spans = [(main, start, born), (process.driver, born, gone), (main, gone, end)];
        spans.into_iter().filter(|(_, from, to)| from < to).collect()
    }

    /// Finds the steps of a process that are on record: those in which no call was lost, nor a mark if they were found in marks.
    fn find_steps(&self, process: &Process<'_>, schedule: &Schedule) -> Option<Found> {
        let calls = &self.threads.get(process.driver)?.calls;
        let names = &schedule.names;
        let ranges = self.marks.iter().filter_map(|mark| {
            let (run, pid, tid) = schedule.key(mark.slot);
            let is_driver = mark.slot == process.driver;
            let (name, ts, end) = (names.name(mark.name), mark.ts, mark.end);
            ((run, pid) == (process.run, process.pid)).then_some(Range { name, tid, is_driver, ts, end })
        });
        let mut found = find::by_marks(ranges, calls.count(), |ts| calls.before(ts))
            .or_else(|| find::by_calls(|| calls.iter(), names))?;
        let lost_marks = match found.by {
            find::FoundBy::Marks => self.lost_marks.get(&process.run).map_or(&[][..], Vec::as_slice),
            find::FoundBy::Graph | find::FoundBy::Sequence => &[],
        };
        found.spans.retain(|(ts, end)| {
            *ts >= process.wall.0
                && *end <= process.wall.1
                && self.coverage.has_calls((process.run, process.pid), *ts, *end, |_| true)
                && !lost_marks.iter().any(|(from, to)| from < end && ts < to)
        });
        (found.spans.len() >= LEAST_STEPS).then_some(found)
    }

    /// Passes on the time of a link of the path of the thread `asked`, cut at the calls of the link's own thread: start and end
    /// in nanoseconds, what the time was spent on, and when the thread `asked` fell asleep, if it slept. `has_gil` is whether the
    /// link's thread had the global interpreter lock that another one waited for.
    fn cut(
        &self,
        asked: usize,
        (link, has_gil): (&Link, bool),
        schedule: &Schedule,
        mut spend: impl FnMut((i64, i64), &Key, Option<i64>),
    ) {
        let names = &schedule.names;
        let (run, pid, tid) = link.thread;
        let slot = schedule.known_slot(link.thread);
        let thread = slot.and_then(|slot| self.threads.get(slot));
        let drives = slot == Some(asked) || thread.is_some_and(|thread| thread.launches_count > 0);
        let mut piece = |ts: i64, end: i64, own: Option<u32>| {
            // Where the scheduler is not on record, a thread of which nothing is known need not have been running; where some
            // calls are not, it need not have been outside of calls.
            let is_known = link.state != State::OnCpu
                || (self.coverage.has_switches(link.thread, ts, end)
                    && (own.is_some() || self.coverage.has_calls((run, pid), ts, end, |_| true)));
            let state = if is_known { link.state } else { State::Unknown };
            let around = if link.depth == 0 {
                own
            } else {
                self.threads.get(asked).and_then(|asked| asked.calls.at(ts))
            };
            let class = |op: Option<u32>| op.map(|op| names.class(op));
            let part = Part::of(&Link { state, ..*link }, class(own), class(around), drives, has_gil);
            let is_asleep = matches!(state, State::Blocked(_));
            let pause_ns = thread.and_then(|thread| thread.pause_ns).filter(|_| part == Part::Host);
            let key = Key {
                stage: pause_ns.filter(|pause_ns| end - ts >= *pause_ns).map(|_| Stage::HostPause),
                part,
                state: state_name(state),
                op: own.or(around),
                thread: (pid, tid),
                task: link.task.filter(|_| state != State::OnCpu).map(|task| (task.pid, task.comm)),
                depth: link.depth.min(DEPTH),
                waited_in: link.slept_in,
                syscall: link.syscall.filter(|_| is_asleep).and_then(syscall_name),
            };
            spend((ts, end), &key, link.slept_from.or(is_asleep.then_some(link.ts)));
        };
        match thread {
            Some(thread) => thread.calls.cut(link.ts, link.end, piece),
            None => piece(link.ts, link.end, None),
        }
    }

    /// Passes on what the wall time of a process was spent on, in the order of time, without gap or overlap.
    fn account(
        &self,
        process: &Process<'_>,
        schedule: &Schedule,
        mut spend: impl FnMut((i64, i64), &Key, Option<i64>),
    ) {
        let (mut walker, mut of_holder) = (Walker::new(schedule), Walker::new(schedule));
        let mut waits_of: HashMap<usize, Vec<Wait>> = HashMap::default();
        let mut holder = |slot: usize, ts: i64| {
            holder_at(waits_of.entry(slot).or_insert_with(|| waits(schedule, slot)), ts)
        };
        for (slot, from, to) in self.followed(process, schedule) {
            let ends = schedule.pieces_of(slot).iter().map(|state| state.end);
            let ends = ends.filter(|end| (from + 1..to).contains(end)).skip(WALKED - 1).step_by(WALKED);
            let mut at = from;
            for end in ends.chain([to]) {
                for link in walker.walk(slot, at, end) {
                    let is_futex = link.state == State::Blocked(Blocker::Futex);
                    let sleeper = is_futex.then(|| schedule.known_slot(link.thread)).flatten();
                    let Some(holder) = sleeper.and_then(|sleeper| holder(sleeper, link.ts)) else {
                        let has_gil = link.slept_from.is_some_and(|from| holder(slot, from).is_some());
                        self.cut(slot, (link, has_gil), schedule, &mut spend);
                        continue;
                    };
                    for of_holder in of_holder.walk(holder, link.ts, link.end) {
                        let link = Link {
                            depth: link.depth + 1 + of_holder.depth,
                            slept_in: link.slept_in.or(Some(Blocker::Futex)),
                            slept_from: link.slept_from.or(Some(link.ts)),
                            ..*of_holder
                        };
                        self.cut(slot, (&link, true), schedule, &mut spend);
                    }
                }
                at = end;
            }
        }
    }

    /// Makes the rows of `_run_time` of a process.
    fn write(
        &self,
        writer: &mut Writer<TimeRows>,
        process: &Process<'_>,
        spent: &BTreeMap<Key, Spent>,
        schedule: &Schedule,
    ) -> Result<(), AnalyzeError> {
        let names = &schedule.names;
        let (_, _, tid) = schedule.key(process.driver);
        let (wall_ts, wall_end) = process.wall;
        let has_gpu = process.busy.is_some();
        for (key, spent) in spent {
            let (thread_pid, thread_tid) = key.thread;
            let comm = self.thread_names.get(&(process.run, thread_tid)).map(|comm| names.name(*comm));
            writer.push(TimeRow {
                run: names.name(process.run),
                pid: process.pid,
                tid,
                wall_ts,
                wall_ns: wall_end - wall_ts,
                stage: key.stage.map(Stage::name),
                part: key.part.name(),
                state: key.state,
                op: key.op.map(|op| names.name(op)),
                thread_pid,
                thread_tid,
                thread_comm: comm.filter(|comm| !comm.is_empty()),
                task_pid: key.task.map(|(pid, _)| pid),
                task_comm: key.task.map(|(_, comm)| names.name(comm)).filter(|comm| !comm.is_empty()),
                time_ns: spent.time_ns,
                intervals_count: spent.intervals_count,
                gpu_busy_ns: has_gpu.then_some(spent.gpu_busy_ns),
                gpu_idle_ns: has_gpu.then_some(spent.gpu_idle_ns),
                depth: key.depth as i64,
                waited_in: key.waited_in.map(Blocker::name),
                syscall: key.syscall,
                waits_count: spent.waits_count,
                longest_ns: spent.longest_ns,
            });
            writer.send(false)?;
        }
        Ok(())
    }
}

/// Passes rows on to each writer. One that is not read any more is left out of what follows.
///
/// # Errors
/// Returns an error if no writer is left.
fn each(
    writers: &mut Vec<Writer<TimeRows>>,
    mut pass: impl FnMut(&mut Writer<TimeRows>) -> Result<(), AnalyzeError>,
) -> Result<(), AnalyzeError> {
    let mut unread = None;
    writers.retain_mut(|writer| match pass(writer) {
        Ok(()) => true,
        Err(error) => {
            unread = Some(error);
            false
        }
    });
    unread.filter(|_| writers.is_empty()).map_or(Ok(()), Err)
}

impl Sink for Accounts {
    fn entered(&mut self, call: &Call, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if call.depth > 0 {
            return Ok(());
        }
        if self.threads.len() <= call.slot {
            self.threads.resize_with(call.slot + 1, Thread::default);
        }
        let thread = &mut self.threads[call.slot];
        thread.calls.push(call.ts, call.end(), call.op);
        if schedule.names.class(call.op) == Some(Class::Launch) {
            thread.launches_count += 1;
            thread.first_launch_ts.get_or_insert(call.ts);
        }
        Ok(())
    }

    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn marked(&mut self, range: &Marked) {
        let end = range.dur.filter(|dur| *dur > 0).map(|dur| range.ts.saturating_add(dur));
        if let Some(end) = end.filter(|_| self.steps.is_some()) {
            self.marks.push(Mark { slot: range.slot, name: range.name, ts: range.ts, end });
        }
    }

    fn join(&mut self, other: Box<dyn Sink>) -> Option<Box<dyn Sink>> {
        let any: &dyn Any = &*other;
        let adds = |other: &Self| self.steps.is_none() || other.steps.is_none();
        if !any.downcast_ref::<Self>().is_some_and(adds) {
            return Some(other);
        }
        let any: Box<dyn Any> = other;
        if let Ok(other) = any.downcast::<Self>() {
            let Self { times, steps, busy, .. } = *other;
            if self.times.is_empty() {
                self.busy = busy;
            }
            self.times.extend(times);
            if steps.is_some() {
                self.steps = steps;
            }
        }
        None
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let names = &schedule.names;
        let (mut times, mut steps) = (std::mem::take(&mut self.times), self.steps.take());
        if !times.is_empty() {
            self.threads.iter_mut().for_each(|thread| thread.pause_ns = thread.calls.pause_ns());
        }
        for process in self.processes(schedule) {
            let (_, _, tid) = schedule.key(process.driver);
            let found = if steps.is_some() { self.find_steps(&process, schedule) } else { None };
            let mut of_steps = steps.as_mut().zip(found.as_ref()).map(|(writer, found)| {
                let calls = &self.threads[process.driver].calls;
                let counts = move |from: i64, to: i64| {
                    calls.begun(from, to).fold((0_i64, 0_i64), |(calls_count, launches_count), op| {
                        let is_launch = names.class(op) == Some(Class::Launch);
                        (calls_count + 1, launches_count + i64::from(is_launch))
                    })
                };
                let steps = Steps {
                    run: names.name(process.run),
                    pid: process.pid,
                    tid,
                    found_by: found.by,
                    name: &found.name,
                    spans: &found.spans,
                };
                Times::new(writer, steps, counts)
            });
            if times.is_empty() && of_steps.is_none() {
                continue;
            }
            let (mut spent, is_asked) = (HashMap::default(), !times.is_empty());
            self.account(&process, schedule, |(ts, end), key, slept_from| {
                if let Some(steps) = &mut of_steps {
                    steps.add(ts, end, key.part.step_column());
                }
                if is_asked {
                    process.add(&mut spent, (ts, end), key, slept_from);
                }
            });
            if let Some(steps) = of_steps {
                steps.end()?;
            }
            let spent: BTreeMap<Key, Spent> = spent.into_iter().collect();
            each(&mut times, |writer| self.write(writer, &process, &spent, schedule))?;
        }
        each(&mut times, |writer| writer.send(true))?;
        steps.as_mut().map_or(Ok(()), |writer| writer.send(true))
    }
}

/// Makes the rows of `_run_time` and of `_steps`, as far as they are asked for.
///
/// # Errors
/// Returns an error if the events cannot be read.
pub(super) async fn fill(
    source: Arc<Source>,
    times: Option<Output>,
    steps: Option<Output>,
) -> Result<(), AnalyzeError> {
    let mut lives = Lives::read(&**source.events()).await?;
    for file in source.files() {
        let processes = file.run.processes.iter();
        lives.parents.extend(processes.map(|process| ((file.name.clone(), process.pid), process.parent_pid)));
    }
    let busy = if times.is_some() { busy::read(&**source.events()).await? } else { HashMap::default() };
    let of_runs = Arc::clone(&source);
    let accounts = move |names: &mut Names, coverage| {
        let mut runs = HashMap::default();
        let mut lost_marks: HashMap<u32, Vec<(i64, i64)>> = HashMap::default();
        for file in of_runs.files() {
            let (clock, run) = (&file.run.clock, names.number(&file.name));
            runs.insert(run, (clock.start_ns, clock.end_ns, !file.run.joined_running));
            let lost = file.run.lost.iter().filter(|lost| lost.count > 0 && lost.probe == "mark");
            let stored =
                file.run.stored.iter().filter(|stored| stored.is_of(Kind::Mark) && !stored.is_whole());
            let spans = lost.map(|lost| (lost.from_ns, lost.to_ns));
            let spans = spans.chain(stored.map(|stored| (stored.from_ns, stored.to_ns)));
            lost_marks.entry(run).or_default().extend(spans);
        }
        let thread_names = thread_names(of_runs.files(), names);
        Accounts {
            times: times.into_iter().map(|output| output.writer()).collect(),
            steps: steps.map(|output| output.writer()),
            marks: Vec::new(),
            lost_marks,
            threads: Vec::new(),
            thread_names,
            lives,
            busy,
            runs,
            coverage,
        }
    };
    source.sweep(TASK_COLUMNS, false, accounts).await
}
