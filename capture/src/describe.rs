//! The metadata of a run, as far as it is known before the first event.

use trace_schema::{Redactor, Run};

use crate::{
    clock, host,
    kernel::Kernel,
    nvml::Sampler,
    options::{Options, Subject},
    probes::Profile,
};

/// The metadata of a run at its start. `sampler` is `None` if GPU counters are switched off, and the reason if NVML
/// cannot be used.
pub(crate) fn run(options: &Options, kernel: &Kernel, sampler: Option<&Result<Sampler, String>>) -> Run {
    let mut not_captured = vec![
        Run::NO_DEVICE_ROWS.to_owned(),
        "runtime calls through a private copy of the CUDA runtime, which cuBLASLt and cuDNN have: only their \
         driver calls have rows, with that library as caller"
            .to_owned(),
    ];
    let mut without = |what: &str, flag: &str| not_captured.push(format!("{what} ({flag})"));
    match options.profile {
        Profile::Light => {
            without("kernel launches, allocator events, event records and queries", "--profile light")
        }
        Profile::Default => {
            without("kernel launches at the runtime API, event records and queries", "--profile default");
        }
        Profile::Full => {}
    }
    for left_out in &options.without {
        without(left_out.name(), "--without");
    }
    if !options.stacks.any() {
        without("call stacks", "no --stacks");
    }
    if !kernel.tells_throttling() {
        without("throttling as a state of its own, apart from preemption", "this kernel has no CPU quotas");
    }
    match sampler {
        None => without("GPU counters", "--nvml off"),
        Some(Err(reason)) => without("GPU counters", &format!("NVML: {reason}")),
        Some(Ok(_)) => {}
    }
    let gpus = match sampler {
        Some(Ok(sampler)) => sampler.gpus.clone(),
        _ => host::gpus(),
    };
    let mut run = Run {
        producer: concat!("inquest capture ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: options.subject.describe(),
        joined_running: matches!(options.subject, Subject::Processes(_) | Subject::AllCuda),
        host: host::host(),
        gpus,
        clock: clock::start(),
        profile: options.profile.name().to_owned(),
        attach_method: kernel.method().name().to_owned(),
        lost_is_counted: true,
        throttling_is_recorded: kernel.tells_throttling(),
        not_captured,
        ..Run::default()
    };
    Redactor::new(options.redaction.clone(), &run).run(&mut run);
    run
}
