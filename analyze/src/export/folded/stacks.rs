//! Quantities, their sums by call stack, and the names of which the stacks consist.

use std::collections::{BTreeMap, HashMap};

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    symbols, text,
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
            Self::AllocatedBytes => "no memory allocated by PyTorch's allocator at that instant",
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
    pub(in crate::export) fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, value: u64) {
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
    pub(super) fn note(&mut self, count: u64, what: &str) {
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
pub(super) struct Names {
    threads: HashMap<(u32, u32), String>,
    /// Functions by process and stack number, outermost first.
    stacks: HashMap<(u32, u32), Vec<String>>,
}

impl Names {
    /// Loads the names and stacks of a run.
    pub(super) async fn load(trace: &Trace) -> Result<Self, AnalyzeError> {
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

    /// Functions of a recorded stack, outermost first; empty if there is none.
    pub(super) fn stack(&self, pid: u32, stack: Option<u32>) -> &[String] {
        stack.and_then(|stack| self.stacks.get(&(pid, stack))).map_or(&[], Vec::as_slice)
    }

    /// Frame of a thread: its name and number.
    pub(super) fn thread(&self, pid: u32, tid: u32) -> String {
        let name = self.threads.get(&(pid, tid)).map_or("unnamed", String::as_str);
        format!("{name} (thread {tid})")
    }

    /// Frame of a process: the name of its first thread, and its number.
    pub(super) fn process(&self, pid: u32) -> String {
        let name = self.threads.get(&(pid, pid)).map_or("unnamed", String::as_str);
        format!("{name} (process {pid})")
    }
}
