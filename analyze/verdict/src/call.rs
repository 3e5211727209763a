//! What a reading in the order of time ([`super::sweep`]) hands on: calls with their places, and marked ranges.

use super::{
    schedule::{Schedule, ThreadKey},
    time_split::Parts,
};
use analyze_run::{error::AnalyzeError, reading::Helper};

/// Columns that are handed through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    pub ret: Option<i32>,
    pub addr: Option<u64>,
    pub func: Option<u64>,
    pub src_addr: Option<u64>,
    pub stream: Option<u64>,
    pub caller: Option<u32>,
}

/// A call. Numbers stand for names.
#[derive(Clone, Debug)]
pub struct Call {
    /// The number of its thread in the schedule.
    pub slot: usize,
    pub ts: i64,
    /// `None`: it was not seen to end.
    pub dur: Option<i64>,
    pub op: u32,
    pub size: Option<i64>,
    pub direction: Option<u32>,
    /// The innermost range that it began in.
    pub phase: Option<u32>,
    /// The first launch of its kernel in its process.
    pub is_first: bool,
    /// Calls around it.
    pub depth: u32,
    /// The innermost of them.
    pub parent: Option<u32>,
    /// The direct child that took longest, and how long.
    pub child: Option<(u32, i64)>,
    /// Time in direct children: where they cross, it counts once.
    pub child_ns: i64,
    /// Where the last of them ends.
    pub(super) children_end: i64,
    pub extra: Option<Box<Extra>>,
}

const _: () = assert!(size_of::<Call>() <= 136);

impl Call {
    /// Its end; of one without, the end of time.
    pub fn end(&self) -> i64 {
        self.dur.map_or(i64::MAX, |dur| self.ts.saturating_add(dur))
    }
}

/// A range that a workload marked.
#[derive(Clone, Copy, Debug)]
pub struct Marked {
    /// The number of its thread in the schedule.
    pub slot: usize,
    pub thread: ThreadKey,
    pub ts: i64,
    pub dur: Option<i64>,
    pub name: u32,
}

/// What becomes of calls.
pub trait Sink: Send {
    /// Work of it that those who read may do while they wait.
    fn helper(&self) -> Option<Helper> {
        None
    }

    /// A call begins. What is known of it: all but its children. Calls of a thread come in the order of time.
    ///
    /// # Errors
    /// Ends the reading.
    fn entered(&mut self, _call: &Call, _schedule: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    /// A call is final. `parts`: the split of a finished one; none if all of it was on CPU.
    ///
    /// # Errors
    /// Ends the reading.
    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError>;

    /// A range begins.
    fn marked(&mut self, _range: &Marked) {}

    /// There are no more.
    ///
    /// # Errors
    /// As the others.
    fn finished(&mut self, _schedule: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }
}
