//! The data of a report: the results of every analysis of one run.

use serde::Serialize;
use tokio::try_join;

use crate::{
    questions::{
        chains::{Chains, EXAMPLES},
        devices::{self, Device},
        findings::{Findings, Inputs, Outline},
        host_gaps::{self, Gaps},
        info::Info,
        kernels::Kernels,
        memory::overview::Overview,
        nccl::{self, Volume},
        phases::{self, Phase},
        steps::{self, ProcessSteps},
        summary::{self, Line},
        timeline::{self, Timeline},
        where_time_went::ProcessTime,
    },
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use trace_schema::Kind;

/// Version of the report's JSON. Additions keep it; changes and removals raise it.
pub const VERSION: u32 = 1;

/// Results of all analyses of one run.
#[derive(Serialize)]
pub struct Report {
    /// Version of this format.
    pub report_version: u32,
    /// The run, its circumstances and its warnings.
    pub info: Info,
    /// True if the scheduler was recorded. If not, the absence of waiting for a CPU proves nothing.
    pub has_schedule: bool,
    /// What is wrong, ranked.
    pub findings: Findings,
    /// Where the wall time of each process with calls went, longest first.
    pub run_time: Vec<ProcessTime>,
    /// Steps of each process in which some were found, and what slower ones spend more time on.
    pub steps: Vec<ProcessSteps>,
    /// Slow calls, their causes and wait chains.
    pub chains: Chains,
    /// Durations of calls by function and group.
    pub strata: Vec<Line>,
    /// Phases that the workload named.
    pub phases: Vec<Phase>,
    /// Time between launches, by what the host did.
    pub launch_gaps: Gaps,
    /// Kernels that GPUs ran; `None` if no profile of the GPU is on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Kernels>,
    /// Time in calls and waiting for a CPU, by thread.
    pub timeline: Timeline,
    /// Memory of PyTorch's allocators; `None` if no allocator event was recorded.
    pub memory: Option<Overview>,
    /// Counters of GPUs; empty if none were sampled.
    pub devices: Vec<Device>,
    /// NCCL operations; empty if none were recorded.
    pub nccl: Vec<Volume>,
}

impl Report {
    /// Runs every analysis. Those of calls share one sweep of the rows, while the memory is replayed.
    pub async fn of(trace: &Trace) -> Result<Self, AnalyzeError> {
        let outline = Outline::of(trace).await?;
        // Each analysis of calls reads all of them: none is made of what the run has no row of.
        let (has_calls, has_ranges) = (outline.has(Kind::Call, ""), outline.has(Kind::Mark, "range"));
        let (has_nccl, has_samples) = (outline.has(Kind::Call, "nccl"), outline.has(Kind::Sample, ""));
        let together = trace.together();
        let calls = together.trace();
        let (inputs, steps, strata, phases, launch_gaps, timeline, nccl) = try_join!(
            outline.read(trace, &together, EXAMPLES),
            together.part(async { if has_calls { steps::run(calls).await } else { Ok(Vec::new()) } }),
            together.part(summary::run(calls)),
            together.part(async { if has_ranges { phases::run(calls).await } else { Ok(Vec::new()) } }),
            together.part(host_gaps::run(calls)),
            together.part(timeline::run(calls, outline.span_ns)),
            together.part(async { if has_nccl { nccl::run(calls).await } else { Ok(Vec::new()) } }),
        )?;
        let findings = Findings::of(&inputs.facts(&outline));
        let has_schedule = outline.has_schedule();
        let Inputs { run_time, chains, memory, records } = inputs;
        Ok(Self {
            report_version: VERSION,
            info: outline.info,
            has_schedule,
            findings,
            run_time,
            steps,
            chains,
            strata,
            phases,
            launch_gaps,
            kernels: records.gpu.kernels,
            devices: if has_samples { devices::run(trace, &timeline).await? } else { Vec::new() },
            nccl,
            timeline,
            memory,
        })
    }

    /// Serializes the report as JSON.
    ///
    /// # Errors
    /// Returns an error if a value cannot be represented in JSON.
    pub fn json(&self) -> Result<String, AnalyzeError> {
        serde_json::to_string(self).map_err(|error| AnalyzeError::Internal(error.to_string()))
    }

    /// Time in ns at which recording began, from which all displayed times count.
    pub(super) fn origin_ns(&self) -> i64 {
        let clock = &self.info.provenance.clock;
        if clock.end_ns > clock.start_ns { clock.start_ns } else { self.timeline.start_ns }
    }
}
