//! Everything that a report shows about PyTorch's memory, computed in two replays: the second one stops at
//! the instants that the first one found.
//!
//! ```text
//! first:   the curve, block lifetimes, releases, failures, survivors of epochs ──► the peak, the failures
//! second:  what was held at the peak, at the end and at failures; its layout at the peak
//! ```

use serde::Serialize;

use crate::questions::memory::{
    advice::{self, Review},
    curve::{Curve, Filling},
    history,
    map::{Layout, Lives, Map},
    state::{At, Plan},
};
use crate::trace::Trace;
use analyze_memory::input::Input;
use analyze_memory::leaks::growth::{self, Growth};
use analyze_run::error::AnalyzeError;

/// The memory of PyTorch's allocators over one run.
#[derive(Serialize)]
pub struct Overview {
    /// The memory over time.
    pub curve: Curve,
    /// The state at the peak and at the end, the history, and advice.
    pub review: Review,
    /// The layout at the peak, and the lifetimes of the largest blocks.
    pub map: Map,
    /// The growth of each allocator.
    pub growth: Vec<Growth>,
}

/// Analyzes one run; returns `None` if it has no allocator events.
pub async fn run(trace: &Trace) -> Result<Option<Overview>, AnalyzeError> {
    let clock = trace.files().first().map(|file| file.run.clock.clone()).unwrap_or_default();
    let growths = growth::Plan::of(&trace.events(), trace.files(), &growth::Params::default()).await?;
    let history = history::Plan::of(trace).await?;
    let input = Input::new(trace.events(), trace.files());
    let listeners =
        ((Filling::new(&clock), Lives::new(clock.end_ns)), (history.watch(), growths.survivors()));
    let (replay, ((filling, lives), (watch, survivors))) =
        input.replay(vec![history.instants()], listeners).await?;
    if filling.is_empty() {
        return Ok(None);
    }
    let growth = growths.finish(&trace.events(), &replay, survivors).await?;
    let mut history = history.finish(trace, watch).await?;
    let mut ats = vec![filling.peak(), At::End];
    ats.extend(history.moments_wanted());
    let plan = Plan::of(trace, &ats).await?;
    let layout = Layout::new(plan.number(0));
    let (_, (watch, layout)) = input.replay(vec![plan.times()], (plan.watch(), layout)).await?;
    let mut moments = plan.finish(trace, watch).await?.into_iter();
    let (Some(peak), Some(end)) = (moments.next(), moments.next()) else {
        return Err(AnalyzeError::Internal("an instant has no moment".to_owned()));
    };
    history.add_moments(moments);
    Ok(Some(Overview {
        curve: filling.finish(trace).await?,
        review: advice::review(trace, peak, end, history).await?,
        map: Map::of(layout, lives),
        growth,
    }))
}
