//! How many of its events a source stored.

use serde::{Deserialize, Serialize};

use crate::Kind;

/// A statement about the events of one kind over a span: how many there were, and how many of them have rows. A run states
/// this of events that its source counted without storing all of them; of events without a statement, all that the source
/// could see have rows, except for those that it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stored {
    /// Kind of the events, as in the column `kind`.
    pub kind: String,
    /// Name of the events, as in the column `op`; empty for all of the kind.
    pub op: String,
    /// Process ID; 0 for all processes.
    pub pid: u32,
    /// Thread ID; 0 for all threads.
    pub tid: u32,
    /// Start of the span, in nanoseconds on the clock of the run.
    pub from_ns: i64,
    /// End of the span, which is not part of it, in nanoseconds.
    pub to_ns: i64,
    /// Number of events that there were, at least; `None` if the source did not count them.
    pub made_count: Option<u64>,
    /// Number of them that have rows.
    pub stored_count: u64,
}

impl Stored {
    /// Returns whether every event has a row.
    pub fn is_whole(&self) -> bool {
        self.made_count.is_some_and(|made| made <= self.stored_count)
    }

    /// Returns whether the statement is about events of this kind.
    pub fn is_of(&self, kind: Kind) -> bool {
        self.kind == kind.name()
    }
}
