//! What a reading in order of time (`Sweep`) passes on: calls with their places on their threads, and marked
//! ranges.

use std::any::Any;

use super::{
    schedule::{Schedule, ThreadKey},
    time_split::Parts,
};
use analyze_run::{error::AnalyzeError, reading::Helper};

/// Columns of a call that the analysis does not use and only passes on. Each is `None` where the column is
/// null.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    /// Return value of the call.
    pub ret: Option<i32>,
    /// Address that the call was given or returned, such as a device pointer.
    pub addr: Option<u64>,
    /// Handle of the function (kernel) that is launched.
    pub func: Option<u64>,
    /// Source address of a copy.
    pub src_addr: Option<u64>,
    /// Handle of the stream.
    pub stream: Option<u64>,
    /// Number of the caller's name in `Names`.
    pub caller: Option<u32>,
    /// Number of the call stack.
    pub stack: Option<u32>,
}

/// A call. Functions, directions and ranges are numbers in `Names`.
#[derive(Clone, Debug)]
pub struct Call {
    /// The number of the call's thread in the schedule.
    pub slot: usize,
    /// Start in nanoseconds.
    pub ts: i64,
    /// Duration in nanoseconds; `None` if the recording has no end of the call.
    pub dur: Option<i64>,
    /// Function.
    pub op: u32,
    /// Size in bytes, if the call has one.
    pub size: Option<i64>,
    /// Direction of a copy.
    pub direction: Option<u32>,
    /// The innermost marked range that the call began in.
    pub phase: Option<u32>,
    /// True if this is the first launch of its kernel in its process.
    pub is_first: bool,
    /// Number of calls that this one is nested in; 0 for a top-level call.
    pub depth: u32,
    /// Function of the innermost of those calls.
    pub parent: Option<u32>,
    /// The longest direct child so far: its function and its duration in nanoseconds.
    pub child: Option<(u32, i64)>,
    /// Time in direct children in nanoseconds; time in which children overlap counts once.
    pub child_ns: i64,
    /// The latest end of a child so far, in nanoseconds.
    pub(super) children_end: i64,
    /// The columns that are only passed on, if the reading was asked for them.
    pub extra: Option<Box<Extra>>,
}

const _: () = assert!(size_of::<Call>() <= 136);

impl Call {
    /// Returns the end in nanoseconds; `i64::MAX` for a call without an end.
    pub fn end(&self) -> i64 {
        self.dur.map_or(i64::MAX, |dur| self.ts.saturating_add(dur))
    }
}

/// A range that the workload marked.
#[derive(Clone, Copy, Debug)]
pub struct Marked {
    /// The number of the range's thread in the schedule.
    pub slot: usize,
    /// Run, process and thread.
    pub thread: ThreadKey,
    /// Start in nanoseconds.
    pub ts: i64,
    /// Duration in nanoseconds; `None` if the range did not end.
    pub dur: Option<i64>,
    /// Number of the range's name in `Names`.
    pub name: u32,
}

/// A consumer of calls and marked ranges.
pub trait Sink: Any + Send {
    /// Returns work of this sink that the threads which read may do while they wait, if it has any.
    fn helper(&self) -> Option<Helper> {
        None
    }

    /// Takes over the work of another sink of the same kind, which shares what both would do. Returns the other sink if this
    /// one cannot.
    fn join(&mut self, other: Box<dyn Sink>) -> Option<Box<dyn Sink>> {
        Some(other)
    }

    /// Is called when a call begins. All of its fields are known except those about its children. The calls
    /// of a thread come in order of time.
    ///
    /// # Errors
    /// Returns an error if the call cannot be processed, which ends the reading.
    fn entered(&mut self, _call: &Call, _schedule: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    /// Is called when a call is final. `parts` is the split of its time by thread state; it is `None` if the
    /// call did not end or was running all the time.
    ///
    /// # Errors
    /// Returns an error if the call cannot be processed, which ends the reading.
    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError>;

    /// Is called when a range begins.
    fn marked(&mut self, _range: &Marked) {}

    /// Is called once after the last call.
    ///
    /// # Errors
    /// Returns an error if the sink cannot complete its work.
    fn finished(&mut self, _schedule: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }
}
