//! Kernels so small that launching them takes longer than running them.
//!
//! That a run is bound by launches is no fault in itself: `Findings::bound` says so. It is one if a profile shows that kernels are
//! shorter than their launches while the GPU idles, or if most launches are of *one* kernel with few blocks: a loop over
//! elements that one launch could work on.

use std::collections::BTreeMap;

use trace_schema::{Class, Counted, Layer, Nanos, Op};

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
    records::gpu::GpuRecord,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[(
        "tiny-kernels",
        "Launching kernels takes longer than running them, and a GPU has nothing to do meanwhile.",
    )],
    detect,
};

/// Largest number of blocks of a small grid: at most one for every second multiprocessor of the GPUs of data centres (108 and
/// more since 2020).
const SMALL_BLOCKS: i64 = 54;
/// Least share of launches that one kernel with one small grid has: no model's layers come near it.
const MAIN_RATIO: f64 = 2.0 / 3.0;
/// Least number of launches that are judged.
const LEAST_LAUNCHES: i64 = 1_000;
/// Least share of the profiled time in which the GPU had nothing to do.
const IDLE_RATIO: f64 = 0.5;

/// Number of launches by the kernel's handle and the number of blocks.
type ByKernel = BTreeMap<(Option<i64>, Option<i64>), i64>;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    let gpu = &facts.records.gpu;
    ledgers.iter_mut().filter_map(|ledger| profiled(gpu, ledger).or_else(|| repeated(gpu, ledger))).collect()
}

/// Returns the mean time of a launch of a process in nanoseconds, with the number of launches.
fn launch_cost(ledger: &Ledger<'_>) -> Option<(i64, i64)> {
    let launches = || ledger.process.slices.iter().filter(|slice| slice.part == "launch");
    let count = launches().fold(0_i64, |sum, slice| sum.saturating_add(slice.intervals_count));
    let time_ns = launches().fold(0_i64, |sum, slice| sum.saturating_add(slice.time_ns));
    Some((time_ns.checked_div(count)?, count))
}

/// Finds kernels that are shorter than their launches, where a profile of the GPU is on record.
fn profiled(gpu: &GpuRecord, ledger: &mut Ledger<'_>) -> Option<Finding> {
    let kernels = gpu.kernels.as_ref().filter(|kernels| kernels.runs_count >= LEAST_LAUNCHES)?;
    let (kernel_ns, (launch_ns, _)) = (kernels.mean_ns()?, launch_cost(ledger)?);
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let busy_ns = ledger.process.gpu_busy_ns?;
    let sum = |idle: i64, slice_ns: Option<i64>| idle.saturating_add(slice_ns.unwrap_or(0));
    let idle_ns = ledger.process.slices.iter().map(|slice| slice.gpu_idle_ns).fold(0, sum);
    let is_feeding = |part: &str| matches!(part, "launch" | "host");
    let feeding = ledger.process.slices.iter().filter(|slice| is_feeding(&slice.part));
    let fed_idle_ns = feeding.map(|slice| slice.gpu_idle_ns).fold(0, sum);
    let is_idle = idle_ns as f64 >= IDLE_RATIO * idle_ns.saturating_add(busy_ns) as f64;
    if kernel_ns >= launch_ns || !is_idle {
        return None;
    }
    let claim =
        ledger.claim_at_most(fed_idle_ns, |slice| is_feeding(&slice.part) && slice.gpu_idle_ns > Some(0));
    let title = format!(
        "The GPU waits for launches: a kernel takes {} on average, and its launch {} on the CPU.",
        Nanos(kernel_ns),
        Nanos(launch_ns)
    );
    let shown = format!(
        "{}; the GPU was busy for {} and idle for {}",
        Counted(kernels.runs_count, "kernel"),
        Nanos(busy_ns),
        Nanos(idle_ns)
    );
    let finding = Finding::new("tiny-kernels", Rank::Cost, Some(pid), title)
        .costs(claim.time_ns(), wall_ns)
        .shown_by(shown, "SELECT * FROM device_work WHERE op = 'kernel' ORDER BY ts", "kernels")
        .to_do("Launch fewer, larger kernels: larger batches, torch.compile, or CUDA graphs (torch.compile(mode=\"reduce-overhead\")).");
    Some(finding).filter(|finding| finding.cost_ns > Some(0))
}

/// Finds one kernel with a small grid that most launches are of.
fn repeated(gpu: &GpuRecord, ledger: &mut Ledger<'_>) -> Option<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    // The runtime's launches make launches of the driver: the layer with more of them is counted.
    let layer = |op: &str| Op::from_name(op).filter(|op| op.class() == Class::Launch).map(Op::layer);
    let mut by_layer: [(i64, ByKernel); 2] = Default::default();
    for sums in gpu.launches.iter().filter(|sums| sums.pid == pid) {
        let (count, kernels) = match layer(&sums.op) {
            Some(Layer::Runtime) => &mut by_layer[0],
            Some(Layer::Driver) => &mut by_layer[1],
            _ => continue,
        };
        *count = count.saturating_add(sums.calls_count);
        let calls = kernels.entry((sums.func, sums.blocks_count)).or_default();
        *calls = calls.saturating_add(sums.calls_count);
    }
    let (all, kernels) = by_layer.into_iter().max_by_key(|(count, _)| *count)?;
    let ((func, blocks), calls) = kernels.into_iter().max_by_key(|(_, calls)| *calls)?;
    let (func, blocks) = (func?, blocks?);
    let share_ratio = calls as f64 / all.max(1) as f64;
    if calls < LEAST_LAUNCHES || blocks > SMALL_BLOCKS || share_ratio < MAIN_RATIO {
        return None;
    }
    let left_ns = |part: &'static str| {
        let left = ledger.look(move |slice| slice.part == part && slice.is_start_up != Some(true)).time_ns();
        (left as f64 * share_ratio).round() as i64
    };
    let (launch_ns, host_ns) = (left_ns("launch"), left_ns("host"));
    let mut claim = |part: &'static str, ns| {
        ledger.claim_at_most(ns, |slice| slice.part == part && slice.is_start_up != Some(true)).time_ns()
    };
    let least_ns = claim("launch", launch_ns);
    let most_ns = least_ns.saturating_add(claim("host", host_ns));
    let title = format!(
        "{:.0} % of the launches are of one small kernel: {} of {}.",
        100.0 * share_ratio,
        Counted(calls, "launch"),
        Counted(blocks, "block")
    );
    let sql = format!(
        "SELECT o.op, o.func, k.name, count(*) AS launches_count, sum(o.dur) AS total_ns FROM ops o LEFT JOIN kernels k \
         ON k.run = o.run AND k.pid = o.pid AND k.func = o.func WHERE o.pid = {pid} AND o.class = 'launch' GROUP BY 1, 2, 3 \
         ORDER BY 4 DESC"
    );
    let why = "the least is the time in the launches, the most includes the host code between them";
    Some(
        Finding::new("tiny-kernels", Rank::Cost, Some(pid), title)
            .bounded(least_ns, most_ns, wall_ns, why)
            .shown_by(format!("the kernel's handle is {func:#x}; {} in all", Counted(all, "launch")), sql, "functions")
            .to_do("Do the work of the loop in one launch: operate on the whole tensor, or on a list at once (torch._foreach_…, torch.compile)."),
    )
    .filter(|finding| finding.cost_ns > Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        findings::records::gpu::LaunchSums,
        kernels::Kernels,
        where_time_went::{ProcessTime, Slice},
    };

    fn process(gpu: Option<(i64, i64)>) -> ProcessTime {
        let slice = |part: &str, time_ns, intervals_count| Slice {
            part: part.to_owned(),
            is_start_up: Some(false),
            time_ns,
            intervals_count,
            gpu_busy_ns: gpu.map(|(busy_ns, _)| busy_ns),
            gpu_idle_ns: gpu.map(|(_, idle_ns)| idle_ns),
            ..Slice::default()
        };
        ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 100_000,
            gpu_busy_ns: gpu.map(|(busy_ns, _)| 2 * busy_ns),
            slices: vec![slice("host", 60_000, 10), slice("launch", 30_000, 3_000)],
            ..ProcessTime::default()
        }
    }

    fn launches(op: &str, func: i64, blocks: i64, calls_count: i64) -> LaunchSums {
        let (func, blocks_count) = (Some(func), Some(blocks));
        LaunchSums { pid: 7, op: op.to_owned(), stream: None, func, blocks_count, calls_count }
    }

    fn found(all: Vec<LaunchSums>) -> Option<Finding> {
        let gpu = GpuRecord { launches: all, ..GpuRecord::default() };
        repeated(&gpu, &mut Ledger::new(&process(None)))
    }

    #[test]
    fn a_loop_over_elements_is_found() {
        let finding = found(vec![
            launches("cuLaunchKernel", 1, 1, 2_700),
            launches("cuLaunchKernel", 2, 1, 300),
            launches("cudaLaunchKernel", 3, 1, 300),
        ]);
        let finding = finding.unwrap();
        assert_eq!(finding.cost_range_ns, Some((27_000, 81_000)));
        assert!(finding.title.starts_with("90 % of the launches"));
    }

    #[test]
    fn layers_of_a_model_and_large_grids_are_none() {
        let layers = vec![launches("cuLaunchKernel", 1, 16, 1_500), launches("cuLaunchKernel", 2, 8, 1_500)];
        assert!(found(layers).is_none());
        assert!(found(vec![launches("cuLaunchKernel", 1, 500, 3_000)]).is_none());
        assert!(found(vec![launches("cuLaunchKernel", 1, 1, 900)]).is_none());
    }

    #[test]
    fn a_profile_tells_whether_kernels_are_shorter_than_their_launches() {
        let found = |total_ns, gpu| {
            let kernels = Kernels { runs_count: 3_000, total_ns, ..Kernels::default() };
            let record = GpuRecord { kernels: Some(kernels), ..GpuRecord::default() };
            profiled(&record, &mut Ledger::new(&process(gpu)))
        };
        let finding = found(9_000, Some((4_500, 20_000))).unwrap();
        assert_eq!((finding.cost_ns, finding.kind), (Some(40_000), "tiny-kernels"));
        assert!(found(90_000, Some((4_500, 20_000))).is_none());
        assert!(found(9_000, Some((20_000, 5_000))).is_none());
        assert!(found(9_000, None).is_none());
    }
}
