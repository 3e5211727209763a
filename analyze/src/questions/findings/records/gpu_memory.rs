//! The memory of GPUs by their counters: what was used and when, and which process uses which GPU.

use std::collections::{BTreeMap, BTreeSet};

use trace_schema::Kind;

use crate::{questions::info::Present, trace::Trace};
use analyze_run::{
    columns::{Cell, integers},
    error::AnalyzeError,
};

/// One GPU.
#[derive(Debug, Default)]
struct Gpu {
    total_bytes: Option<i64>,
    /// Time (ns, trace clock) and used bytes of each reading, in order of time.
    used: Vec<(i64, i64)>,
    /// Processes that the driver named on it.
    pids: BTreeSet<i64>,
}

/// The counters of all GPUs, by NVML's index.
#[derive(Debug, Default)]
pub struct GpuMemory(BTreeMap<i64, Gpu>);

impl GpuMemory {
    /// Reads them.
    pub(super) async fn read(trace: &Trace, present: &Present) -> Result<Self, AnalyzeError> {
        let mut found = Self::default();
        if !present.has(Kind::Sample, "memory_used_bytes") {
            return Ok(found);
        }
        let query = "SELECT device, ts, used_bytes, total_bytes FROM memory_use ORDER BY device, ts";
        for batch in trace.batches(query).await? {
            let (devices, times) = (integers(&batch, "device")?, integers(&batch, "ts")?);
            let (used, total) = (integers(&batch, "used_bytes")?, integers(&batch, "total_bytes")?);
            for row in 0..batch.num_rows() {
                let gpu = found.0.entry(devices.at(row).unwrap_or_default()).or_default();
                gpu.total_bytes = total.at(row).filter(|bytes| *bytes > 0);
                gpu.used.extend(used.at(row).map(|used| (times.value(row), used)));
            }
        }
        let query = "SELECT DISTINCT device, pid FROM samples WHERE counter = 'process_memory_bytes' ORDER BY device, pid";
        for batch in trace.batches(query).await? {
            let (devices, pids) = (integers(&batch, "device")?, integers(&batch, "pid")?);
            for row in 0..batch.num_rows() {
                let gpu = found.0.entry(devices.at(row).unwrap_or_default()).or_default();
                gpu.pids.extend(pids.at(row));
            }
        }
        Ok(found)
    }

    /// Returns the GPU that a process uses: the only one on which the driver named it, or the only one there is. CUDA's
    /// numbers need not be those of NVML, so that they tell nothing.
    fn of_process(&self, pid: i64) -> Option<&Gpu> {
        let mut named = self.0.values().filter(|gpu| gpu.pids.contains(&pid));
        match (named.next(), named.next()) {
            (Some(gpu), None) => Some(gpu),
            (None, _) if self.0.len() == 1 => self.0.values().next(),
            _ => None,
        }
    }

    /// Returns the free bytes of the GPU that a process uses, by the last reading until `ts` (ns, trace clock), or by the first
    /// one if none is as early; `None` if the GPU, its size or a reading is not known.
    pub fn free_bytes(&self, pid: i64, ts: i64) -> Option<i64> {
        let gpu = self.of_process(pid)?;
        let after = gpu.used.partition_point(|(at, _)| *at <= ts);
        let (_, used_bytes) = gpu.used.get(after.saturating_sub(1))?;
        Some(gpu.total_bytes?.saturating_sub(*used_bytes))
    }

    /// Returns the largest share of its memory that the GPU of a process had in use, from 0 to 1.
    pub fn most_used_ratio(&self, pid: i64) -> Option<f64> {
        let gpu = self.of_process(pid)?;
        let most = gpu.used.iter().map(|(_, used)| *used).max()?;
        Some(most as f64 / gpu.total_bytes?.max(1) as f64)
    }

    /// Creates the counters of one GPU of 100 bytes, of which each reading has a time and the used bytes.
    #[cfg(test)]
    pub(in crate::questions::findings) fn of_test(used: &[(i64, i64)]) -> Self {
        let gpu = Gpu { total_bytes: Some(100), used: used.to_vec(), pids: BTreeSet::new() };
        Self(BTreeMap::from([(0, gpu)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_the_only_gpu_or_the_one_that_names_it() {
        let mut memory = GpuMemory::of_test(&[(10, 40), (20, 70)]);
        let free = |memory: &GpuMemory| [5, 10, 19, 20, 99].map(|ts| memory.free_bytes(7, ts));
        assert_eq!(free(&memory), [60, 60, 60, 30, 30].map(Some));
        assert_eq!(memory.most_used_ratio(7), Some(0.7));
        memory.0.insert(1, Gpu { total_bytes: Some(100), used: vec![(0, 99)], pids: BTreeSet::new() });
        assert_eq!(memory.free_bytes(7, 5), None);
        memory.0.entry(1).or_default().pids.insert(7);
        assert_eq!(free(&memory), [Some(1); 5]);
        memory.0.entry(0).or_default().pids.insert(7);
        assert_eq!(memory.free_bytes(7, 5), None);
    }
}
