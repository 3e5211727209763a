//! Calls of one side by thread, and the rule which calls of the two sides can be the same call.
//!
//! The two sides see different layers: a launch that a profiler records as `cudaLaunchKernel` may be recorded
//! in the run as the `cuLaunchKernel` nested in it, and a memset as the driver's function. Functions that can
//! replace one another in this way form a *family*; of nested calls of one family, only the outermost counts.

use std::collections::HashMap;

use trace_schema::{Class, Layer, Op};

/// What is known of a function.
#[derive(Clone, Debug)]
struct Known {
    layer: Option<Layer>,
    family: u32,
    is_launch: bool,
}

/// The functions of both sides, by number.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    known: Vec<Known>,
    numbers: HashMap<String, u32>,
    families: HashMap<String, u32>,
}

/// Returns the name of a function's family, which a function of the runtime shares with one of the driver if
/// one can be nested in the other.
fn family(name: &str, op: Option<Op>) -> String {
    let stem = || name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")).unwrap_or(name);
    match op.map(Op::class) {
        Some(Class::Launch) if !name.ends_with("GraphLaunch") => "launch".to_owned(),
        Some(class @ (Class::Copy | Class::Set | Class::Alloc | Class::Free)) => class.name().to_owned(),
        Some(Class::Sync) if stem() == "CtxSynchronize" => "DeviceSynchronize".to_owned(),
        Some(_) => stem().to_owned(),
        None => name.to_owned(),
    }
}

impl Functions {
    /// Returns the number of a function, which is a new one if the function was not known.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let op = Op::from_name(name);
        let family = family(name, op);
        let is_launch = family == "launch";
        let next = self.families.len() as u32;
        let family = *self.families.entry(family).or_insert(next);
        self.known.push(Known { layer: op.map(Op::layer), family, is_launch });
        let number = self.known.len() as u32 - 1;
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub(super) fn family(&self, op: u32) -> u32 {
        self.known.get(op as usize).map_or(u32::MAX, |known| known.family)
    }

    /// Returns whether a call of `a` can be a call of `b`: they are the same function, or one can be nested
    /// in the other.
    pub(super) fn can_be_one(&self, a: u32, b: u32) -> bool {
        let (Some(known), Some(other)) = (self.known.get(a as usize), self.known.get(b as usize)) else {
            return false;
        };
        a == b || known.family == other.family && (known.is_launch || known.layer != other.layer)
    }
}

/// One record of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Start in nanoseconds on the side's clock.
    pub start: i64,
    /// End in nanoseconds; equal to the start if the duration is not known.
    pub end: i64,
    /// Number of the function in [`Functions`].
    pub op: u32,
    /// Number of the row that the call was read from.
    pub row: u64,
}

impl Call {
    pub(super) fn middle(&self) -> i64 {
        self.start + self.end.saturating_sub(self.start) / 2
    }
}

/// The calls of one thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// The calls, sorted by start once `Side::order` has been called.
    pub calls: Vec<Call>,
}

/// The calls of one side.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// The threads, in the order in which they were first seen.
    pub threads: Vec<Thread>,
    numbers: HashMap<(u32, u32), usize>,
}

impl Side {
    /// Adds a call of a thread.
    pub fn push(&mut self, pid: u32, tid: u32, call: Call) {
        let number = *self.numbers.entry((pid, tid)).or_insert_with(|| {
            self.threads.push(Thread { pid, tid, calls: Vec::new() });
            self.threads.len() - 1
        });
        if let Some(thread) = self.threads.get_mut(number) {
            thread.calls.push(call);
        }
    }

    /// Returns the index of the thread with these IDs.
    pub(super) fn thread(&self, pid: u32, tid: u32) -> Option<usize> {
        self.numbers.get(&(pid, tid)).copied()
    }

    /// Returns the number of calls.
    pub(super) fn calls_count(&self) -> usize {
        self.threads.iter().map(|thread| thread.calls.len()).sum()
    }

    /// Sorts the calls, and drops those nested in another one of their family.
    fn order(&mut self, functions: &Functions) {
        for thread in &mut self.threads {
            thread.calls.sort_unstable_by_key(|call| (call.start, std::cmp::Reverse(call.end), call.row));
            let mut ends: HashMap<u32, i64> = HashMap::new();
            thread.calls.retain(|call| {
                let end = ends.entry(functions.family(call.op)).or_insert(i64::MIN);
                let is_outermost = call.start >= *end;
                *end = (*end).max(call.end);
                is_outermost
            });
        }
    }

    /// Drops calls that cannot be the same call as any of `others`, the functions of the other side.
    fn keep(&mut self, functions: &Functions, others: &[u32]) {
        let keeps: HashMap<u32, bool> = self
            .ops()
            .into_iter()
            .map(|op| (op, others.iter().any(|other| functions.can_be_one(op, *other))))
            .collect();
        for thread in &mut self.threads {
            thread.calls.retain(|call| keeps.get(&call.op) == Some(&true));
        }
    }

    fn ops(&self) -> Vec<u32> {
        let mut ops: Vec<u32> = Vec::new();
        for call in self.threads.iter().flat_map(|thread| &thread.calls) {
            if !ops.contains(&call.op) {
                ops.push(call.op);
            }
        }
        ops
    }
}

/// Keeps only those calls of either side that the other side could have.
pub(super) fn make_comparable(profile: &mut Side, captured: &mut Side, functions: &Functions) {
    for side in [&mut *profile, &mut *captured] {
        side.order(functions);
    }
    let (of_profile, of_captured) = (profile.ops(), captured.ops());
    profile.keep(functions, &of_captured);
    captured.keep(functions, &of_profile);
}
