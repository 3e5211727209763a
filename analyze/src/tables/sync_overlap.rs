//! `sync_overlap`: how much work of the host could have gone on while a thread waited for the GPU.
//!
//! ```text
//! thread  ┤ launch ├─ sync: waits ─┤── runs on a CPU ──┤ launch ├── runs ──┤ launch ├─ sync ─┤
//! least                            ├───────────────────┤ until the next launch: the GPU has nothing to do
//! most                             ├───────────────────┼────────┼──────────┼────────┤ until the next wait
//! ```
//! Without the wait, the thread would have done what follows while the GPU worked: up to the shorter of the wait and of the
//! time that the thread then ran. Only time on a CPU counts, for a thread that slept would have slept anyway. Waits without a
//! launch of the thread between them are one, such as a copy to the host and the synchronization after it.
//!
//! Whether the GPU has nothing to do after a wait depends on what was waited for: the caller must know whether all launches go
//! to the stream that was waited for.

use std::{collections::BTreeMap, sync::Arc};

use analyze_engine::{
    derived_table::{Output, Writer},
    rows,
    rows::Rows,
};
use analyze_run::{coverage::Coverage, error::AnalyzeError, hash::HashMap, reading::Names};
use analyze_verdict::{
    call::{Call, Sink},
    derived::Source,
    schedule::{Schedule, ThreadKey},
    thread_state::LATEST,
    time_split::{Parts, parts},
};
use trace_schema::{Class, Kind};

use super::def::TableDef;

pub(crate) const TABLE: TableDef = TableDef {
    name: "_sync_overlap",
    needs: &[Kind::Call],
    schema: OverlapRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

rows! {
    /// The waits of a thread in one function; times are in nanoseconds.
    struct OverlapRow<'a> => OverlapRows {
        run: &'a str,
        pid: u32,
        tid: u32,
        op: &'a str,
        waits_count: i64,
        waited_ns: i64,
        least_ns: i64,
        most_ns: i64,
        unknown_count: i64,
    }
}

/// A wait that no other has followed so far; times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The function of the longest call.
    op: u32,
    longest_ns: i64,
    waited_ns: i64,
    /// Up to where the thread's time after the wait is counted.
    at: i64,
    /// Time that the thread ran since.
    ran_ns: i64,
    /// Time that it had run when the process launched again; `None` if it has not.
    until_launch_ns: Option<i64>,
    /// Whether the scheduler is on record for all of that.
    is_known: bool,
}

/// Sums over the waits of a thread in one function.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    waits_count: i64,
    waited_ns: i64,
    least_ns: i64,
    most_ns: i64,
    unknown_count: i64,
}

impl Sums {
    fn add(&mut self, wait: &Wait) {
        self.waits_count += 1;
        self.waited_ns = self.waited_ns.saturating_add(wait.waited_ns);
        // What the scheduler did is not on record: the thread need not have run.
        let sure_ns = if wait.is_known { wait.until_launch_ns.unwrap_or(0) } else { 0 };
        self.least_ns = self.least_ns.saturating_add(sure_ns.min(wait.waited_ns));
        self.most_ns = self.most_ns.saturating_add(wait.ran_ns.min(wait.waited_ns));
        self.unknown_count += i64::from(!wait.is_known);
    }
}

/// The state of one process during the reading.
#[derive(Debug, Default)]
struct Process {
    /// Threads with a wait, by their number in the schedule: few threads of a process wait for the GPU.
    open: Vec<(usize, Wait)>,
}

/// The sink that sums up the waits.
struct Waits {
    writer: Writer<OverlapRows>,
    /// Numbers of processes by run and process ID, and by the number of a thread in the schedule.
    numbers: HashMap<(u32, u32), usize>,
    of_slots: Vec<Option<usize>>,
    processes: Vec<Process>,
    /// By thread and function.
    sums: BTreeMap<(ThreadKey, u32), Sums>,
    /// Number of the name of copies to the host.
    to_host: u32,
    coverage: Coverage,
}

impl Wait {
    /// Counts the time that the thread ran until `ts`, outside of calls.
    fn run_until(&mut self, ts: i64, slot: usize, schedule: &Schedule, coverage: &Coverage) {
        // More than the wait could not have gone on during it.
        let is_settled = self.until_launch_ns.is_some() && self.ran_ns >= self.waited_ns;
        if ts <= self.at || is_settled {
            return;
        }
        let thread = schedule.key(slot);
        let (run, pid, _) = thread;
        let on_cpu_ns = parts(schedule.pieces_of(slot), LATEST, self.at, ts).on_cpu;
        self.ran_ns = self.ran_ns.saturating_add(on_cpu_ns);
        self.is_known &= coverage.has_schedule(thread, self.at, ts)
            && coverage.has_calls((run, pid), self.at, ts, |_| true);
        self.at = ts;
    }
}

impl Waits {
    fn process_of(&mut self, slot: usize, schedule: &Schedule) -> usize {
        if self.of_slots.len() <= slot {
            self.of_slots.resize(slot + 1, None);
        }
        if let Some(number) = self.of_slots[slot] {
            return number;
        }
        let (run, pid, _) = schedule.key(slot);
        let next = self.processes.len();
        let number = *self.numbers.entry((run, pid)).or_insert(next);
        if number == next {
            self.processes.push(Process::default());
        }
        self.of_slots[slot] = Some(number);
        number
    }

    /// Processes a top-level call.
    fn outermost(&mut self, call: &Call, schedule: &Schedule) {
        let number = self.process_of(call.slot, schedule);
        let class = schedule.names.class(call.op);
        // NCCL's operations are kernels, too.
        let is_launch = matches!(class, Some(Class::Launch | Class::Collective | Class::PointToPoint));
        let to_host = class == Some(Class::Copy) && call.direction == Some(self.to_host);
        let is_wait = class == Some(Class::Sync) || to_host;
        let Self { processes, sums, coverage, .. } = self;
        let open = &mut processes[number].open;
        for (slot, wait) in open.iter_mut().filter(|(slot, _)| is_launch || *slot == call.slot) {
            if wait.until_launch_ns.is_none() || *slot == call.slot {
                wait.run_until(call.ts, *slot, schedule, coverage);
            }
            if is_launch {
                wait.until_launch_ns.get_or_insert(wait.ran_ns);
            }
        }
        // What follows a call that never returned is not known.
        let Some(dur) = call.dur else {
            open.retain(|(slot, _)| *slot != call.slot);
            return;
        };
        let place = open.iter().position(|(slot, _)| *slot == call.slot);
        if !is_wait {
            if let Some(place) = place {
                let (_, wait) = &mut open[place];
                // What a thread does in other calls it would have done in them, too: launching is the host's work.
                let launched_ns = if is_launch { (call.end() - call.ts.max(wait.at)).max(0) } else { 0 };
                wait.ran_ns = wait.ran_ns.saturating_add(launched_ns);
                wait.at = wait.at.max(call.end());
            }
            return;
        }
        let new = Wait {
            op: call.op,
            longest_ns: dur,
            waited_ns: dur,
            at: call.end(),
            ran_ns: 0,
            until_launch_ns: None,
            is_known: true,
        };
        match place {
            None => open.push((call.slot, new)),
            Some(place) => {
                let (_, wait) = &mut open[place];
                if wait.until_launch_ns.is_some() {
                    sums.entry((schedule.key(call.slot), wait.op)).or_default().add(wait);
                    *wait = new;
                } else {
                    // Nothing was launched since: both are one wait, and what the thread ran between them stays.
                    if dur > wait.longest_ns {
                        (wait.op, wait.longest_ns) = (call.op, dur);
                    }
                    wait.waited_ns = wait.waited_ns.saturating_add(dur);
                    wait.at = wait.at.max(call.end());
                }
            }
        }
    }
}

impl Sink for Waits {
    fn entered(&mut self, call: &Call, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if call.depth == 0 {
            self.outermost(call, schedule);
        }
        Ok(())
    }

    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        for (slot, wait) in self.processes.iter().flat_map(|process| &process.open) {
            self.sums.entry((schedule.key(*slot), wait.op)).or_default().add(wait);
        }
        for (((run, pid, tid), op), sums) in &self.sums {
            self.writer.push(OverlapRow {
                run: schedule.names.name(*run),
                pid: *pid,
                tid: *tid,
                op: schedule.names.name(*op),
                waits_count: sums.waits_count,
                waited_ns: sums.waited_ns,
                least_ns: sums.least_ns,
                most_ns: sums.most_ns,
                unknown_count: sums.unknown_count,
            });
            self.writer.send(false)?;
        }
        self.writer.send(true)
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let waits = move |names: &mut Names, coverage| Waits {
        writer: output.writer(),
        numbers: HashMap::default(),
        of_slots: Vec::new(),
        processes: Vec::new(),
        sums: BTreeMap::new(),
        to_host: names.number("d2h"),
        coverage,
    };
    source.sweep(&[], false, waits).await
}
