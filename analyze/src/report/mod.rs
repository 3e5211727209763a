//! The page people send to each other: one HTML file, no request, no script needed. Sections build data; the
//! template in `assets/` renders it and escapes every string from the trace; `svg.rs` draws the figures.

mod memory_svg;
mod section;
mod svg;

use askama::Template;

use crate::{
    analysis::{
        chains::{self, EXAMPLES},
        info,
        judge::Params,
        memory, memory_advice, memory_map, phases, summary, timeline,
    },
    error::AnalyzeError,
    trace::Trace,
};

#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    title: String,
    verdict: section::verdict::Headline,
    provenance: section::provenance::Provenance,
    causes: Vec<section::verdict::Bar>,
    functions: Vec<section::verdict::Function>,
    culprits: Vec<section::verdict::Culprit>,
    slowest: Vec<section::verdict::SlowCall>,
    summary: section::strata::Strata,
    phases: Option<section::phases::Phases>,
    memory: Option<section::memory::Memory>,
    timeline: Option<section::timeline::Timeline>,
}

/// Builds the page of one run.
///
/// # Errors
/// If the run's data cannot be read.
pub(crate) async fn html(trace: &Trace) -> Result<String, AnalyzeError> {
    let info = info::run(trace).await?;
    let info = info.first().ok_or_else(|| AnalyzeError::Internal("a report needs a run".to_owned()))?;
    let chains = chains::run(trace, Params::default(), EXAMPLES).await?;
    let lines = summary::run(trace).await?;
    let curve = memory::run(trace).await?;
    let review = memory_advice::run(trace).await?;
    let map = memory_map::run(trace, review.peak.ts_ns).await?;
    let lanes = timeline::run(trace).await?;
    let page = Page {
        title: info.run.clone(),
        verdict: section::verdict::headline(&chains),
        provenance: section::provenance::build(info),
        causes: section::verdict::bars(&chains.overall),
        functions: section::verdict::functions(&chains),
        culprits: section::verdict::culprits(&chains),
        slowest: section::verdict::slowest(&chains),
        summary: section::strata::build(&lines),
        phases: section::phases::build(&phases::run(trace).await?),
        memory: section::memory::build(&curve, &review, &map)?,
        timeline: section::timeline::build(&lanes)?,
    };
    page.render().map_err(|error| AnalyzeError::Internal(error.to_string()))
}
