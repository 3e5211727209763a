//! One reading of a run in the order of time: every call with its place on its thread, its phase, and the exact split of its
//! time, handed on as soon as it is final.
//!
//! ```text
//! depth 0   ├────────── cudaLaunchKernel ──────────┤   ├─ cudaFree ─┤
//! depth 1      ├─ cuModuleLoad ─┤ ├─ cuLaunch ─┤
//! off-CPU        ├──┤                           ├────┤
//! entered   ▲  ▲                ▲ ▲                    ▲
//! left                          ▲ (cuModuleLoad)       ▲ (cuLaunch, cudaLaunchKernel)
//! ```
//! Intervals are half-open. A call is *left* when its thread enters another one at or after its end, or when a million rows
//! have passed since: all rows that began before its end are known then. Only calls that are not left are in memory.
//!
//! A call without end reaches to the end of time, but no call is inside it from the first one on that cannot be: one of
//! the same function, which do not call themselves, or one of a layer above (NCCL calls the runtime, which calls the
//! driver). What was entered between the two counts as inside: nothing tells whether it was.

use std::ops::{Range, RangeInclusive};

use trace_schema::{Class, Layer};

use crate::{
    call::{Call, Extra, Marked, Sink},
    fault::{Fault, Faults},
    schedule::{OffCpuRow, Schedule, Task, ThreadKey},
    thread_state::LATEST,
    time_split::parts,
};
use analyze_run::{
    error::AnalyzeError,
    hash::{HashMap, HashSet},
    reading::{Consumer, Helper, Kind, Names, Rows},
};

/// Times that a clock can tell, since 1970 at the most, so that neither sums nor differences of them overflow: see
/// [`Fault::OutOfRange`].
const CLOCK: RangeInclusive<i64> = -(1 << 60)..=1 << 62;
const MAX_DUR: i64 = 1 << 53;
/// Rows after which calls of idle threads are looked for.
const ROUND_ROWS: u64 = 1 << 20;

/// Rows of one `ts`, in the order in which they are taken.
enum Event {
    Marked(Marked),
    Stint { run: u32, cpu: u32, ts: i64, dur: i64, task: Task },
    OffCpu { thread: ThreadKey, row: OffCpuRow },
    Call(CallRow),
}

/// A row of a call.
struct CallRow {
    thread: ThreadKey,
    ts: i64,
    dur: Option<i64>,
    op: u32,
    size: Option<i64>,
    direction: Option<u32>,
    func: Option<u64>,
    extra: Option<Box<Extra>>,
}

impl Event {
    /// Kinds by what needs what; threads in order; stints with the shortest first, all else with the longest.
    fn order(&self) -> (u8, ThreadKey, i64) {
        let longest = |dur: Option<i64>| dur.map_or(i64::MIN, |dur| dur.saturating_neg());
        match self {
            Self::Marked(range) => (0, range.thread, longest(range.dur)),
            Self::Stint { run, cpu, dur, .. } => (1, (*run, *cpu, 0), *dur),
            Self::OffCpu { thread, row } => (2, *thread, longest(row.dur)),
            Self::Call(call) => (3, call.thread, longest(call.dur)),
        }
    }
}

/// What a thread is doing.
struct Thread {
    /// The number of its process.
    process: usize,
    /// Calls, each inside the one before.
    around: Vec<Call>,
    /// Calls that another one crosses, until they end.
    crossed: Vec<Call>,
}

/// What the threads of a process have in common.
#[derive(Default)]
struct Process {
    /// Ranges that have begun, with their ends.
    phases: Vec<(i64, u32)>,
    /// Functions with the kernels that they have launched.
    launched: HashSet<(u32, u64)>,
}

/// See the module.
pub struct Sweep<S> {
    pub schedule: Schedule,
    pub faults: Faults,
    pub sink: S,
    run: u32,
    threads: Vec<Thread>,
    /// The last thread of each place: a hash costs more than a look.
    recent: Vec<Option<(ThreadKey, usize)>>,
    processes: Vec<Process>,
    /// The last launch of each place: process, function, kernel.
    recent_launches: Vec<Option<(usize, u32, u64)>>,
    /// By run and process.
    process_numbers: HashMap<(u32, u32), usize>,
    /// Rows of a batch that are taken: kept for its memory.
    picked: Vec<u32>,
    ties: Vec<Event>,
    ties_ts: i64,
    rows_count: u64,
    hands_extra: bool,
}

/// Places of [`Sweep::recent`].
const RECENT: usize = 256;
/// Places of [`Sweep::recent_launches`].
const RECENT_LAUNCHES: usize = 4096;

/// Whether a call of `outer` cannot have one of `inner` inside.
fn cannot_contain(names: &Names, outer: u32, inner: u32) -> bool {
    let rank = |op| {
        names.op(op).map(|op| match op.layer() {
            Layer::Nccl => 2,
            Layer::Runtime => 1,
            Layer::Driver => 0,
        })
    };
    outer == inner || rank(outer).zip(rank(inner)).is_some_and(|(outer, inner)| inner > outer)
}

impl<S: Sink> Sweep<S> {
    /// Before any row. `sink` is made with the names that are known from elsewhere. `hands_extra`: calls have their [`Extra`] columns.
    pub fn new(sink: impl FnOnce(&mut Names) -> S, hands_extra: bool) -> Self {
        let mut schedule = Schedule::default();
        Self {
            sink: sink(&mut schedule.names),
            schedule,
            faults: Faults::new(),
            run: 0,
            threads: Vec::new(),
            recent: vec![None; RECENT],
            processes: Vec::new(),
            recent_launches: vec![None; RECENT_LAUNCHES],
            process_numbers: HashMap::default(),
            picked: Vec::new(),
            ties: Vec::new(),
            ties_ts: i64::MIN,
            rows_count: 0,
            hands_extra,
        }
    }

    fn count(&mut self, fault: Fault) {
        *self.faults.entry((self.run, fault)).or_default() += 1;
    }

    fn slot(&mut self, key: ThreadKey) -> usize {
        let place = (key.2 as usize ^ (key.1 as usize) << 3) % RECENT;
        if let Some((_, slot)) = self.recent[place].filter(|(of, _)| *of == key) {
            return slot;
        }
        let slot = self.schedule.slot(key);
        if slot == self.threads.len() {
            let next = self.processes.len();
            let process = *self.process_numbers.entry((key.0, key.1)).or_insert(next);
            if process == next {
                self.processes.push(Process::default());
            }
            self.threads.push(Thread { process, around: Vec::new(), crossed: Vec::new() });
        }
        self.recent[place] = Some((key, slot));
        slot
    }

    #[inline(always)]
    fn call(&self, rows: &Rows, row: usize) -> CallRow {
        let extra = self.hands_extra.then(|| {
            Box::new(Extra {
                ret: rows.ret.at(row),
                addr: rows.addr.at(row),
                func: rows.func.at(row),
                src_addr: rows.src_addr.at(row),
                stream: rows.stream.at(row),
                caller: rows.caller.at(row),
            })
        });
        CallRow {
            thread: self.thread(rows, row),
            ts: rows.ts.value(row),
            dur: rows.dur.at(row),
            op: rows.op.at(row).unwrap_or_default(),
            size: rows.size_bytes.at(row),
            direction: rows.direction.at(row),
            func: rows.func.at(row),
            extra,
        }
    }

    #[inline]
    fn thread(&self, rows: &Rows, row: usize) -> ThreadKey {
        (self.run, rows.pid.at(row).unwrap_or_default(), rows.tid.at(row).unwrap_or_default())
    }

    /// Whether a clock can tell the times of a row; those of others are counted.
    #[inline]
    fn is_told(&mut self, ts: i64, dur: Option<i64>) -> bool {
        let is_told = CLOCK.contains(&ts) && dur.is_none_or(|dur| (-MAX_DUR..=MAX_DUR).contains(&dur));
        if !is_told {
            self.count(Fault::OutOfRange);
        }
        is_told
    }

    /// Takes a row.
    fn event(&mut self, rows: &Rows, row: usize, kind: Kind) -> Option<Event> {
        let (ts, dur) = (rows.ts.value(row), rows.dur.at(row));
        if !self.is_told(ts, dur) {
            return None;
        }
        let thread = self.thread(rows, row);
        Some(match kind {
            Kind::Call => Event::Call(self.call(rows, row)),
            Kind::OffCpu => {
                let waker = rows.waker_tid.at(row).map(|tid| Task {
                    pid: rows.waker_pid.at(row).unwrap_or_default(),
                    tid,
                    comm: rows.waker_comm.at(row).unwrap_or_else(|| self.schedule.names.number("")),
                });
                let row = OffCpuRow {
                    ts,
                    dur,
                    state: rows.op.at(row).unwrap_or_default(),
                    runnable_ns: rows.runnable_ns.at(row),
                    syscall: rows.syscall.at(row),
                    cpu: rows.cpu.at(row),
                    waker,
                    next_tid: rows.next_tid.at(row),
                };
                Event::OffCpu { thread, row }
            }
            Kind::Stint => {
                let comm = rows.comm.at(row).unwrap_or_else(|| self.schedule.names.number(""));
                let task = Task { pid: thread.1, tid: thread.2, comm };
                Event::Stint { run: self.run, cpu: rows.cpu.at(row)?, ts, dur: dur.unwrap_or(0), task }
            }
            Kind::Mark => {
                if rows.op.text(row) != Some("range") {
                    return None;
                }
                let name = self.schedule.names.number(rows.detail.text(row).unwrap_or_default());
                Event::Marked(Marked { slot: 0, thread, ts, dur, name })
            }
            Kind::Alloc | Kind::Other => return None,
        })
    }

    #[inline]
    fn take_ties(&mut self) -> Result<(), AnalyzeError> {
        if self.ties.is_empty() {
            return Ok(());
        }
        let mut ties = std::mem::take(&mut self.ties);
        if ties.len() > 1 {
            ties.sort_by_key(Event::order);
        }
        for event in ties.drain(..) {
            self.take(event)?;
        }
        self.ties = ties;
        Ok(())
    }

    #[inline(never)]
    fn take(&mut self, event: Event) -> Result<(), AnalyzeError> {
        match event {
            Event::Marked(mut range) => {
                range.slot = self.slot(range.thread);
                let end = range.dur.map_or(i64::MAX, |dur| range.ts.saturating_add(dur));
                let process = self.threads[range.slot].process;
                self.processes[process].phases.push((end, range.name));
                self.sink.marked(&range);
            }
            Event::Stint { run, cpu, ts, dur, task } => {
                self.schedule.add_stint(run, cpu, (ts, dur), task, &mut self.faults);
            }
            Event::OffCpu { thread, row } => {
                let slot = self.slot(thread);
                self.schedule.add_off_cpu(slot, &row, &mut self.faults);
            }
            Event::Call(call) => self.enter(call)?,
        }
        Ok(())
    }

    /// The innermost range around a time, which is not before those asked about: of those that contain it, the one that
    /// began last.
    fn phase(&mut self, process: usize, ts: i64) -> Option<u32> {
        let begun = &mut self.processes[process].phases;
        while begun.last().is_some_and(|(end, _)| *end <= ts) {
            begun.pop();
        }
        begun.last().map(|(_, name)| *name)
    }

    fn is_first_launch(&mut self, process: usize, op: u32, func: u64) -> bool {
        let hash = (func ^ u64::from(op) << 48 ^ (process as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // High bits: those of the product that every lower bit of the key moves.
        let recent = &mut self.recent_launches[(hash >> 48) as usize % RECENT_LAUNCHES];
        let launch = Some((process, op, func));
        if *recent == launch {
            return false;
        }
        *recent = launch;
        self.processes[process].launched.insert((op, func))
    }

    #[inline]
    fn leave(call: &Call, schedule: &Schedule, sink: &mut S) -> Result<(), AnalyzeError> {
        if call.dur.is_none() {
            return sink.left(call, None, schedule);
        }
        let pieces = schedule.pieces_of(call.slot);
        if pieces.last().is_none_or(|last| last.end <= call.ts) {
            return sink.left(call, None, schedule);
        }
        sink.left(call, Some(&parts(pieces, LATEST, call.ts, call.end())), schedule)
    }

    /// Leaves what has ended on a thread.
    fn leave_ended(&mut self, slot: usize, now: i64) -> Result<(), AnalyzeError> {
        let Self { threads, schedule, sink, .. } = self;
        let around = &mut threads[slot].around;
        // Looked at where it is: a copy would cost more than what is done with it.
        while let Some(call) = around.last().filter(|call| call.end() <= now) {
            Self::leave(call, schedule, sink)?;
            around.truncate(around.len() - 1);
        }
        while let Some(index) = threads[slot].crossed.iter().position(|call| call.end() <= now) {
            let call = threads[slot].crossed.swap_remove(index);
            Self::leave(&call, schedule, sink)?;
        }
        Ok(())
    }

    /// Leaves calls without an end that cannot have `op` inside, and what is inside them.
    fn leave_not_ended(&mut self, slot: usize, op: u32) -> Result<(), AnalyzeError> {
        let names = &self.schedule.names;
        let mut without_end = self.threads[slot].around.iter().take_while(|call| call.dur.is_none());
        let Some(first) = without_end.position(|call| cannot_contain(names, call.op, op)) else {
            return Ok(());
        };
        while self.threads[slot].around.len() > first {
            let Some(call) = self.threads[slot].around.pop() else { break };
            match call.dur {
                None => {
                    self.count(Fault::CallNotEnded);
                    Self::leave(&call, &self.schedule, &mut self.sink)?;
                }
                // It goes on, though what it was in did not.
                Some(_) => self.threads[slot].crossed.push(call),
            }
        }
        Ok(())
    }

    // Inlined with `call`: what is between the two stays in registers.
    #[inline(always)]
    fn enter(&mut self, row: CallRow) -> Result<(), AnalyzeError> {
        let CallRow { thread, ts, mut dur, op, size, direction, func, extra } = row;
        let slot = self.slot(thread);
        self.schedule.seen(slot, ts, &mut self.faults);
        // A call that ends before it began is one whose end is not known.
        if dur.is_some_and(|dur| dur < 0) {
            self.count(Fault::NegativeDuration);
            dur = None;
        }
        if !self.threads[slot].around.is_empty() {
            self.leave_ended(slot, ts)?;
            // What has no end is around all that has one.
            if self.threads[slot].around.first().is_some_and(|call| call.dur.is_none()) {
                self.leave_not_ended(slot, op)?;
            }
        }
        let end = dur.map_or(i64::MAX, |dur| ts.saturating_add(dur));
        // Only a clock error makes calls of one thread overlap without containing each other.
        // Those around it end the later the further out they are.
        let mut crosses = false;
        while let Some(crossed) = self.threads[slot].around.pop_if(|outer| outer.end() < end) {
            crosses = true;
            self.threads[slot].crossed.push(crossed);
        }
        if crosses {
            self.count(Fault::CrossingCalls);
        }
        let process = self.threads[slot].process;
        let phase = self.phase(process, ts);
        // Other calls are about handles, too, but only a launch is dearer the first time.
        let is_first = match func {
            Some(func) if self.schedule.names.class(op) == Some(Class::Launch) => {
                self.is_first_launch(process, op, func)
            }
            _ => false,
        };
        let around = &mut self.threads[slot].around;
        let depth = around.len() as u32;
        let mut parent = None;
        if let Some(outer) = around.last_mut() {
            parent = Some(outer.op);
            if let Some(dur) = dur {
                outer.child_ns += end.saturating_sub(outer.children_end.max(ts)).max(0);
                outer.children_end = outer.children_end.max(end);
                if outer.child.is_none_or(|(_, longest)| dur > longest) {
                    outer.child = Some((op, dur));
                }
            }
        }
        if around.capacity() == 0 {
            // A million threads have a call each.
            around.reserve_exact(2);
        }
        // Made where it stays: to make it elsewhere and to copy it costs more than all else.
        around.push(Call {
            slot,
            ts,
            dur,
            op,
            size,
            direction,
            phase,
            is_first,
            depth,
            parent,
            child: None,
            child_ns: 0,
            children_end: i64::MIN,
            extra,
        });
        match around.last() {
            Some(call) => self.sink.entered(call, &self.schedule),
            None => Ok(()),
        }
    }

    /// Leaves all that has ended, and gives memory of idle threads back.
    fn round(&mut self, now: i64) -> Result<(), AnalyzeError> {
        for slot in 0..self.threads.len() {
            self.leave_ended(slot, now)?;
            let thread = &mut self.threads[slot];
            if thread.around.is_empty() && thread.crossed.is_empty() {
                (thread.around, thread.crossed) = (Vec::new(), Vec::new());
            }
        }
        Ok(())
    }

    fn end_run(&mut self) -> Result<(), AnalyzeError> {
        self.take_ties()?;
        self.ties_ts = i64::MIN;
        self.rows_count = 0;
        for slot in 0..self.threads.len() {
            self.leave_ended(slot, i64::MAX)?;
        }
        Ok(())
    }
}

impl<S: Sink> Consumer for Sweep<S> {
    fn names(&mut self) -> &mut Names {
        &mut self.schedule.names
    }

    fn helper(&self) -> Option<Helper> {
        self.sink.helper()
    }

    fn run(&mut self, name: &str) -> Result<(), AnalyzeError> {
        self.end_run()?;
        self.run = self.schedule.names.number(name);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.end_run()?;
        self.sink.finished(&self.schedule)
    }

    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError> {
        let mut picked = std::mem::take(&mut self.picked);
        rows.pick(range, &mut picked);
        for (index, row) in picked.iter().enumerate() {
            let row = *row as usize;
            let (kind, ts) = (rows.kind(row), rows.ts.value(row));
            if ts != self.ties_ts {
                self.take_ties()?;
                self.ties_ts = ts;
                self.rows_count += 1;
                if self.rows_count.is_multiple_of(ROUND_ROWS) {
                    self.round(ts)?;
                }
            }
            // What nothing else begins with has no need to wait.
            let next = picked.get(index + 1);
            let is_alone =
                self.ties.is_empty() && next.is_some_and(|next| rows.ts.value(*next as usize) != ts);
            if kind == Kind::Call && is_alone {
                if self.is_told(ts, rows.dur.at(row)) {
                    self.enter(self.call(rows, row))?;
                }
            } else if let Some(event) = self.event(rows, row, kind) {
                if is_alone { self.take(event)? } else { self.ties.push(event) }
            }
        }
        self.picked = picked;
        Ok(())
    }
}
