//! What bounds a run: in one sentence, what the driving thread or the GPU spent most of the time on after the first launch.
//!
//! A thread that waits for the GPU is bound by it, and one that never does is bound by the host. A launch takes long, too, if the
//! GPU has more work queued than its queue holds: then the launch is a wait.

use trace_schema::{Counted, Nanos};

use super::records::gpu::GpuRecord;
use crate::questions::where_time_went::{ProcessTime, Slice};

/// Least share of the time that bounds a run.
const MAIN_RATIO: f64 = 0.5;
/// Least share of the profiled time in which a GPU that bounds a run is busy.
const BUSY_RATIO: f64 = 0.8;
/// Largest share of the time that a thread waits for the GPU which is not bound by it.
const LEAST_WAIT_RATIO: f64 = 0.05;
/// Least mean time of a launch in nanoseconds that is a wait for room in the GPU's queue: ten times what launching takes.
const FULL_QUEUE_NS: i64 = 50_000;
/// Number of kernels that are named.
const NAMED: usize = 2;

/// Names the kernels with most time; empty if none is on record.
fn kernels(gpu: &GpuRecord) -> String {
    let kernels =
        gpu.kernels.iter().flat_map(|kernels| &kernels.kernels).filter(|kernel| !kernel.name.is_empty());
    let named: Vec<String> = kernels
        .take(NAMED)
        .map(|kernel| format!("{} ({:.0} %)", kernel.short_name(), 100.0 * kernel.share_ratio))
        .collect();
    if named.is_empty() { String::new() } else { format!("; most time of kernels: {}", named.join(", ")) }
}

/// Says what bounds a process.
pub(super) fn of(process: &ProcessTime, gpu: &GpuRecord) -> String {
    let time = |is_wanted: &dyn Fn(&Slice) -> bool| {
        let wanted = process.slices.iter().filter(|slice| is_wanted(slice));
        wanted.fold((0_i64, 0_i64), |(ns, count), slice| {
            (ns.saturating_add(slice.time_ns), count.saturating_add(slice.intervals_count))
        })
    };
    let is_running = |slice: &Slice| slice.is_start_up != Some(true);
    let (running_ns, _) = time(&is_running);
    let ratio = |ns: i64| ns as f64 / running_ns.max(1) as f64;
    let percent = |ns: i64| format!("{:.0} %", 100.0 * ratio(ns));
    let part = |part: &'static str| time(&move |slice: &Slice| is_running(slice) && slice.part == part);
    let after = match process.start_up_ns {
        Some(start_up_ns) if start_up_ns > 0 => {
            format!("After the first launch, which came after {}, ", Nanos(start_up_ns))
        }
        _ => "In its wall time, ".to_owned(),
    };
    let ((sync_ns, _), (launch_ns, launches), (host_ns, _)) = (part("sync"), part("launch"), part("host"));
    // A copy to the host waits for the GPU, too.
    let own = gpu.overlaps.iter().filter(|wait| wait.pid == process.pid);
    let in_waits_ns = own.fold(0_i64, |sum, wait| sum.saturating_add(wait.waited_ns));
    let wait_ns = sync_ns.max(in_waits_ns.min(sync_ns.saturating_add(part("copy").0)));
    let launch_mean_ns = launch_ns.checked_div(launches).unwrap_or(0);
    let busy_ns = process.gpu_busy_ns.unwrap_or(0);
    let idle_ns = process.parts.iter().filter_map(|part| part.gpu_idle_ns).fold(0, i64::saturating_add);
    let span_ns = busy_ns.saturating_add(idle_ns);
    if span_ns > 0 && busy_ns as f64 >= BUSY_RATIO * span_ns as f64 {
        return format!(
            "Compute-bound: the GPU was busy for {:.0} % of the {} that its profile covers{}.",
            100.0 * busy_ns as f64 / span_ns as f64,
            Nanos(span_ns),
            kernels(gpu)
        );
    }
    if ratio(wait_ns) >= MAIN_RATIO {
        return format!(
            "{after}the process waited for the GPU for {} of the time: compute-bound.",
            percent(wait_ns)
        );
    }
    if ratio(launch_ns) >= MAIN_RATIO && launch_mean_ns >= FULL_QUEUE_NS {
        return format!(
            "{after}the process was in launches for {} of the time, {} each, as launches are that wait for room in the GPU's queue: compute-bound.",
            percent(launch_ns),
            Nanos(launch_mean_ns)
        );
    }
    let is_of_host =
        ratio(launch_ns.saturating_add(host_ns)) >= MAIN_RATIO && ratio(wait_ns) < LEAST_WAIT_RATIO;
    if is_of_host && launches > 0 && launch_mean_ns < FULL_QUEUE_NS {
        let idle = match span_ns {
            0 => String::new(),
            _ => format!(
                "; the GPU was idle for {:.0} % of the {} that its profile covers",
                100.0 * idle_ns as f64 / span_ns as f64,
                Nanos(span_ns)
            ),
        };
        let what = if ratio(launch_ns) >= ratio(host_ns) { "launch-bound" } else { "bound by the host" };
        return format!(
            "{after}the process launched for {} of the time ({} of {}), ran host code for {}, and waited for the GPU for {}: {what}{idle}{}.",
            percent(launch_ns),
            Counted(launches, "launch"),
            Nanos(launch_mean_ns),
            percent(host_ns),
            percent(wait_ns),
            kernels(gpu)
        );
    }
    let Some(largest) = process.parts.iter().max_by_key(|part| part_ns(process, &part.part)) else {
        return String::new();
    };
    let largest_ns = part_ns(process, &largest.part);
    format!("{after}the process {} for {} of the time.", largest.meaning(), percent(largest_ns))
}

/// Returns the time of a part after the first launch, in nanoseconds.
fn part_ns(process: &ProcessTime, part: &str) -> i64 {
    let slices = process.slices.iter().filter(|slice| slice.part == part && slice.is_start_up != Some(true));
    slices.fold(0, |sum, slice| sum.saturating_add(slice.time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        kernels::{Kernel, Kernels},
        where_time_went::Part,
    };

    fn process(slices: &[(&str, i64, i64)], gpu: Option<(i64, i64)>) -> ProcessTime {
        let slice = |(part, time_ns, intervals_count): &(&str, i64, i64)| Slice {
            part: (*part).to_owned(),
            is_start_up: Some(false),
            time_ns: *time_ns,
            intervals_count: *intervals_count,
            ..Slice::default()
        };
        let part = |(part, time_ns, _): &(&str, i64, i64)| Part {
            part: (*part).to_owned(),
            time_ns: *time_ns,
            share_ratio: 0.0,
            start_up_ns: None,
            gpu_idle_ns: gpu.map(|(_, idle_ns)| idle_ns),
            subjects: Vec::new(),
        };
        ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1_000_000,
            start_up_ns: Some(2_000_000_000),
            gpu_busy_ns: gpu.map(|(busy_ns, _)| busy_ns),
            parts: slices.iter().map(part).collect(),
            slices: slices.iter().map(slice).collect(),
            ..ProcessTime::default()
        }
    }

    fn bound(slices: &[(&str, i64, i64)]) -> String {
        of(&process(slices, None), &GpuRecord::default())
    }

    #[test]
    fn what_bounds_a_run_is_named() {
        assert_eq!(
            bound(&[("sync", 830_000, 10), ("host", 170_000, 10)]),
            "After the first launch, which came after 2.00 s, the process waited for the GPU for 83 % of the time: compute-bound."
        );
        let launching = bound(&[("launch", 600_000, 100), ("host", 390_000, 10), ("sync", 10_000, 10)]);
        assert!(launching.contains("launched for 60 % of the time (100 launches of 6.00 µs)"), "{launching}");
        assert!(launching.ends_with("launch-bound."), "{launching}");
        assert!(bound(&[("host", 900_000, 10), ("launch", 100_000, 100)]).ends_with("bound by the host."));
        assert!(bound(&[("launch", 900_000, 10), ("host", 100_000, 10)]).ends_with("queue: compute-bound."));
        assert!(bound(&[("poll", 600_000, 1), ("host", 400_000, 1)]).contains("waited for an event"));
    }

    #[test]
    fn kernels_are_named_where_they_are_on_record() {
        let kernel =
            Kernel { name: "gemm".to_owned(), runs_count: 5, total_ns: 90, longest_ns: 30, share_ratio: 0.9 };
        let kernels = Kernels { names_count: 1, runs_count: 5, total_ns: 90, kernels: vec![kernel] };
        let gpu = GpuRecord { kernels: Some(kernels), ..GpuRecord::default() };
        assert_eq!(
            of(&process(&[("host", 1_000, 1)], Some((900, 100))), &gpu),
            "Compute-bound: the GPU was busy for 90 % of the 1.00 µs that its profile covers; most time of kernels: gemm (90 %)."
        );
    }
}
