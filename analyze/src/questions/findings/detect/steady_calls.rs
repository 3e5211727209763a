//! Calls that belong to start-up and go on after it: allocation and the building of graphs.
//!
//! A run that has warmed up allocates from a cache and replays its graphs. What the second half of a process's launches still
//! allocates *and* frees, or instantiates anew, is therefore done in the loop.

use trace_schema::{Class, Counted, Nanos, Op};

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
    records::gpu::CallSums,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        (
            "allocation-in-loop",
            "The process allocates and frees memory of the GPU, or pinned memory, in its loop.",
        ),
        ("graph-building", "The process builds CUDA graphs in its loop."),
    ],
    detect,
};

/// Least number of calls in the second half that recur.
const LEAST_CALLS: i64 = 10;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    let empty_cache =
        facts.info.counts.iter().find(|count| count.kind == "alloc" && count.op == "empty_cache");
    let empty_cache_count = empty_cache.map_or(0, |count| count.rows_count);
    let calls = &facts.records.gpu.calls;
    ledgers.iter_mut().flat_map(|ledger| of_process(calls, empty_cache_count, ledger)).collect()
}

fn class(op: &str) -> Option<Class> {
    Op::from_name(op).map(Op::class)
}

/// Returns whether a function is about pinned host memory.
fn is_of_host(op: &str) -> bool {
    op.contains("Host")
}

fn of_process(calls: &[CallSums], empty_cache_count: i64, ledger: &mut Ledger<'_>) -> Vec<Finding> {
    let process = ledger.process;
    let (pid, wall_ns) = (process.pid, process.wall_ns);
    // Nested calls of the driver are not in the account, and would count twice.
    let is_outermost = |op: &str| process.slices.iter().any(|slice| slice.op.as_deref() == Some(op));
    let own: Vec<&CallSums> =
        calls.iter().filter(|calls| calls.pid == pid && is_outermost(&calls.op)).collect();
    let sum = |of: fn(&CallSums) -> i64, is_wanted: &dyn Fn(&str) -> bool| {
        let wanted = own.iter().filter(|calls| is_wanted(&calls.op));
        wanted.fold(0_i64, |sum, calls| sum.saturating_add(of(calls)))
    };
    let is_alloc = |op: &str| class(op) == Some(Class::Alloc) || op == "cuMemMap";
    let is_free = |op: &str| class(op) == Some(Class::Free) || op == "cuMemUnmap";
    let is_instantiation = |op: &str| class(op) == Some(Class::Graph) && op.contains("Instantiate");
    let why =
        "the least is the time in the second half, the most all after the first launch, warm-up included";
    let mut findings = Vec::new();
    let (allocs, frees) = (sum(|calls| calls.late_count, &is_alloc), sum(|calls| calls.late_count, &is_free));
    if allocs >= LEAST_CALLS && frees >= LEAST_CALLS {
        let is_memory = |op: &str| matches!(class(op), Some(Class::Alloc | Class::Free | Class::Map));
        let claim = ledger.claim(|slice| slice.part == "alloc" && slice.is_start_up != Some(true));
        let most_ns = claim.time_ns();
        let least_ns = sum(|calls| calls.late_ns, &is_memory).min(most_ns);
        let failed = sum(|calls| calls.failed_count, &is_alloc);
        let of_host = sum(|calls| calls.late_ns, &|op| is_memory(op) && is_of_host(op));
        let to_do = if empty_cache_count >= LEAST_CALLS {
            "Remove torch.cuda.empty_cache() from the loop."
        } else if failed > 0 {
            "Requests fail and the cache is freed to retry them: use fewer sizes, or \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (`analyze what-if` simulates it)."
        } else if of_host.saturating_mul(2) > least_ns {
            "Allocate pinned buffers once, before the loop, and use them again."
        } else {
            "Allocate before the loop, or from a pool that keeps memory (PyTorch's allocator, cudaMallocAsync)."
        };
        let counts = format!(
            "{} and {} in the second half of the launches, {}; {} failed in all; torch.cuda.empty_cache() was called {}",
            Counted(allocs, "allocation"),
            Counted(frees, "free"),
            Nanos(least_ns),
            Counted(failed, "allocation"),
            Counted(empty_cache_count, "time")
        );
        findings.push(
            Finding::new(
                "allocation-in-loop",
                Rank::Cost,
                Some(pid),
                "The process allocates and frees memory in its loop, instead of using it again.".to_owned(),
            )
            .bounded(least_ns, most_ns, wall_ns, why)
            .shown_by(
                counts,
                format!(
                    "SELECT op, count(*) AS calls_count, sum(dur) AS total_ns FROM ops WHERE pid = {pid} AND depth = 0 \
                     AND class IN ('alloc', 'free', 'map') GROUP BY op ORDER BY 3 DESC"
                ),
                "run-time",
            )
            .to_do(to_do)
            .saves(format!("{} to {}", Nanos(least_ns), Nanos(most_ns))),
        );
    }
    let built = sum(|calls| calls.late_count, &is_instantiation);
    if built >= LEAST_CALLS {
        let is_graph = |op: &str| class(op) == Some(Class::Graph);
        let claim = ledger.claim(|slice| {
            slice.part == "module"
                && slice.is_start_up != Some(true)
                && slice.op.as_deref().is_some_and(is_graph)
        });
        let most_ns = claim.time_ns();
        let least_ns = sum(|calls| calls.late_ns, &is_graph).min(most_ns);
        findings.push(
            Finding::new(
                "graph-building",
                Rank::Cost,
                Some(pid),
                "The process captures and instantiates CUDA graphs in its loop.".to_owned(),
            )
            .bounded(least_ns, most_ns, wall_ns, why)
            .shown_by(
                format!("{} in the second half of the launches", Counted(built, "instantiation")),
                format!("SELECT * FROM graphs WHERE pid = {pid} ORDER BY total_ns DESC"),
                "run-time",
            )
            .to_do("Instantiate each graph once and launch it again; update it (cudaGraphExecUpdate) where only arguments change.")
            .saves(format!("{} to {}", Nanos(least_ns), Nanos(most_ns))),
        );
    }
    findings.retain(|finding| finding.cost_ns > Some(0));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::{ProcessTime, Slice};

    fn calls(op: &str, late_count: i64, failed_count: i64) -> CallSums {
        CallSums { pid: 7, op: op.to_owned(), calls_count: 50, failed_count, late_count, late_ns: 100 }
    }

    fn found(calls: &[CallSums], empty_cache_count: i64) -> Vec<Finding> {
        let slice = |part: &str, op: &str, is_start_up, time_ns| Slice {
            part: part.to_owned(),
            op: Some(op.to_owned()),
            is_start_up: Some(is_start_up),
            time_ns,
            intervals_count: 1,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1_000,
            slices: vec![
                slice("alloc", "cudaMalloc", false, 150),
                slice("alloc", "cudaFree", false, 150),
                slice("alloc", "cudaMalloc", true, 500),
                slice("module", "cudaGraphInstantiate", false, 120),
                slice("module", "cuModuleLoadData", false, 80),
            ],
            ..ProcessTime::default()
        };
        of_process(calls, empty_cache_count, &mut Ledger::new(&process))
    }

    #[test]
    fn memory_that_is_allocated_and_freed_late_is_found() {
        let all = [calls("cudaMalloc", 20, 3), calls("cudaFree", 20, 0), calls("cuMemAlloc", 20, 3)];
        let retried = found(&all, 0);
        assert_eq!(retried[0].kind, "allocation-in-loop");
        assert_eq!(retried[0].cost_range_ns, Some((200, 300)));
        assert!(retried[0].to_do.contains("expandable_segments"));
        assert!(found(&all, 20)[0].to_do.contains("empty_cache"));
    }

    #[test]
    fn a_cache_that_grows_and_graphs_built_once_are_none() {
        assert!(found(&[calls("cudaMalloc", 20, 0), calls("cudaFree", 2, 0)], 2).is_empty());
        assert!(found(&[calls("cudaGraphInstantiate", 3, 0)], 0).is_empty());
        let graphs = found(&[calls("cudaGraphInstantiate", 30, 0)], 0);
        assert_eq!(graphs[0].kind, "graph-building");
        assert_eq!(graphs[0].cost_range_ns, Some((100, 120)));
    }
}
