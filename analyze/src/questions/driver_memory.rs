//! What calls of the driver alone (cudaMalloc, cudaMallocAsync, cuMemAlloc, …) tell about a process's memory, for processes
//! of which nothing else is recorded: how much was allocated, and how much of it is left if the source tells which memory was
//! freed. Whether PyTorch's allocator made the calls is inferred from the sizes; the blocks within that memory are not
//! known. A call of libcudart makes one of libcuda, which allocates the same memory and does not count.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::TryStreamExt;
use serde::Serialize;

use crate::trace::Trace;
use analyze_memory::{
    decode::DRIVER_ALLOCATIONS,
    settings::{LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES},
};
use analyze_run::{
    columns::{Cell, integers, strings},
    coverage::{Coverage, Watched},
    error::AnalyzeError,
    reading::Names,
};

/// The driver allocations of one process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Driver {
    /// The process.
    pub pid: i64,
    /// True if only a part of these calls has rows, so that counts and sums are lower bounds.
    pub is_partial: bool,
    /// The functions that allocated.
    pub functions: BTreeSet<String>,
    /// The number of calls of these functions that succeeded.
    pub allocs_count: u64,
    /// The bytes that these calls allocated in total.
    pub alloc_bytes: i64,
    /// The number of calls that freed and succeeded.
    pub frees_count: u64,
    /// The bytes that are still allocated; `None` if calls are missing or the source does not tell which memory was freed.
    pub held_bytes: Option<i64>,
    /// The number of allocations of each size in bytes.
    pub sizes: BTreeMap<i64, u64>,
    /// Whether no call is missing and every size is one that PyTorch's allocator requests; an inference.
    pub is_like_torch: bool,
    #[serde(skip)]
    by_addr: HashMap<i64, i64>,
}

impl Driver {
    fn alloc(&mut self, op: &str, addr: Option<i64>, bytes: i64) {
        if is_inner(op) && addr.is_some_and(|addr| self.by_addr.contains_key(&addr)) {
            return;
        }
        if !self.functions.contains(op) {
            self.functions.insert(op.to_owned());
        }
        self.allocs_count += 1;
        self.alloc_bytes += bytes;
        *self.sizes.entry(bytes).or_default() += 1;
        self.held_bytes = self.held_bytes.map(|held| held + bytes);
        if let Some(addr) = addr {
            self.by_addr.insert(addr, bytes);
        }
    }

    fn free(&mut self, op: &str, addr: Option<i64>) {
        let bytes = addr.and_then(|addr| self.by_addr.remove(&addr));
        // The call of libcudart around it has freed the memory already.
        if is_inner(op) && bytes.is_none() {
            return;
        }
        self.frees_count += 1;
        self.held_bytes = self.held_bytes.zip(bytes).map(|(held, bytes)| held - bytes);
    }
}

/// Functions that allocate, and functions that free.
const OPS: ([&str; 8], [&str; 4]) =
    (DRIVER_ALLOCATIONS, ["cudaFree", "cudaFreeAsync", "cuMemFree", "cuMemFreeAsync"]);

/// Returns whether a function is one of libcuda, which those of libcudart call.
fn is_inner(op: &str) -> bool {
    !op.starts_with("cuda")
}

/// Returns whether PyTorch's allocator, in its default settings, requests such a size from the driver.
fn is_of_torch(bytes: i64) -> bool {
    let [small, large] = [SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES].map(|bytes| bytes as i64);
    bytes == small || bytes == large || (bytes >= large / 2 && bytes % small == 0)
}

/// Returns for each of some times (ns, trace clock, sorted) the processes that allocated memory before it, by pid.
pub async fn run(trace: &Trace, times: &[i64]) -> Result<Vec<Vec<Driver>>, AnalyzeError> {
    let (allocs, frees) = OPS;
    let ops = allocs.iter().chain(&frees).map(|op| format!("'{op}'")).collect::<Vec<_>>().join(", ");
    let query = format!(
        "SELECT pid, op, CAST(addr AS BIGINT) AS addr, size_bytes, ts FROM events WHERE kind = 'call' \
         AND op IN ({ops}) AND (ret IS NULL OR ret = 0) AND ts < {} ORDER BY ts",
        times.last().copied().unwrap_or(i64::MIN)
    );
    let mut found: BTreeMap<i64, Driver> = BTreeMap::new();
    let mut then: Vec<Vec<Driver>> = Vec::new();
    let allocated = |found: &BTreeMap<i64, Driver>| {
        found.values().filter(|driver| driver.allocs_count > 0).cloned().collect::<Vec<Driver>>()
    };
    let mut batches = trace.events().select(&query);
    while let Some(batch) = batches.try_next().await? {
        let (pid, op, ts) = (integers(&batch, "pid")?, strings(&batch, "op")?, integers(&batch, "ts")?);
        let (addr, size) = (integers(&batch, "addr")?, integers(&batch, "size_bytes")?);
        for row in 0..batch.num_rows() {
            while times.get(then.len()).is_some_and(|time| *time <= ts.value(row)) {
                then.push(allocated(&found));
            }
            let pid = pid.at(row).unwrap_or_default();
            let driver =
                found.entry(pid).or_insert_with(|| Driver { pid, held_bytes: Some(0), ..Driver::default() });
            let addr = addr.at(row).filter(|addr| *addr != 0);
            let op = op.value(row);
            match size.at(row) {
                Some(bytes) if bytes > 0 && allocs.contains(&op) => driver.alloc(op, addr, bytes),
                _ if addr.is_some() && frees.contains(&op) => driver.free(op, addr),
                _ => (),
            }
        }
    }
    then.resize_with(times.len(), || allocated(&found));
    for (drivers, ts) in then.iter_mut().zip(times) {
        judge(trace, drivers, *ts);
    }
    Ok(then)
}

/// Completes what is known of processes at a time (ns, trace clock): whether calls before it are missing.
fn judge(trace: &Trace, drivers: &mut [Driver], ts: i64) {
    let mut names = Names::default();
    let coverage = Coverage::of_files(trace.files(), &Watched::default(), &mut names);
    let (allocs, frees) = OPS;
    let numbers: Vec<u32> = allocs.iter().chain(&frees).map(|op| names.number(op)).collect();
    let runs: Vec<u32> = trace.files().iter().map(|file| names.number(&file.name)).collect();
    for driver in drivers {
        let pid = driver.pid as u32;
        let has_calls = |run: &u32| coverage.has_calls((*run, pid), i64::MIN, ts, |op| numbers.contains(&op));
        driver.is_partial = !runs.iter().all(has_calls);
        driver.held_bytes = driver.held_bytes.filter(|_| !driver.is_partial);
        driver.is_like_torch = !driver.is_partial
            && driver.functions.iter().all(|op| op == "cudaMalloc")
            && driver.sizes.keys().all(|bytes| is_of_torch(*bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_known_by_its_address_only() {
        let mut driver = Driver { held_bytes: Some(0), ..Driver::default() };
        driver.alloc("cudaMalloc", Some(0x1000), 20 << 20);
        driver.alloc("cuMemAlloc", Some(0x1000), 20 << 20);
        driver.alloc("cuMemAlloc", Some(0x2000), 2 << 20);
        driver.free("cudaFree", Some(0x1000));
        driver.free("cuMemFree", Some(0x1000));
        assert_eq!((driver.held_bytes, driver.alloc_bytes), (Some(2 << 20), 22 << 20));
        assert_eq!((driver.allocs_count, driver.frees_count, driver.functions.len()), (2, 1, 2));
        driver.alloc("cudaMalloc", None, 2 << 20);
        driver.free("cudaFree", Some(0x3000));
        assert_eq!((driver.held_bytes, driver.frees_count), (None, 2));
        assert_eq!(driver.sizes, BTreeMap::from([(2 << 20, 2), (20 << 20, 1)]));
    }

    #[test]
    fn sizes_of_segments_are_known() {
        let mebibytes = [1, 2, 4, 8, 10, 12, 13, 20, 260];
        let found: Vec<i64> = mebibytes.into_iter().filter(|size| is_of_torch(size << 20)).collect();
        assert_eq!(found, [2, 10, 12, 20, 260]);
        assert!(!is_of_torch(8_519_680));
    }
}
