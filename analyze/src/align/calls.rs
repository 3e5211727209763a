//! Calls of one side, thread by thread, and which calls of the two sides can be one.
//!
//! The two sides see different layers: a launch that a profiler knows as `cudaLaunchKernel` may be on record as the
//! `cuLaunchKernel` within it, a fill as the driver's. Functions that stand in for one another are a *family*; of nested
//! calls of a family, the outermost counts.

use std::collections::HashMap;

use trace_schema::{Class, Layer, Op};

/// A function.
#[derive(Clone, Debug)]
struct Known {
    layer: Option<Layer>,
    family: u32,
    is_launch: bool,
}

/// Functions by number.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    known: Vec<Known>,
    numbers: HashMap<String, u32>,
    families: HashMap<String, u32>,
}

/// What a function of the runtime and one of the driver have in common if one may be in the other.
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
    /// The number of a function.
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

    /// Whether a call of one may be a call of the other: the same function, or one that may be within it.
    pub(super) fn can_be_one(&self, a: u32, b: u32) -> bool {
        let (Some(known), Some(other)) = (self.known.get(a as usize), self.known.get(b as usize)) else {
            return false;
        };
        a == b || known.family == other.family && (known.is_launch || known.layer != other.layer)
    }
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub start: i64,
    /// Its start, if how long it took is not known.
    pub end: i64,
    /// Number of its function.
    pub op: u32,
    /// Number of its row.
    pub row: u64,
}

impl Call {
    pub(super) fn middle(&self) -> i64 {
        self.start + self.end.saturating_sub(self.start) / 2
    }
}

/// Calls of a thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// By their start, once [`Side::order`] was called.
    pub calls: Vec<Call>,
}

/// Calls of one side.
#[derive(Clone, Debug, Default)]
pub struct Side {
    pub threads: Vec<Thread>,
    numbers: HashMap<(u32, u32), usize>,
}

impl Side {
    /// Adds a call.
    pub fn push(&mut self, pid: u32, tid: u32, call: Call) {
        let number = *self.numbers.entry((pid, tid)).or_insert_with(|| {
            self.threads.push(Thread { pid, tid, calls: Vec::new() });
            self.threads.len() - 1
        });
        if let Some(thread) = self.threads.get_mut(number) {
            thread.calls.push(call);
        }
    }

    /// The thread of these numbers.
    pub(super) fn thread(&self, pid: u32, tid: u32) -> Option<usize> {
        self.numbers.get(&(pid, tid)).copied()
    }

    /// How many calls there are.
    pub(super) fn calls_count(&self) -> usize {
        self.threads.iter().map(|thread| thread.calls.len()).sum()
    }

    /// Orders the calls, and drops those within another of their family.
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

    /// Drops calls that can be none of the other side's.
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

/// Leaves the calls of either side that the other could have.
pub(super) fn make_comparable(profile: &mut Side, captured: &mut Side, functions: &Functions) {
    for side in [&mut *profile, &mut *captured] {
        side.order(functions);
    }
    let (of_profile, of_captured) = (profile.ops(), captured.ops());
    profile.keep(functions, &of_captured);
    captured.keep(functions, &of_profile);
}
