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
//! once counts once. Before that thread's first event, and after its exit, the account follows the process's main thread.
//! A process lasts from its fork to the exit of its main thread, as far as the recording has them, else from the beginning
//! of the recording to its end.

mod busy;
mod calls;
mod part;

use std::{collections::BTreeMap, sync::Arc};

use analyze_engine::{
    derived_table::{Output, Writer},
    rows,
    rows::Rows,
};
use analyze_run::{
    columns::{integers, strings},
    coverage::Coverage,
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
    reading::{Names, TASK_COLUMNS},
};
use analyze_verdict::{
    call::{Call, Sink},
    derived::{Source, thread_names},
    schedule::Schedule,
    thread_state::State,
    time_split::Parts,
    walk::{Link, Walker},
};
use futures::TryStreamExt;
use trace_schema::{Class, Kind};

use self::{
    busy::Busy,
    calls::Calls,
    part::{Part, state_name},
};
use super::def::TableDef;

/// Number of off-CPU intervals that are walked at once, so that the links of a whole run are never in memory together.
const WALKED: usize = 1024;

const LIVES: &str = "SELECT run, CAST(op AS VARCHAR) AS op, CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, ts \
     FROM events WHERE kind = 'process' AND op IN ('fork', 'exit')";

pub(crate) const TABLE: TableDef = TableDef {
    name: "_run_time",
    needs: &[Kind::Call],
    schema: TimeRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
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
    }
}

/// When processes began and threads ended, in nanoseconds, by the run's name, process and thread.
#[derive(Debug, Default)]
struct Lives {
    forks: HashMap<(String, u32), i64>,
    exits: HashMap<(String, u32, u32), i64>,
}

impl Lives {
    async fn read(events: &dyn Events) -> Result<Self, AnalyzeError> {
        let mut lives = Self::default();
        let mut batches = events.select(LIVES);
        while let Some(batch) = batches.try_next().await? {
            let (runs, ops) = (strings(&batch, "run")?, strings(&batch, "op")?);
            let (pids, tids) = (integers(&batch, "pid")?, integers(&batch, "tid")?);
            let times = integers(&batch, "ts")?;
            for row in 0..batch.num_rows() {
                let (run, ts) = (runs.value(row).to_owned(), times.value(row));
                let (pid, tid) = (pids.value(row) as u32, tids.value(row) as u32);
                if ops.value(row) == "exit" {
                    lives.exits.insert((run, pid, tid), ts);
                } else {
                    lives.forks.insert((run, pid), ts);
                }
            }
        }
        Ok(lives)
    }
}

/// What is known of a thread that made calls.
#[derive(Debug, Default)]
struct Thread {
    calls: Calls,
    launches_count: u64,
    first_launch_ts: Option<i64>,
}

/// What time was spent on. Names are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    is_start_up: Option<bool>,
    part: Part,
    state: &'static str,
    op: Option<u32>,
    /// Process and thread whose time it is.
    thread: (u32, u32),
    /// Process and name of the task that had the CPU or ended the sleep.
    task: Option<(u32, u32)>,
}

/// How much time was spent, in nanoseconds, and in how many intervals.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    time_ns: i64,
    intervals_count: i64,
    gpu_busy_ns: i64,
    gpu_idle_ns: i64,
}

/// A process whose time is accounted for: run, process, driving thread and its wall time.
struct Process<'a> {
    run: u32,
    pid: u32,
    /// Number of the driving thread in the schedule.
    driver: usize,
    /// Start and end in nanoseconds.
    wall: (i64, i64),
    /// Time of the first launch on record; `None` if there is none, or if it need not be the first.
    first_launch_ts: Option<i64>,
    busy: Option<&'a Busy>,
}

/// The sink that accounts for the time of each process once all rows are read. It keeps every top-level call at 16 bytes.
struct Accounts {
    writer: Writer<TimeRows>,
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
            let busy = self.busy.get(&(name.clone(), pid)).or_else(|| self.busy.get(&(name, 0)));
            Some(Process { run, pid, driver, wall: (start, end), first_launch_ts, busy })
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

    /// Adds a link of the path of the thread `asked`, cut at the calls of the link's own thread and at the first launch.
    fn add(
        &self,
        spent: &mut HashMap<Key, Spent>,
        process: &Process<'_>,
        asked: usize,
        link: &Link,
        schedule: &Schedule,
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
            let part = Part::of(&Link { state, ..*link }, class(own), class(around), drives);
            let key = |is_start_up| Key {
                is_start_up,
                part,
                state: state_name(state),
                op: own.or(around),
                thread: (pid, tid),
                task: link.task.filter(|_| state != State::OnCpu).map(|task| (task.pid, task.comm)),
            };
            let launched = process.first_launch_ts.map(|first| first.clamp(ts, end));
            let stages = match launched {
                Some(first) => [(ts, first, Some(true)), (first, end, Some(false))],
                None => [(ts, end, None), (end, end, None)],
            };
            for (ts, end, is_start_up) in stages.into_iter().filter(|(ts, end, _)| ts < end) {
                let total = spent.entry(key(is_start_up)).or_default();
                let (busy, idle) = process.busy.map_or((0, 0), |busy| busy.split(ts, end));
                total.time_ns += end - ts;
                total.intervals_count += 1;
                total.gpu_busy_ns += busy;
                total.gpu_idle_ns += idle;
            }
        };
        match thread {
            Some(thread) => thread.calls.cut(link.ts, link.end, piece),
            None => piece(link.ts, link.end, None),
        }
    }

    /// Returns what the wall time of a process was spent on, in the order of the keys.
    fn account(&self, process: &Process<'_>, schedule: &Schedule) -> BTreeMap<Key, Spent> {
        let mut spent = HashMap::default();
        let mut walker = Walker::new(schedule);
        for (slot, from, to) in self.followed(process, schedule) {
            let ends = schedule.pieces_of(slot).iter().map(|state| state.end);
            let ends = ends.filter(|end| (from + 1..to).contains(end)).skip(WALKED - 1).step_by(WALKED);
            let mut at = from;
            for end in ends.chain([to]) {
                for link in walker.walk(slot, at, end) {
                    self.add(&mut spent, process, slot, link, schedule);
                }
                at = end;
            }
        }
        spent.into_iter().collect()
    }
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

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let names = &schedule.names;
        let mut rows = Vec::new();
        for process in self.processes(schedule) {
            let (_, _, tid) = schedule.key(process.driver);
            let spent = self.account(&process, schedule);
            let head = (process.run, process.pid, tid, process.wall, process.busy.is_some());
            rows.extend(spent.into_iter().map(|(key, spent)| (head, key, spent)));
        }
        for ((run, pid, tid, (wall_ts, wall_end), has_gpu), key, spent) in rows {
            let (thread_pid, thread_tid) = key.thread;
            let comm = self.thread_names.get(&(run, thread_tid)).map(|comm| names.name(*comm));
            self.writer.push(TimeRow {
                run: names.name(run),
                pid,
                tid,
                wall_ts,
                wall_ns: wall_end - wall_ts,
                stage: key.is_start_up.map(|is_start_up| if is_start_up { "start-up" } else { "running" }),
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
            });
            self.writer.send(false)?;
        }
        self.writer.send(true)
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let lives = Lives::read(&**source.events()).await?;
    let busy = busy::read(&**source.events()).await?;
    let of_runs = Arc::clone(&source);
    let accounts = move |names: &mut Names, coverage| {
        let runs = of_runs.files().iter().map(|file| {
            let clock = &file.run.clock;
            (names.number(&file.name), (clock.start_ns, clock.end_ns, !file.run.joined_running))
        });
        let runs = runs.collect();
        let thread_names = thread_names(of_runs.files(), names);
        Accounts { writer: output.writer(), threads: Vec::new(), thread_names, lives, busy, runs, coverage }
    };
    source.sweep(TASK_COLUMNS, false, accounts).await
}
