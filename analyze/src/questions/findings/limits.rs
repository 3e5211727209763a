//! Whether a finding fails a check.

use serde::Serialize;

use super::finding::{Confidence, Finding, Rank};

/// What findings may cost.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest share of the process's wall time, from 0 to 1.
    pub share_ratio: f64,
    /// Largest time in nanoseconds; `None` for any.
    pub cost_ns: Option<i64>,
    /// Kinds that do not fail.
    pub allowed: Vec<String>,
}

/// What a check decides on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// It fails the check.
    Fails,
    /// It is within the limits.
    Within,
    /// Its kind is allowed.
    Allowed,
    /// The record does not tell.
    Open,
}

impl Decision {
    /// Returns the decision in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Within => "within the limits",
            Self::Allowed => "allowed",
            Self::Open => "inconclusive",
        }
    }
}

impl Limits {
    /// Returns whether a finding would be over the limits if it cost this many nanoseconds.
    fn is_over(&self, finding: &Finding, cost_ns: i64) -> bool {
        let largest_ns = finding.cost_ns.unwrap_or(cost_ns).max(1);
        let ratio = finding.share_ratio.unwrap_or(0.0) * cost_ns as f64 / largest_ns as f64;
        ratio > self.share_ratio || self.cost_ns.is_some_and(|most| cost_ns > most)
    }

    /// Decides on a finding.
    pub fn decide(&self, finding: &Finding) -> Decision {
        if self.allowed.iter().any(|kind| kind == finding.kind) {
            return Decision::Allowed;
        }
        match (finding.confidence, finding.rank, finding.cost_range_ns, finding.cost_ns) {
            (Confidence::Inconclusive, ..) => Decision::Open,
            (_, Rank::Failure | Rank::OutOfMemory | Rank::Leak, ..) => Decision::Fails,
            (Confidence::Bounded, Rank::Cost, Some((least, most)), _) => {
                match (self.is_over(finding, least), self.is_over(finding, most)) {
                    (true, _) => Decision::Fails,
                    (false, true) => Decision::Open,
                    (false, false) => Decision::Within,
                }
            }
            (_, Rank::Cost, _, Some(cost_ns)) if self.is_over(finding, cost_ns) => Decision::Fails,
            (_, Rank::Cost | Rank::Note, ..) => Decision::Within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { share_ratio: 0.1, cost_ns: None, allowed: vec!["stopped".to_owned()] }
    }

    fn cost(kind: &'static str) -> Finding {
        Finding::new(kind, Rank::Cost, Some(1), String::new())
    }

    #[test]
    fn a_cost_fails_above_the_limit_and_a_bound_only_if_all_of_it_is_above() {
        assert_eq!(limits().decide(&cost("a").costs(100, 1000)), Decision::Within);
        assert_eq!(limits().decide(&cost("a").costs(101, 1000)), Decision::Fails);
        assert_eq!(limits().decide(&cost("stopped").costs(500, 1000)), Decision::Allowed);
        assert_eq!(limits().decide(&cost("a").bounded(0, 100, 1000, "")), Decision::Within);
        assert_eq!(limits().decide(&cost("a").bounded(0, 200, 1000, "")), Decision::Open);
        assert_eq!(limits().decide(&cost("a").bounded(150, 200, 1000, "")), Decision::Fails);
        assert_eq!(limits().decide(&cost("a").costs(500, 1000).inconclusive("")), Decision::Open);
        let by_time = Limits { cost_ns: Some(40), ..limits() };
        assert_eq!(by_time.decide(&cost("a").costs(41, 1000)), Decision::Fails);
        assert_eq!(by_time.decide(&cost("a").costs(40, 1000)), Decision::Within);
    }

    #[test]
    fn what_ended_a_run_fails_whatever_it_cost() {
        for rank in [Rank::Failure, Rank::OutOfMemory, Rank::Leak] {
            let finding = Finding::new("a", rank, None, String::new());
            assert_eq!(limits().decide(&finding), Decision::Fails);
        }
        assert_eq!(limits().decide(&cost("a").holds(1 << 40)), Decision::Within);
        let note = Finding::new("a", Rank::Note, None, String::new()).costs(900, 1000);
        assert_eq!(limits().decide(&note), Decision::Within);
    }
}
