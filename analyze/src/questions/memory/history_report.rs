//! What the history of a run's memory consists of ([`super::history`] makes it).

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    occupancy::Occupancy,
    state::{Moment, Share},
};

/// Segments of one allocator that were reserved or released for one cause.
#[derive(Clone, Debug, Serialize)]
pub struct CauseSum {
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// Whether the segments were reserved; otherwise they were released.
    pub is_gain: bool,
    /// The name of the cause.
    pub cause: &'static str,
    /// The number of segments and ranges.
    pub segments_count: u64,
    /// Their size in bytes.
    pub size_bytes: u64,
}

/// One release of memory by one allocator.
#[derive(Clone, Debug, Serialize)]
pub struct ReleaseReport {
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// The thread that released the memory.
    pub tid: u32,
    /// The name of the cause: `empty_cache`, `ipc_collect`, `make_room` or `not_known`.
    pub cause: &'static str,
    /// A sentence that says why the cause is not known; `None` if it is known.
    pub why_not_known: Option<&'static str>,
    /// The time at which the release began (ns, trace clock).
    pub ts_ns: i64,
    /// The time at which the release began, in ns since recording began.
    pub since_start_ns: i64,
    /// The time until the end of the last call that released memory, or of `ipc_collect()`, in ns; 0 if nothing was
    /// released.
    pub dur_ns: i64,
    /// The bytes of the blocks that the thread freed since its last allocation or release, as garbage collection does;
    /// `None` if the record does not tell.
    pub freed_before_bytes: Option<u64>,
    /// The bytes of the blocks that `ipc_collect()` freed: 0 for another cause, and `None` if the record does not tell.
    pub ipc_freed_bytes: Option<u64>,
    /// The number of CUDA IPC handles that the thread closed since its last allocation or release, until the end of this
    /// one; `None` if the record does not tell.
    pub closed_handles_count: Option<u64>,
    /// Reserved bytes before the release.
    pub before_bytes: i64,
    /// Released bytes.
    pub given_back_bytes: u64,
    /// The number of released segments and ranges.
    pub segments_count: u64,
    /// Reserved bytes after the release: the sum of those in use, pinned, private, reclaimable and unknown.
    pub after_bytes: i64,
    /// The bytes that were in active blocks after the release.
    pub in_use_bytes: i64,
    /// The part of the bytes in use that lies in segments for which other processes were given IPC handles.
    pub exported_bytes: i64,
    /// The free bytes that could not be released because active blocks hold their segments or pages.
    pub pinned_bytes: u64,
    /// The unused bytes that private pools kept.
    pub private_bytes: i64,
    /// The bytes that remained reclaimable.
    pub releasable_bytes: i64,
    /// The bytes in blocks whose state is not known.
    pub unknown_bytes: i64,
    /// The number of calls of cudaFree or cuMemUnmap; `None` if calls were not recorded.
    pub calls_count: Option<u64>,
    /// The median duration of these calls in ns; `None` if there is none.
    pub call_p50_ns: Option<i64>,
    /// The largest duration of these calls in ns; `None` if there is none.
    pub call_max_ns: Option<i64>,
    /// What else used memory of the device after the release: libraries, contexts and other processes.
    pub others: Vec<Share>,
}

/// A pause or resume, as in the view `memory_pauses`.
#[derive(Clone, Debug, Serialize)]
pub struct PauseReport {
    /// The process.
    pub pid: u32,
    /// `pause` or `resume`.
    pub action: String,
    /// The library that allocated the memory.
    pub library: String,
    /// The time at which the first call began, in ns since recording began.
    pub since_start_ns: i64,
    /// The time from the first call to the end of the last one, in ns.
    pub dur_ns: i64,
    /// Paused or resumed bytes.
    pub size_bytes: i64,
    /// The number of calls.
    pub calls_count: i64,
    /// The median duration of the calls in ns.
    pub call_p50_ns: i64,
    /// The largest duration of the calls in ns.
    pub call_max_ns: i64,
    /// The bytes that the process had allocated from the driver just before.
    pub before_bytes: i64,
    /// The bytes that it had allocated after the last call.
    pub after_bytes: i64,
    /// The bytes that remained unmapped, their address kept; 0 for a pause.
    pub missing_bytes: i64,
    /// The number of ranges that remained unmapped; 0 for a pause.
    pub missing_count: i64,
}

/// What a library still had allocated from the driver when its process exited.
#[derive(Clone, Debug, Serialize)]
pub struct ExitReport {
    /// The process.
    pub pid: u32,
    /// The time at which the process exited, in ns since recording began.
    pub since_start_ns: i64,
    /// The library.
    pub library: String,
    /// The size in bytes.
    pub size_bytes: i64,
}

/// The change of one allocator over a phase that the program marked.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// The name of the phase.
    pub name: String,
    /// The time at which the phase began, in ns since recording began.
    pub since_start_ns: i64,
    /// The duration of the phase in ns.
    pub dur_ns: i64,
    /// The process of the allocator.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// Reserved bytes at the start of the phase; `None` if the source does not record segments.
    pub reserved_before_bytes: Option<i64>,
    /// Reserved bytes at the end of the phase; `None` as before.
    pub reserved_after_bytes: Option<i64>,
    /// Bytes in active blocks at the start of the phase; `None` if the source does not record blocks.
    pub active_before_bytes: Option<i64>,
    /// Bytes in active blocks at the end of the phase; `None` as before.
    pub active_after_bytes: Option<i64>,
}

/// A request that failed with an out-of-memory error.
#[derive(Clone, Debug, Serialize)]
pub struct OomReport {
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// The thread that made the request.
    pub tid: u32,
    /// The time of the failure (ns, trace clock).
    pub ts_ns: i64,
    /// The time of the failure, in ns since recording began.
    pub since_start_ns: i64,
    /// The requested size in bytes.
    pub requested_bytes: u64,
    /// The size in bytes of the smallest block that would have served the request.
    pub block_bytes: u64,
    /// The size in bytes of the segment that the allocator would have reserved.
    pub segment_bytes: u64,
    /// The number of bytes that the driver reported as free on the device.
    pub device_free_bytes: u64,
    /// `fragmentation` (enough memory was free, but in no single block), `other_stream` (a free block was
    /// large enough, but belonged to another stream), `limit` (a limit of the process forbade what the device had
    /// room for), `neighbour` (other processes had most of the memory in use, and more than was missing), or `capacity`.
    pub verdict: &'static str,
    /// Whether a limit of the process, not the device, forbade the segment.
    pub is_limited: bool,
    /// Reserved bytes.
    pub reserved_bytes: i64,
    /// Bytes in allocated blocks.
    pub allocated_bytes: i64,
    /// Bytes in blocks that the program freed but other streams may still use.
    pub pending_bytes: i64,
    /// Free bytes in segments and pages that active blocks hold.
    pub pinned_bytes: u64,
    /// Unused bytes that private pools kept.
    pub private_bytes: i64,
    /// Free bytes in the pool of the request.
    pub pool_free_bytes: u64,
    /// The size in bytes of the largest free block in that pool.
    pub largest_free_bytes: u64,
    /// The size in bytes of the largest free block that belongs to another stream of the same pool.
    pub other_stream_bytes: u64,
    /// Whether expandable segments were on.
    pub is_expandable: bool,
    /// Whether expandable segments would have served the request; `None` if they were on, or if it depends on
    /// where the blocks would have been placed.
    pub expandable_helps: Option<bool>,
    /// Where [`Self::expandable_helps`] is open: whether the simulator of `analyze what-if` serves the request with
    /// expandable segments; `None` if it does not tell, or was not asked.
    pub expandable_serves: Option<bool>,
    /// Why the simulator does not tell, in its words; `None` if it does, or was not asked.
    pub expandable_reason: Option<String>,
    /// The address of the first of the neighbouring blocks with the fewest bytes in use which, if they were
    /// free, would have served the request; `None` if there are none.
    pub hole_addr: Option<u64>,
    /// The bytes in use in these blocks.
    pub hole_in_use_bytes: Option<u64>,
    /// The number of these blocks that were in use.
    pub hole_in_use_count: Option<u64>,
    /// The number of segments, those with the smallest share in use first, which, if they were unused, would
    /// have made room on the device; `None` if all of them would not.
    pub segments_count: Option<u64>,
    /// The bytes in use in these segments.
    pub segments_in_use_bytes: Option<u64>,
    /// The number of blocks in use in these segments.
    pub segments_in_use_count: Option<u64>,
    /// Who had the device's memory at that moment; `None` if that was not read, or for all but the first failures.
    pub occupancy: Option<Occupancy>,
    /// The whole state at that moment; `None` for all but the first failures.
    pub moment: Option<Moment>,
}

/// The history of PyTorch's memory over one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HistoryReport {
    /// Segments that were reserved and released, summed by allocator and cause.
    pub causes: Vec<CauseSum>,
    /// Releases of memory.
    pub releases: Vec<ReleaseReport>,
    /// Pauses and resumes.
    pub pauses: Vec<PauseReport>,
    /// What processes left behind at their exit.
    pub exits: Vec<ExitReport>,
    /// The change of every allocator over each phase.
    pub phases: Vec<PhaseReport>,
    /// Requests that failed.
    pub ooms: Vec<OomReport>,
}

impl HistoryReport {
    /// Returns the sentences that say why causes of releases are not known, each once.
    pub fn why_not_known(&self) -> BTreeSet<&'static str> {
        self.releases.iter().filter_map(|release| release.why_not_known).collect()
    }
}
