//! Everything that a report shows about PyTorch's memory, computed in a replay and a part of another one, which stops at the
//! last of the instants that the first one found.
//!
//! ```text
//! first:   the curve, block lifetimes, releases, failures, survivors of epochs ──► the peak, the failures
//!          what was held at the end
//! second:  what was held at the peak and at failures; its layout at the peak
//! ```

use serde::Serialize;

use crate::questions::{
    info::Present,
    memory::{
        advice::{self, Review},
        curve::{Curve, Filling},
        history,
        map::{Layout, Lives, Map},
        state::{At, Plan},
    },
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

/// Analyzes one run, of which these rows are present; returns `None` if it has no allocator events.
pub async fn run(trace: &Trace, present: &Present) -> Result<Option<Overview>, AnalyzeError> {
    let clock = trace.files().first().map(|file| file.run.clock.clone()).unwrap_or_default();
    let input = Input::new(trace.events(), trace.files());
    let growths = growth::Plan::of(&input, &growth::Params::default()).await?;
    let history = history::Plan::of(trace, present.clone()).await?;
    let end = Plan::of(trace, &[At::End]).await?;
    let mut instants = history.instants();
    let end_watch = end.watch(instants.len());
    instants.extend(end.times());
    let listeners = (
        (Filling::new(&clock), Lives::new(clock.end_ns)),
        ((history.watch(), growths.survivors()), end_watch),
    );
    let (replay, ((filling, lives), ((watch, survivors), end_watch))) =
        input.replay(vec![instants], listeners).await?;
    if filling.is_empty() {
        return Ok(None);
    }
    let growth = growths.finish(&trace.events(), &replay, survivors).await?;
    drop(replay);
    let mut history = history.finish(trace, watch).await?;
    let mut ats = vec![filling.peak(), At::End];
    ats.extend(history.moments_wanted());
    let plan = Plan::of(trace, &ats).await?;
    let layout = Layout::new(plan.number(0));
    // The end is the last instant, and its state is known.
    let mut times = plan.times();
    times.pop();
    let (_, (mut watch, layout)) = input.replay_until(vec![times], (plan.watch(0), layout)).await?;
    watch.append(end_watch);
    let mut moments = plan.finish(trace, watch, &input, present).await?.into_iter();
    let (Some(peak), Some(end)) = (moments.next(), moments.next()) else {
        return Err(AnalyzeError::Internal("an instant has no moment".to_owned()));
    };
    history.add_moments(moments);
    Ok(Some(Overview {
        curve: filling.finish(trace, present).await?,
        review: advice::review(trace, peak, end, history).await?,
        map: Map::of(layout, lives),
        growth,
    }))
}
