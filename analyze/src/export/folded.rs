//! Sums by call stack in the folded format of flame graphs: one line per stack, `outer;inner;innermost 123`.
//!
//! | quantity | frames of a stack | value |
//! |---|---|---|
//! | on-cpu-calls | process, thread, functions (if recorded), enclosing calls, call | ns on CPU |
//! | off-cpu | process, thread, functions, enclosing calls, state and system call | ns off CPU |
//! | allocated-bytes | process, device, thread, functions | bytes of blocks allocated at an instant |
//! | pinned-bytes | as above, for blocks beside free memory | free bytes not releasable at an instant |
//!
//! The values sum to what the views report. The on-CPU time of a call excludes that of calls nested in it.
//! The pinned bytes of a segment are divided equally among its live blocks: each of these blocks alone holds
//! all of them, and the sum counts each byte once.

mod memory;
mod time;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{questions::memory::state::At, trace::Trace};
use analyze_run::text;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    symbols,
};

/// Quantity that is summed by call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum What {
    /// Time that calls had a CPU
    OnCpuCalls,
    /// Time that threads were off CPU
    OffCpu,
    /// Memory allocated by PyTorch at an instant
    AllocatedBytes,
    /// Free memory that live blocks keep from being released, at an instant
    PinnedBytes,
}

impl What {
    /// All quantities.
    pub const ALL: [Self; 4] = [Self::OnCpuCalls, Self::OffCpu, Self::AllocatedBytes, Self::PinnedBytes];

    /// Name of the quantity, which ends with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnCpuCalls => "on_cpu_ns",
            Self::OffCpu => "off_cpu_ns",
            Self::AllocatedBytes => "allocated_bytes",
            Self::PinnedBytes => "pinned_bytes",
        }
    }

    /// Unit of the values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::OnCpuCalls | Self::OffCpu => "nanoseconds",
            Self::AllocatedBytes | Self::PinnedBytes => "bytes",
        }
    }

    /// Describes what a run lacks if it has no value of this quantity.
    pub fn missing(self) -> &'static str {
        match self {
            Self::OnCpuCalls => "no call that is known to have had a CPU",
            Self::OffCpu => "no interval off CPU that ended",
            Self::AllocatedBytes => "no memory handed out by PyTorch's allocator at that instant",
            Self::PinnedBytes => "no memory pinned in PyTorch's allocator at that instant",
        }
    }
}

/// Sums by call stack.
#[derive(Debug, Default)]
pub struct Folded {
    sums: BTreeMap<String, u64>,
    /// Descriptions of what the sums do not include.
    pub notes: Vec<String>,
}

impl Folded {
    /// Adds a value to the stack with these frames, outermost first.
    pub(super) fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, value: u64) {
        if value == 0 {
            return;
        }
        let mut key = String::new();
        for frame in frames {
            if !key.is_empty() {
                key.push(';');
            }
            key.extend(frame.chars().map(|c| match c {
                ';' => ':',
                c if c.is_control() => ' ',
                c => c,
            }));
        }
        let sum = self.sums.entry(text::harmless(&key)).or_default();
        *sum = sum.saturating_add(value);
    }

    /// Adds a note about `count` cases, unless there are none.
    fn note(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.notes.push(format!("{count} {what}"));
        }
    }

    /// Returns whether there is no stack.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns the stacks with their sums, ordered by stack.
    pub fn stacks(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sums.iter().map(|(stack, sum)| (stack.as_str(), *sum))
    }

    /// Sum over all stacks.
    pub fn sum(&self) -> u64 {
        self.sums.values().fold(0, |sum, value| sum.saturating_add(*value))
    }

    /// Formats one line per stack.
    pub fn text(&self) -> String {
        self.stacks().map(|(stack, sum)| format!("{stack} {sum}\n")).collect()
    }
}

/// Names of processes and threads, and the functions of recorded stacks.
struct Names {
    threads: HashMap<(u32, u32), String>,
    /// Functions by process and stack number, outermost first.
    stacks: HashMap<(u32, u32), Vec<String>>,
}

impl Names {
    async fn load(trace: &Trace) -> Result<Self, AnalyzeError> {
        let mut stacks = HashMap::new();
        for batch in trace.batches("SELECT pid, stack, frames FROM stacks").await? {
            let (pid, stack) = (integers(&batch, "pid")?, integers(&batch, "stack")?);
            let text = strings(&batch, "frames")?;
            for row in 0..batch.num_rows() {
                let of_program = symbols::of_program(text.at(row).unwrap_or_default());
                let key = (pid.value(row) as u32, stack.value(row) as u32);
                stacks.insert(key, of_program.map(symbols::demangle).collect());
            }
        }
        let threads = trace.files().iter().flat_map(|file| &file.run.threads);
        let threads = threads.map(|thread| ((thread.pid, thread.tid), thread.comm.clone())).collect();
        Ok(Self { threads, stacks })
    }

    fn stack(&self, pid: u32, stack: Option<u32>) -> &[String] {
        stack.and_then(|stack| self.stacks.get(&(pid, stack))).map_or(&[], Vec::as_slice)
    }

    fn thread(&self, pid: u32, tid: u32) -> String {
        let name = self.threads.get(&(pid, tid)).map_or("unnamed", String::as_str);
        format!("{name} (thread {tid})")
    }

    fn process(&self, pid: u32) -> String {
        let name = self.threads.get(&(pid, pid)).map_or("unnamed", String::as_str);
        format!("{name} (process {pid})")
    }
}

/// Sums up each of the quantities `whats` (without duplicates) for a run. A quantity of which the run has no
/// values is empty.
///
/// # Errors
/// Returns an error if the run's data cannot be read, or if the instant does not exist.
pub async fn run(trace: &Trace, whats: &[What], at: &At) -> Result<Vec<(What, Folded)>, AnalyzeError> {
    let names = Arc::new(Names::load(trace).await?);
    let times = match whats.iter().any(|what| matches!(what, What::OnCpuCalls | What::OffCpu)) {
        true => time::run(trace, &names).await?,
        false => time::Times::default(),
    };
    let (mut on_cpu, mut off_cpu) = (Some(times.on_cpu), Some(times.off_cpu));
    let mut found = Vec::new();
    for what in whats {
        let folded = match what {
            What::OnCpuCalls => on_cpu.take().unwrap_or_default(),
            What::OffCpu => off_cpu.take().unwrap_or_default(),
            What::AllocatedBytes | What::PinnedBytes => {
                memory::run(trace, *what, at, Arc::clone(&names)).await?
            }
        };
        found.push((*what, folded));
    }
    Ok(found)
}
