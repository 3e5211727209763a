//! What is on record about one thing: a call, a gap between launches, or a block of memory. A thing is named by what
//! identifies it in the views, so that the same name finds it in any session.

/// What identifies a call in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The time of entry (ns, trace clock).
    pub ts_ns: i64,
    /// The number of calls that enclose it on its thread.
    pub depth: i64,
}

/// One thing of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A call, with the division of its time and, if it was slow, the causes of its excess latency.
    Call(CallKey),
    /// The wakeup chain of a slow call.
    Chain(CallKey),
    /// The time of a thread between two launches.
    Gap {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The time at which the first launch returned (ns, trace clock).
        ts_ns: i64,
    },
    /// A block of PyTorch's allocator at an instant.
    Block {
        /// The process.
        pid: u32,
        /// The device, by CUDA's index.
        device: i32,
        /// The address.
        addr: u64,
        /// The instant (ns, trace clock).
        at_ns: i64,
    },
}

/// A query about a thing, and what its rows say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// What the rows say.
    pub what: &'static str,
    /// The query.
    pub sql: String,
}

impl CallKey {
    /// Returns the condition by which a view finds the call, given the names of its columns for process, thread, time and depth.
    fn is(self, [pid, tid, ts, depth]: [&str; 4]) -> String {
        format!(
            "{pid} = {} AND {tid} = {} AND {ts} = {} AND {depth} = {}",
            self.pid, self.tid, self.ts_ns, self.depth
        )
    }
}

impl Thing {
    /// Returns the queries that say what is on record about it.
    pub fn queries(self) -> Vec<About> {
        let own = ["pid", "tid", "ts", "depth"];
        let about = |what, sql| About { what, sql };
        let chain = |key: CallKey| {
            let is = key.is(["call_pid", "call_tid", "call_ts", "call_depth"]);
            about("chain", format!("SELECT * FROM chain_links WHERE {is} ORDER BY ts, depth, tid"))
        };
        match self {
            Self::Call(key) => vec![
                about("call", format!("SELECT * FROM ops WHERE {}", key.is(own))),
                about("division", format!("SELECT * FROM op_time WHERE {}", key.is(own))),
                about("excess", format!("SELECT * FROM slow_calls WHERE {}", key.is(own))),
                chain(key),
            ],
            Self::Chain(key) => vec![chain(key)],
            Self::Gap { pid, tid, ts_ns } => vec![about(
                "gap",
                format!("SELECT * FROM launch_gaps WHERE pid = {pid} AND tid = {tid} AND ts = {ts_ns}"),
            )],
            Self::Block { pid, device, addr, at_ns } => vec![about(
                "block",
                format!(
                    "SELECT * FROM memory_blocks WHERE pid = {pid} AND device = {device} AND addr = {addr} AND ts <= {at_ns} AND (dur IS NULL OR ts + dur > {at_ns}) ORDER BY ts"
                ),
            )],
        }
    }
}

/// Returns the query for the call with this rank by excess latency, from 1, among all slow calls of a run.
pub fn slow_call_of_rank(rank: usize) -> String {
    format!(
        "SELECT pid, tid, ts, depth FROM slow_calls ORDER BY excess_ns DESC, ts, pid, tid, depth LIMIT 1 OFFSET {}",
        rank.saturating_sub(1)
    )
}

/// Returns the query for the gap with this rank by length, from 1, among all gaps between launches of a run.
pub fn gap_of_rank(rank: usize) -> String {
    format!(
        "SELECT pid, tid, ts FROM launch_gaps ORDER BY dur DESC, ts, pid, tid LIMIT 1 OFFSET {}",
        rank.saturating_sub(1)
    )
}
