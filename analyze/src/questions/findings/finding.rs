//! One finding: what it costs, how sure that is, what shows it, and what to do.

use serde::Serialize;

/// Least share of a process's wall time that a cost has which is a finding, from 0 to 1.
pub const LEAST_SHARE_RATIO: f64 = 0.02;

/// What a finding is about. What ends a run ranks before what slows it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    /// The run crashed, hangs, or a call failed.
    Failure,
    /// A request for memory failed.
    OutOfMemory,
    /// Memory grows without end.
    Leak,
    /// Time or memory is spent without need.
    Cost,
    /// What a run spends without a fault: it bounds the run, or each run has it once.
    Note,
}

/// How sure the cost of a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The cost is a sum of what is on record.
    Measured,
    /// The record bounds the cost: `cost_range_ns` has the bounds.
    Bounded,
    /// The record does not tell; the finding's `open` says why.
    Inconclusive,
}

/// What shows a finding.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// The figure in words.
    pub text: String,
    /// The query that returns it; empty if there is none.
    pub sql: String,
    /// Section of the report that shows it; empty if there is none.
    pub section: &'static str,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Stable name, such as `waiting-for-cpu`.
    pub kind: &'static str,
    /// What it is about.
    pub rank: Rank,
    /// The process; `None` if it is about several or none.
    pub pid: Option<i64>,
    /// What happened, in one sentence without its cost.
    pub title: String,
    /// Wall time of the process that it costs, in nanoseconds; `None` if it costs none, or if that is not known.
    pub cost_ns: Option<i64>,
    /// Least and largest wall time that it costs, if the record only bounds it.
    pub cost_range_ns: Option<(i64, i64)>,
    /// Memory that it costs, in bytes.
    pub cost_bytes: Option<i64>,
    /// Share of the process's wall time, from 0 to 1.
    pub share_ratio: Option<f64>,
    /// How sure the cost is.
    pub confidence: Confidence,
    /// What the record lacks; empty if it lacks nothing.
    pub open: String,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// One thing to do: a command, a setting or a change.
    pub to_do: String,
    /// What doing it saves, by the simulator or the account; empty if that is not known.
    pub saves: String,
    /// Kinds of the findings whose costs contain a part of this one; costs of others do not overlap.
    pub overlaps: Vec<&'static str>,
}

impl Finding {
    /// Creates a finding about a process, without cost.
    pub fn new(kind: &'static str, rank: Rank, pid: Option<i64>, title: String) -> Self {
        Self {
            kind,
            rank,
            pid,
            title,
            cost_ns: None,
            cost_range_ns: None,
            cost_bytes: None,
            share_ratio: None,
            confidence: Confidence::Measured,
            open: String::new(),
            evidence: Vec::new(),
            to_do: String::new(),
            saves: String::new(),
            overlaps: Vec::new(),
        }
    }

    /// Sets the cost in time as a part of a wall time, both in nanoseconds.
    pub fn costs(mut self, cost_ns: i64, wall_ns: i64) -> Self {
        self.cost_ns = Some(cost_ns);
        self.share_ratio = Some(cost_ns as f64 / wall_ns.max(1) as f64);
        self
    }

    /// Sets what the record bounds the cost by, in nanoseconds: the cost is the largest that it can be.
    pub fn bounded(self, least_ns: i64, most_ns: i64, wall_ns: i64, why: impl Into<String>) -> Self {
        let bounded = self.costs(most_ns, wall_ns);
        Self {
            cost_range_ns: Some((least_ns, most_ns)),
            confidence: Confidence::Bounded,
            open: why.into(),
            ..bounded
        }
    }

    /// Says that the record does not tell, and why.
    pub fn inconclusive(self, why: impl Into<String>) -> Self {
        Self { confidence: Confidence::Inconclusive, open: why.into(), ..self }
    }

    /// Bounds a cost in time of the host's threads where nothing of the scheduler is on record: any part of it may be waiting for
    /// a CPU. What a profile or counters of the GPU measured stays as it is.
    pub fn without_schedule(self) -> Self {
        const OF_GPU: [&str; 2] = ["idle-gpu", "throttling"];
        let Some(most_ns) = self.cost_ns.filter(|_| self.rank >= Rank::Cost && !OF_GPU.contains(&self.kind))
        else {
            return self;
        };
        let why = "the scheduler is not on record: the threads may have waited for a CPU instead";
        let confidence = match self.confidence {
            Confidence::Measured => Confidence::Bounded,
            bounded_or_open => bounded_or_open,
        };
        let open = if self.open.is_empty() { why.to_owned() } else { format!("{}; {why}", self.open) };
        Self { cost_range_ns: Some((0, most_ns)), confidence, open, saves: String::new(), ..self }
    }

    /// Sets the memory that it costs, in bytes.
    pub fn holds(self, cost_bytes: i64) -> Self {
        Self { cost_bytes: Some(cost_bytes), ..self }
    }

    /// Adds evidence: a figure in words, the query that returns it, and the section of the report that shows it.
    pub fn shown_by(
        mut self,
        text: impl Into<String>,
        sql: impl Into<String>,
        section: &'static str,
    ) -> Self {
        self.evidence.push(Evidence { text: text.into(), sql: sql.into(), section });
        self
    }

    /// Sets the one thing to do.
    pub fn to_do(self, to_do: impl Into<String>) -> Self {
        Self { to_do: to_do.into(), ..self }
    }

    /// Sets what doing it saves.
    pub fn saves(self, saves: impl Into<String>) -> Self {
        Self { saves: saves.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_scheduler_a_cost_is_at_most_what_it_seems() {
        let found = |kind| Finding::new(kind, Rank::Cost, None, String::new());
        let bounded = found("copies").costs(5, 10).without_schedule();
        assert_eq!((bounded.cost_range_ns, bounded.confidence), (Some((0, 5)), Confidence::Bounded));
        let bounded = found("copies").bounded(3, 5, 10, "a reason").without_schedule();
        assert_eq!(bounded.cost_range_ns, Some((0, 5)));
        assert!(bounded.open.starts_with("a reason; "), "{}", bounded.open);
        let open = found("copies").costs(5, 10).inconclusive("a reason").without_schedule();
        assert_eq!(open.confidence, Confidence::Inconclusive);
        assert_eq!(found("idle-gpu").costs(5, 10).without_schedule().confidence, Confidence::Measured);
        assert_eq!(found("copies").without_schedule().cost_range_ns, None);
    }
}
