//! What is known of an alignment of a profile with a run, and how good it is.

use std::ops::Range;

use super::line::Line;

/// Maximum distance in nanoseconds between the middles of a call's two records.
pub const REACH_NS: i64 = 20_000;

/// Measures of how good an alignment is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    /// Number of the profile's calls that the run could have.
    pub matchable_count: u64,
    /// Number of these calls that were matched.
    pub matched_count: u64,
    /// Number of consecutive unmatched calls before the first or after the last matched one, whichever is
    /// larger.
    pub unmatched_end_count: u64,
    /// Median distance in nanoseconds between the two records of a call after alignment.
    pub residual_median_ns: i64,
    /// 99th percentile of that distance in nanoseconds.
    pub residual_p99_ns: i64,
    /// Maximum of that distance in nanoseconds.
    pub residual_max_ns: i64,
    /// Largest distance in nanoseconds of the median of a part of the profile from the line.
    pub nonlinearity_ns: i64,
    /// Range in nanoseconds over which the offset can be changed so that in nearly all calls one record
    /// encloses the other. If it is negative, there is no such offset.
    pub room_ns: i64,
}

impl Quality {
    /// Returns the maximum error of the offset in nanoseconds; `None` if the records of calls do not enclose
    /// each other.
    pub fn offset_error_ns(&self) -> Option<i64> {
        (self.room_ns >= 0).then(|| self.room_ns / 2 + 1)
    }
}

/// The times in which the run could record calls, on the run's clock in nanoseconds.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Time from the start to the end of the recording. The run could not record calls of the profile outside
    /// of it.
    pub span: Range<i64>,
    /// Loss intervals, in which the run has lost some calls.
    pub lost: Vec<Range<i64>>,
}

/// The rows of one call on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matched {
    /// Row in the profile.
    pub profile_row: u64,
    /// Row in the captured run.
    pub captured_row: u64,
}

/// A thread on both sides, each as process ID and thread ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// IDs in the profile. They may differ from those of the run, as they do if the profile is from inside a
    /// container.
    pub profile: (u32, u32),
    /// IDs in the captured run.
    pub captured: (u32, u32),
}

/// An alignment that holds.
#[derive(Clone, Debug)]
pub struct Aligned {
    /// The relation of the two clocks.
    pub line: Line,
    /// The calls that both sides recorded.
    pub matched: Vec<Matched>,
    /// The threads whose calls were matched.
    pub threads: Vec<Threads>,
    /// Measures of how good the alignment is.
    pub quality: Quality,
}
