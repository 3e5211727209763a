//! One reading of a run in order of time. It determines for every call its place on its thread, its phase,
//! and the exact split of its time, and passes the call on as soon as it is final.
//!
//! ```text
//! depth 0   ├────────── cudaLaunchKernel ──────────┤   ├─ cudaFree ─┤
//! depth 1      ├─ cuModuleLoad ─┤ ├─ cuLaunch ─┤
//! off-CPU        ├──┤                           ├────┤
//! entered   ▲  ▲                ▲ ▲                    ▲
//! left                          ▲ (cuModuleLoad)       ▲ (cuLaunch, cudaLaunchKernel)
//! ```
//! Intervals are half-open. A call is *left* when its thread enters another one at or after its end, or when
//! about a million rows have passed since: by then, all rows that began before its end are known. Only calls
//! that have not been left are in memory.
//!
//! A call without an end contains the later calls of its thread until the thread makes one that cannot be
//! nested in it: a call of the same function, because these functions do not call themselves, or a call of a
//! higher layer (NCCL calls the runtime, which calls the driver). From then on, no call is nested in it.
//! Calls that were entered in between count as nested, because nothing tells whether they were.

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

/// The times in nanoseconds that a clock can have, even one that counts from 1970, so that neither sums nor
/// differences of them overflow; see [`Fault::OutOfRange`].
const CLOCK: RangeInclusive<i64> = -(1 << 60)..=1 << 62;
/// Maximum absolute duration in nanoseconds, about 100 days.
const MAX_DUR: i64 = 1 << 53;
/// Number of rows after which the calls of idle threads are checked; rows of the same time count once.
const ROUND_ROWS: u64 = 1 << 20;

/// A row that is processed. Rows of one `ts` are processed in the order of [`Event::order`].
enum Event {
    Marked(Marked),
    SchedulingSlice { run: u32, cpu: u32, ts: i64, dur: i64, task: Task },
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
    /// Returns the sort key: kinds that others depend on come first, then threads in order; of scheduling
    /// slices the shortest comes first, of all other rows the longest.
    fn order(&self) -> (u8, ThreadKey, i64) {
        let longest = |dur: Option<i64>| dur.map_or(i64::MIN, |dur| dur.saturating_neg());
        match self {
            Self::Marked(range) => (0, range.thread, longest(range.dur)),
            Self::SchedulingSlice { run, cpu, dur, .. } => (1, (*run, *cpu, 0), *dur),
            Self::OffCpu { thread, row } => (2, *thread, longest(row.dur)),
            Self::Call(call) => (3, call.thread, longest(call.dur)),
        }
    }
}

/// The calls that a thread is in.
struct Thread {
    /// The number of the thread's process.
    process: usize,
    /// Calls that have not been left, each nested in the one before.
    around: Vec<Call>,
    /// Calls that overlap a later call without containing it, until they end.
    crossed: Vec<Call>,
}

/// What the threads of a process share.
#[derive(Default)]
struct Process {
    /// Ranges that have begun, each with its end and the number of its name.
    phases: Vec<(i64, u32)>,
    /// Pairs of a launch function and the kernel that it has launched.
    launched: HashSet<(u32, u64)>,
}

/// The reading; see the module. It passes calls to a sink of type `S`.
pub struct Sweep<S> {
    /// The states of every thread so far.
    pub schedule: Schedule,
    /// Contradictions in the input so far.
    pub faults: Faults,
    /// The sink.
    pub sink: S,
    run: u32,
    threads: Vec<Thread>,
    /// The last thread of each place, because a comparison is cheaper than a hash.
    recent: Vec<Option<(ThreadKey, usize)>>,
    processes: Vec<Process>,
    /// The last launch of each place: process, function and kernel.
    recent_launches: Vec<Option<(usize, u32, u64)>>,
    /// Numbers of processes by run and process ID.
    process_numbers: HashMap<(u32, u32), usize>,
    /// Indices of the rows of a batch that are processed. The vector is kept so that its memory is reused.
    picked: Vec<u32>,
    /// Rows of the current `ts` that are waiting to be sorted.
    ties: Vec<Event>,
    ties_ts: i64,
    rows_count: u64,
    hands_extra: bool,
}

/// Number of places in [`Sweep::recent`].
const RECENT: usize = 256;
/// Number of places in [`Sweep::recent_launches`].
const RECENT_LAUNCHES: usize = 4096;

/// Returns whether a call of `inner` cannot be nested in a call of `outer`.
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
    /// Makes a reading before its first row. `sink` makes the sink from the names that are known already. If
    /// `hands_extra`, calls have their [`Extra`] columns.
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

    /// Counts a contradiction in the current run.
    fn count(&mut self, fault: Fault) {
        *self.faults.entry((self.run, fault)).or_default() += 1;
    }

    /// Returns the number of a thread, which is a new one if the thread was not known.
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
                stack: rows.stack.at(row),
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
    /// Returns the run, process and thread of a row.
    fn thread(&self, rows: &Rows, row: usize) -> ThreadKey {
        (self.run, rows.pid.at(row).unwrap_or_default(), rows.tid.at(row).unwrap_or_default())
    }

    /// Returns whether the times of a row are ones that a clock can have, and counts the row if they are not.
    #[inline]
    fn is_told(&mut self, ts: i64, dur: Option<i64>) -> bool {
        let is_told = CLOCK.contains(&ts) && dur.is_none_or(|dur| (-MAX_DUR..=MAX_DUR).contains(&dur));
        if !is_told {
            self.count(Fault::OutOfRange);
        }
        is_told
    }

    /// Converts a row; returns `None` if the row is not processed.
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
            Kind::SchedulingSlice => {
                let comm = rows.comm.at(row).unwrap_or_else(|| self.schedule.names.number(""));
                let task = Task { pid: thread.1, tid: thread.2, comm };
                Event::SchedulingSlice {
                    run: self.run,
                    cpu: rows.cpu.at(row)?,
                    ts,
                    dur: dur.unwrap_or(0),
                    task,
                }
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
            Event::SchedulingSlice { run, cpu, ts, dur, task } => {
                self.schedule.add_slice(run, cpu, (ts, dur), task, &mut self.faults);
            }
            Event::OffCpu { thread, row } => {
                let slot = self.slot(thread);
                self.schedule.add_off_cpu(slot, &row, &mut self.faults);
            }
            Event::Call(call) => self.enter(call)?,
        }
        Ok(())
    }

    /// Returns the innermost range around `ts`: of those that contain it, the one that began last. `ts` must
    /// not be earlier than in the call before.
    fn phase(&mut self, process: usize, ts: i64) -> Option<u32> {
        let begun = &mut self.processes[process].phases;
        while begun.last().is_some_and(|(end, _)| *end <= ts) {
            begun.pop();
        }
        begun.last().map(|(_, name)| *name)
    }

    /// Returns whether `func` is launched by `op` for the first time in the process.
    fn is_first_launch(&mut self, process: usize, op: u32, func: u64) -> bool {
        let hash = (func ^ u64::from(op) << 48 ^ (process as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The high bits are used, because every lower bit of the key affects them.
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
        let thread_states = schedule.pieces_of(call.slot);
        if thread_states.last().is_none_or(|last| last.end <= call.ts) {
            return sink.left(call, None, schedule);
        }
        sink.left(call, Some(&parts(thread_states, LATEST, call.ts, call.end())), schedule)
    }

    /// Leaves the calls of a thread that have ended by `now`.
    fn leave_ended(&mut self, slot: usize, now: i64) -> Result<(), AnalyzeError> {
        let Self { threads, schedule, sink, .. } = self;
        let around = &mut threads[slot].around;
        // The call is read in place: a copy would cost more than the work done with it.
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

    /// Leaves calls without an end in which `op` cannot be nested, and the calls nested in them.
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
                // This call continues, although the call that it was nested in did not.
                Some(_) => self.threads[slot].crossed.push(call),
            }
        }
        Ok(())
    }

    // This function is inlined with `call`, so that the row between the two stays in registers.
    #[inline(always)]
    fn enter(&mut self, row: CallRow) -> Result<(), AnalyzeError> {
        let CallRow { thread, ts, mut dur, op, size, direction, func, extra } = row;
        let slot = self.slot(thread);
        self.schedule.seen(slot, ts, &mut self.faults);
        // If a call ends before it begins, its end counts as unknown.
        if dur.is_some_and(|dur| dur < 0) {
            self.count(Fault::NegativeDuration);
            dur = None;
        }
        if !self.threads[slot].around.is_empty() {
            self.leave_ended(slot, ts)?;
            // A call without an end is around every call that has one.
            if self.threads[slot].around.first().is_some_and(|call| call.dur.is_none()) {
                self.leave_not_ended(slot, op)?;
            }
        }
        let end = dur.map_or(i64::MAX, |dur| ts.saturating_add(dur));
        // Only a clock error makes calls of one thread overlap without one containing the other. Of the calls
        // around this one, the outer ones end later.
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
        // Other calls have function handles, too, but only a launch costs more the first time.
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
            // There may be a million threads with one call each.
            around.reserve_exact(2);
        }
        // The call is built in place: to build it elsewhere and copy it would cost more than the rest.
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

    /// Leaves all calls that have ended, and frees the memory of idle threads.
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

    /// Leaves all calls of the run.
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
            // A row that is the only one at its time need not be sorted.
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

#[cfg(test)]
mod tests;
