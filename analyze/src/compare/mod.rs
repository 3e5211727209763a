//! Did it get slower or hungrier? Two sets of runs, gate by gate, with a probability of crying wolf that holds.
//!
//! ```text
//! runs, baselines ──► RunFigures (facts, figures) ──► gates, exploration ──► why ──► Comparison (data, versioned)
//! ```
//! The rule:
//! 1. The unit is the run, and a figure one number of it ([`figure`]); sums that nothing contributed to are zero, what was
//!    not measured or rests on too few calls is left out.
//! 2. Runs whose circumstances make figures mean something else are not compared ([`facts`]): inconclusive.
//! 3. The test is that of [`samples`], by the number of runs. One or two on a side allow no verdict: at most `suspect`.
//! 4. A gate **fails** if the change for the worse is significant (p of one direction, by Holm over all gates, at most α),
//!    larger than its limit, and larger than its floor.
//! 5. It **passes** if it does not fail and the interval of the change excludes anything beyond the resolution (or the limit,
//!    if that is more). Else the runs are too few or too noisy to tell: inconclusive.
//! 6. Everything else is exploration: what changed, by Benjamini and Hochberg at 5 %; it fails nothing.

pub mod baseline;
pub mod facts;
pub mod figure;
pub mod gate;
pub mod judge;
pub mod junit;
pub mod samples;
pub mod simulate;
pub mod trend;
pub mod why;
