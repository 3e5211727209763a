//! The report that people send to each other: what was slow, why, who is innocent, where the memory is.
//!
//! ```text
//! analyses ──► Report (data, versioned) ──► sections ──► Document ──► form: HTML, Markdown, terminal
//!                   └──► JSON, also inside the page              └──► SVG files
//! ```
//! [`Report::of`] asks every analysis once; a section turns answers into blocks and asks nothing; a form shows blocks
//! and knows nothing of what they mean.

mod document;
mod forest_svg;
mod form;
mod memory_svg;
mod section;
mod svg;
mod time_svg;

use serde::Serialize;

use crate::{
    questions::{
        chains::{self, Chains, EXAMPLES},
        devices::{self, Device},
        host_gaps::{self, Gaps},
        info::{self, Info},
        memory::overview::{self, Overview},
        nccl::{self, Volume},
        phases::{self, Phase},
        summary::{self, Line},
        timeline::{self, Timeline},
    },
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::classify::Params;

pub use document::{Block, Document};
pub use form::{
    html::page,
    markdown::text as markdown,
    terminal::{spark, text as terminal},
};
pub use section::comparison::document as comparison;

/// Of the data. What is added keeps it; what changes or goes raises it.
pub const VERSION: u32 = 1;

/// What the analyses say of one run.
#[derive(Serialize)]
pub struct Report {
    pub report_version: u32,
    pub info: Info,
    /// Whether the scheduler's doings are on record at all: if not, that a thread did not wait proves nothing.
    pub has_schedule: bool,
    pub chains: Chains,
    pub strata: Vec<Line>,
    pub phases: Vec<Phase>,
    pub launch_gaps: Gaps,
    pub timeline: Timeline,
    /// `None`: no event of an allocator is on record.
    pub memory: Option<Overview>,
    /// Counters of GPUs; none: they were not read.
    pub devices: Vec<Device>,
    /// NCCL's operations; none: none is on record.
    pub nccl: Vec<Volume>,
}

impl Report {
    /// Asks every analysis.
    ///
    /// # Errors
    /// If the run's data cannot be read.
    pub async fn of(trace: &Trace) -> Result<Self, AnalyzeError> {
        let infos = info::run(trace).await?;
        let info = infos.into_iter().next();
        let timeline = timeline::run(trace).await?;
        let off_cpu = trace.batches("SELECT 1 AS one FROM events WHERE kind = 'off_cpu' LIMIT 1").await?;
        Ok(Self {
            report_version: VERSION,
            info: info.ok_or_else(|| AnalyzeError::Internal("a report needs a run".to_owned()))?,
            has_schedule: off_cpu.iter().any(|batch| batch.num_rows() > 0),
            chains: chains::run(trace, Params::default(), EXAMPLES).await?,
            strata: summary::run(trace).await?,
            phases: phases::run(trace).await?,
            launch_gaps: host_gaps::run(trace).await?,
            devices: devices::run(trace, &timeline).await?,
            nccl: nccl::run(trace).await?,
            timeline,
            memory: overview::run(trace).await?,
        })
    }

    /// As JSON.
    ///
    /// # Errors
    /// If a value has no JSON.
    pub fn json(&self) -> Result<String, AnalyzeError> {
        serde_json::to_string(self).map_err(|error| AnalyzeError::Internal(error.to_string()))
    }

    /// When recording began: 0 of every time that is shown.
    fn origin_ns(&self) -> i64 {
        let clock = &self.info.provenance.clock;
        if clock.end_ns > clock.start_ns { clock.start_ns } else { self.timeline.start_ns }
    }

    /// As blocks.
    pub fn document(&self) -> Document {
        let origin_ns = self.origin_ns();
        let mut sections = vec![
            section::causes::build(&self.chains),
            section::functions::build(&self.chains, self.has_schedule),
        ];
        sections.extend(section::culprits::build(&self.chains));
        sections.extend([
            section::chains::build(&self.chains),
            section::gaps::build(&self.launch_gaps, self.has_schedule),
            section::nccl::build(&self.nccl),
        ]);
        sections.extend(section::phases::build(&self.phases, self.has_schedule));
        sections.extend([
            section::memory::build(self.memory.as_ref()),
            section::timeline::build(&self.timeline, origin_ns, self.has_schedule),
            section::devices::build(&self.devices, &self.timeline, origin_ns),
            section::strata::build(&self.strata),
            section::provenance::build(&self.info),
        ]);
        Document { title: self.info.run.clone(), verdict: section::headline::build(self), sections }
    }
}
