//! What to do next: what the first findings say. Without findings, it is a step for each cause of slow calls with a substantial
//! share, which follows from the nature of the cause, and the first recommendation on memory.

use super::amount;
use crate::{
    questions::{
        chains::{MAIN_CAUSE_RATIO, WITHOUT_SCHEDULE},
        share::Share,
    },
    report::data::Report,
};
use analyze_verdict::{blocker::Blocker, causes::Cause};

/// Number of findings or causes that get a step.
const STEPS: usize = 2;

/// Step for waits for the GPU where its work is on record.
const WITH_KERNELS: &str = "Look at the kernels, whose work is on record: this is expected synchronization.";

/// Step that suggests itself if this cause took the time.
fn step(cause: Cause) -> &'static str {
    match cause {
        Cause::Scheduler => {
            "Give the slow threads CPUs that the competing tasks do not use (cpuset, taskset), or run those tasks elsewhere."
        }
        Cause::Throttled => "Raise the CPU quota of the control group (cpu.max).",
        Cause::Blocked(Blocker::Ioctl) => {
            "Make fewer calls into the driver at once: the chains show in which calls threads slept there, and who woke them."
        }
        Cause::Blocked(Blocker::Futex) => {
            "Look in the chains for the thread that held the lock, and what delayed it."
        }
        Cause::Blocked(Blocker::PageFault) => {
            "Touch or lock (mlock, pinned buffers) the memory that these calls use before they need it."
        }
        Cause::Blocked(Blocker::Disk) => "Read files ahead of need: calls slept for them.",
        Cause::Blocked(Blocker::Sleep | Blocker::Poll | Blocker::Other) => {
            "Look in the chains for the system call that these calls slept in, and who ended the sleep."
        }
        Cause::GpuWait => {
            "Look at the GPU's own work with a profiler (analyze align joins it): this is expected synchronization."
        }
        Cause::Size => {
            "Nothing on the host: time grows with bytes. Copy less, or overlap copies with other work."
        }
        Cause::FirstCall => {
            "Launch every kernel once before what is timed, or load code at the start (CUDA_MODULE_LOADING=EAGER)."
        }
        Cause::Nested => {
            "The time is in the nested call, which is named with the slow call: analyze that one."
        }
        Cause::Stopped => {
            "Measure without what stops the process by signals; a recorder does while libraries are loaded."
        }
        Cause::Inconclusive => {
            "Record again so that nothing is lost while slow calls run: with larger buffers, or fewer probes."
        }
        Cause::Unexplained => {
            "Record again with --stacks slow:1ms: the threads were on CPU inside the calls, and the trace has no call stacks."
        }
    }
}

/// Returns the steps; at least one sentence.
pub(super) fn all(report: &Report) -> Vec<String> {
    let of_findings = report.findings.findings.iter().filter(|finding| !finding.to_do.is_empty());
    let mut steps: Vec<String> = of_findings.map(|finding| finding.to_do.clone()).collect();
    steps.dedup();
    steps.truncate(STEPS);
    if steps.is_empty() {
        return of_causes(report);
    }
    if !report.has_schedule {
        steps.push(WITHOUT_SCHEDULE.to_owned());
    }
    steps
}

/// Returns the steps that follow from the causes of slow calls and from the memory; at least one sentence.
fn of_causes(report: &Report) -> Vec<String> {
    let mut shares: Vec<&Share> = report.chains.overall.iter().collect();
    shares.retain(|share| share.share_ratio >= MAIN_CAUSE_RATIO);
    shares.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
    let step = |cause| match cause {
        Cause::Inconclusive if !report.has_schedule => WITHOUT_SCHEDULE,
        Cause::GpuWait if report.kernels.is_some() => WITH_KERNELS,
        cause => step(cause),
    };
    let mut steps: Vec<String> = shares
        .iter()
        .take(STEPS)
        .map(|share| format!("{}: {}", share.cause.label(), step(share.cause)))
        .collect();
    if let Some(advice) = report.memory.as_ref().and_then(|memory| memory.review.advice.first()) {
        let amount = amount(advice).map_or_else(String::new, |amount| format!(" ({amount})"));
        steps.push(format!("memory{amount}: {}.", advice.text.trim_end_matches('.')));
    }
    if steps.is_empty() {
        steps.push("Nothing that this run shows.".to_owned());
    }
    steps
}
