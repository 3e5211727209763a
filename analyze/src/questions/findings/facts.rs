//! What detectors know, and what a detector is.

use super::{finding::Finding, ledger::Ledger, records::Records};
use crate::questions::{
    chains::Chains, info::Info, memory::overview::Overview, where_time_went::ProcessTime,
};

/// What detectors know of a run. They run no query.
pub struct Facts<'a> {
    /// The run, its circumstances and its warnings.
    pub info: &'a Info,
    /// True if the scheduler was recorded.
    pub has_schedule: bool,
    /// Where the wall time of each process with calls went, longest first.
    pub run_time: &'a [ProcessTime],
    /// Slow calls and their causes.
    pub chains: &'a Chains,
    /// Memory of PyTorch's allocators; `None` if no allocator event was recorded.
    pub memory: Option<&'a Overview>,
    /// What is read for detectors alone.
    pub records: &'a Records,
}

/// Something that looks for findings.
pub struct Detector {
    /// The kinds of its findings, each with what it means.
    pub kinds: &'static [(&'static str, &'static str)],
    /// Finds them. The ledgers are those of `Facts::run_time`, in its order.
    pub detect: for<'a> fn(&Facts<'a>, &mut [Ledger<'a>]) -> Vec<Finding>,
}
