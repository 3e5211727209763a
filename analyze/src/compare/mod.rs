//! Answers whether a set of runs became slower or uses more memory than another set: it tests each gate and
//! keeps the false alarm rate at the promised level.
//!
//! ```text
//! runs, baselines ─► Runs (facts, a frame of figures) ─► gates, exploration ─► run_time, why ─► Comparison (versioned data)
//! ```
//! The rule:
//! 1. The unit of comparison is the run, and a figure is one number per run ([`figure`]). A sum to which
//!    nothing contributed is zero; a figure that was not measured, or that rests on too few calls, is left
//!    out.
//! 2. Runs whose circumstances change what their figures mean are not compared ([`facts`]); the outcome is
//!    inconclusive.
//! 3. The number of runs selects the test ([`samples`]). One or two runs on a side allow no verdict: the
//!    outcome is at most `suspect`.
//! 4. A gate **fails** if the change for the worse is significant (one-sided p, corrected by Holm's method
//!    over all gates, at most α), larger than the gate's limit, and larger than its floor.
//! 5. A gate **passes** if it does not fail and the confidence intervals of the change and of the change of the
//!    mean over the runs exclude everything beyond its limit and its floor. A resolution that the user gives
//!    takes the place of smaller limits. Otherwise the runs are too few or too noisy: the outcome is
//!    inconclusive, and its reason estimates how many runs a side would decide.
//! 6. Sides that do different amounts of work ([`work`]) are compared, but this is said before the verdict.
//! 7. The difference of the wall times is divided by the accounts of whole runs ([`run_time`]), and the findings of the
//!    sides are compared ([`findings`]). Both come first in a report, and never fail a comparison unless a gate names them.
//! 8. Everything else is exploration: it lists what changed, at a false discovery rate of 5 % (Benjamini and
//!    Hochberg), and never fails a comparison.

pub mod baseline;
pub mod change;
pub mod facts;
pub mod figure;
pub mod findings;
pub mod gate;
pub mod judge;
pub mod junit;
pub mod metric;
mod quantity;
pub mod run_time;
pub mod runs;
pub mod samples;
pub mod simulate;
pub mod trend;
pub mod why;
pub mod wide;
pub mod work;
