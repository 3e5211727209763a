//! The causes a slow call can have, and how its excess is divided among them.
//!
//! ```text
//! 0 ├── baseline ──┤├──────────────────── excess ────────────────────────┤ dur
//!                   stopped │ scheduler │ blocked │ size │ first │ nested │ rest
//! ```
//! Measured times come first: what its own thread's off-CPU intervals say of this very call. Only what
//! they leave is put down to a property of the call (its size, being the first of its kernel), then to
//! a nested call of another kind, and the rest stays unexplained. No part exceeds what is left, so the
//! parts of a call sum to its excess.

use serde::Serialize;

/// One reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// It was runnable and another task had the CPU; or it was off CPU inside a call that has no
    /// reason to sleep, and the source does not record why.
    Scheduler,
    /// It slept inside a call whose purpose is not to wait.
    Blocked,
    /// It waited for the GPU, as a synchronising call should.
    GpuWait,
    /// It moved more bytes than the usual call of its kind.
    Size,
    /// It was the first launch of its kernel: the driver loads code.
    FirstCall,
    /// A nested call of another kind took longer than usual.
    Nested,
    /// The recorder stopped the process to place its probes.
    Recorder,
    /// The source does not record what is needed to tell.
    Inconclusive,
    /// None of these.
    Unexplained,
}

impl Cause {
    /// Every cause, in the order in which they are shown.
    pub(crate) const ALL: [Self; 9] = [
        Self::Scheduler,
        Self::Blocked,
        Self::GpuWait,
        Self::Size,
        Self::FirstCall,
        Self::Nested,
        Self::Recorder,
        Self::Inconclusive,
        Self::Unexplained,
    ];

    /// The name users see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Blocked => "blocked",
            Self::GpuWait => "gpu-wait",
            Self::Size => "size",
            Self::FirstCall => "first-call",
            Self::Nested => "nested",
            Self::Recorder => "recorder",
            Self::Inconclusive => "inconclusive",
            Self::Unexplained => "unexplained",
        }
    }
}

/// What is known of one slow call. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// Time above its function's baseline.
    pub(crate) excess: f64,
    /// Waiting for the GPU is what it is for.
    pub(crate) synchronises: bool,
    pub(crate) preempted: f64,
    pub(crate) runnable: f64,
    pub(crate) blocked: f64,
    pub(crate) stopped: f64,
    pub(crate) unknown: f64,
    /// What its size costs above the baseline, by the fitted line.
    pub(crate) size: f64,
    pub(crate) first_call: bool,
    /// Time of a nested call of another kind above the usual.
    pub(crate) nested: f64,
}

/// Divides a call's excess. The parts sum to it.
pub(crate) fn divide(call: &Evidence) -> [(Cause, f64); 9] {
    let mut left = call.excess.max(0.0);
    let mut take = |wanted: f64| {
        let taken = wanted.clamp(0.0, left);
        left -= taken;
        taken
    };
    let recorder = take(call.stopped);
    let scheduler = take(call.preempted + call.runnable + if call.synchronises { 0.0 } else { call.unknown });
    let inconclusive = take(if call.synchronises { call.unknown } else { 0.0 });
    let asleep = take(call.blocked);
    let size = take(call.size);
    let first = take(if call.first_call { f64::INFINITY } else { 0.0 });
    let nested = take(call.nested);
    let waiting = take(if call.synchronises { f64::INFINITY } else { 0.0 });
    let (blocked, gpu_wait) = if call.synchronises { (0.0, asleep + waiting) } else { (asleep, 0.0) };
    [
        (Cause::Scheduler, scheduler),
        (Cause::Blocked, blocked),
        (Cause::GpuWait, gpu_wait),
        (Cause::Size, size),
        (Cause::FirstCall, first),
        (Cause::Nested, nested),
        (Cause::Recorder, recorder),
        (Cause::Inconclusive, inconclusive),
        (Cause::Unexplained, left),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_excess() {
        let mut seed = 7_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as f64 / 1000.0
        };
        for round in 0..1000 {
            let call = Evidence {
                excess: random(),
                synchronises: round % 3 == 0,
                preempted: random(),
                runnable: random() / 4.0,
                blocked: random(),
                stopped: random() / 9.0,
                unknown: random() / 5.0,
                size: random() - 5.0,
                first_call: round % 5 == 0,
                nested: random(),
            };
            let parts = divide(&call);
            assert!(parts.iter().all(|(_, part)| *part >= 0.0));
            let sum: f64 = parts.iter().map(|(_, part)| part).sum();
            assert!((sum - call.excess).abs() < 1e-6, "{call:?}");
            assert_eq!(parts.map(|(cause, _)| cause), Cause::ALL);
        }
    }

    #[test]
    fn a_synchronising_call_that_sleeps_did_its_job() {
        let call = Evidence {
            excess: 100.0,
            synchronises: true,
            blocked: 90.0,
            preempted: 5.0,
            ..Evidence::default()
        };
        let parts = divide(&call);
        assert_eq!(parts[0], (Cause::Scheduler, 5.0));
        assert_eq!(parts[2], (Cause::GpuWait, 95.0));
        let launch = Evidence { synchronises: false, ..call };
        assert_eq!(divide(&launch)[1], (Cause::Blocked, 90.0));
    }
}
