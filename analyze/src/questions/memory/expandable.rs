//! What expandable segments would have changed, as the simulator of `analyze what-if` computes it. Advice about
//! them quotes its figures and no others.

use std::{cmp::Ordering, fmt};

use trace_schema::{Bytes, Nanos};

use crate::{
    questions::{
        memory::{history, history_report::OomReport},
        what_if::{self, Params, WhatIf},
    },
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// The setting that is simulated.
const SETTING: &str = "expandable_segments:True";

/// A request at which a simulation ends, because its outcome is not that on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The time of the request in ns since recording began.
    pub since_start_ns: i64,
    /// The requested size in bytes.
    pub requested_bytes: u64,
}

/// What the simulator finds for one allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Every request has the outcome on record, and the peak is lower by this many bytes.
    Saves(i64),
    /// A request that failed on record is served.
    Serves(Ended),
    /// A request that was served on record fails.
    Fails(Ended),
    /// The simulator makes no claim, for these reasons.
    NotKnown(String),
}

impl Finding {
    fn of(found: &WhatIf) -> Option<Self> {
        let outcome = found.outcomes.first()?;
        let requested_bytes = outcome.ended_requested_bytes.unwrap_or_default();
        let ended = |since_start_ns| Ended { since_start_ns, requested_bytes };
        let recorded = found.peak_reserved_bytes as i64;
        Some(match (outcome.serves_since_start_ns, outcome.fails_since_start_ns) {
            _ if !outcome.is_known => Self::NotKnown(found.notes.join("; ")),
            (Some(ns), _) => Self::Serves(ended(ns)),
            (_, Some(ns)) => Self::Fails(ended(ns)),
            _ if outcome.ended_replays_count > 0 => Self::NotKnown(found.notes.join("; ")),
            // The least of a range is what is certain.
            _ => Self::Saves(recorded - outcome.peak_reserved_max_bytes as i64),
        })
    }

    /// Returns whether expandable segments would save nothing.
    pub fn is_no_help(&self) -> bool {
        matches!(self, Self::Saves(..=0) | Self::Fails(_))
    }

    /// Returns whether the request that failed at this time since recording began is served; `None` if the
    /// simulation does not get there.
    fn serves(&self, since_start_ns: i64) -> Option<bool> {
        match self {
            Self::Saves(_) => Some(false),
            Self::Serves(ended) => match since_start_ns.cmp(&ended.since_start_ns) {
                Ordering::Less => Some(false),
                Ordering::Equal => Some(true),
                Ordering::Greater => None,
            },
            Self::Fails(ended) => (since_start_ns < ended.since_start_ns).then_some(false),
            Self::NotKnown(_) => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = |ended: &Ended| (Bytes(ended.requested_bytes as i64), Nanos(ended.since_start_ns));
        match self {
            Self::Saves(bytes) => {
                write!(f, "with them, `analyze what-if` has a peak that is lower by {}", Bytes(*bytes))
            }
            Self::Serves(ended) => {
                let (bytes, at) = request(ended);
                write!(
                    f,
                    "with them, `analyze what-if` serves the {bytes} that failed at {at}; the rest is not known"
                )
            }
            Self::Fails(ended) => {
                let (bytes, at) = request(ended);
                write!(f, "with them, `analyze what-if` is out of memory at {at}, for {bytes}")
            }
            Self::NotKnown(reasons) => {
                write!(f, "`analyze what-if` does not know what they would save: {reasons}")
            }
        }
    }
}

/// What the simulator finds for each allocator of a run.
#[derive(Clone, Debug, Default)]
pub struct Expandable(Vec<(u32, i32, Finding)>);

impl Expandable {
    /// Simulates one run.
    pub async fn of(trace: &Trace) -> Result<Self, AnalyzeError> {
        let params = Params { settings: vec![SETTING.to_owned()], ..Params::default() };
        let found = what_if::run(trace, &params).await?;
        let finding = |of: &WhatIf| Some((of.pid, of.device, Finding::of(of)?));
        Ok(Self(found.iter().filter_map(finding).collect()))
    }

    /// Returns what is found for an allocator; `None` if it was not simulated.
    pub fn finding(&self, pid: u32, device: i32) -> Option<&Finding> {
        self.0.iter().find(|(of, on, _)| (*of, *on) == (pid, device)).map(|(.., finding)| finding)
    }

    /// Completes requests that failed, where it is not certain already what expandable segments would have
    /// done.
    pub fn explain(&self, ooms: &mut [OomReport]) {
        for oom in ooms.iter_mut().filter(|oom| is_open(oom)) {
            let finding = self.finding(oom.pid, oom.device);
            oom.expandable_serves = finding.and_then(|finding| finding.serves(oom.since_start_ns));
            if oom.expandable_serves.is_none() {
                oom.expandable_reason = finding.map(Finding::to_string);
            }
        }
    }
}

/// Returns whether it is open what expandable segments would have done for a request that failed.
fn is_open(oom: &OomReport) -> bool {
    !oom.is_expandable && oom.expandable_helps.is_none()
}

/// Returns the requests of one run that failed, with what expandable segments would have done.
pub async fn failures(trace: &Trace) -> Result<Vec<OomReport>, AnalyzeError> {
    let mut ooms = history::run(trace).await?.ooms;
    if ooms.iter().any(is_open) {
        Expandable::of(trace).await?.explain(&mut ooms);
    }
    Ok(ooms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_tells_up_to_where_it_ends() {
        let ended = Ended { since_start_ns: 20, requested_bytes: 1 << 20 };
        let of = |finding: Finding| [10, 20, 30].map(|ns| finding.serves(ns));
        assert_eq!(of(Finding::Saves(0)), [Some(false); 3]);
        assert_eq!(of(Finding::Serves(ended)), [Some(false), Some(true), None]);
        assert_eq!(of(Finding::Fails(ended)), [Some(false), None, None]);
        assert_eq!(of(Finding::NotKnown("the control is off".to_owned())), [None; 3]);
    }
}
