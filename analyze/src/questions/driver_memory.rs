//! What can be said of a process's memory from cudaMalloc and cudaFree alone, as some sources have nothing else: how much
//! was had, and how much of it is left if the source tells which memory was given back. Whether PyTorch's allocator asked
//! is inferred from the sizes; what blocks lie in that memory is not known.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::trace::Trace;
use analyze_memory::settings::{LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// One process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Driver {
    pub pid: i64,
    /// Calls that succeeded.
    pub allocs_count: u64,
    /// What they gave, all told.
    pub alloc_bytes: i64,
    pub frees_count: u64,
    /// What is left; `None`: not known, as the source does not tell what was given back.
    pub held_bytes: Option<i64>,
    /// How many were had of each size.
    pub sizes: BTreeMap<i64, u64>,
    /// Every size is one that PyTorch's allocator asks for; an inference.
    pub is_like_torch: bool,
    #[serde(skip)]
    by_addr: HashMap<i64, i64>,
}

impl Driver {
    fn alloc(&mut self, addr: Option<i64>, bytes: i64) {
        self.allocs_count += 1;
        self.alloc_bytes += bytes;
        *self.sizes.entry(bytes).or_default() += 1;
        self.held_bytes = self.held_bytes.map(|held| held + bytes);
        if let Some(addr) = addr {
            self.by_addr.insert(addr, bytes);
        }
    }

    fn free(&mut self, addr: Option<i64>) {
        self.frees_count += 1;
        let bytes = addr.and_then(|addr| self.by_addr.remove(&addr));
        self.held_bytes = self.held_bytes.zip(bytes).map(|(held, bytes)| held - bytes);
    }
}

/// Whether PyTorch's allocator, in its default settings, asks the driver for such a size.
fn is_of_torch(bytes: i64) -> bool {
    let [small, large] = [SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES].map(|bytes| bytes as i64);
    bytes == small || bytes == large || (bytes >= large / 2 && bytes % small == 0)
}

/// The processes that called either before `ts`.
///
/// # Errors
/// If the run's data cannot be read.
pub async fn run(trace: &Trace, ts: i64) -> Result<Vec<Driver>, AnalyzeError> {
    let query = format!(
        "SELECT pid, op, CAST(addr AS BIGINT) AS addr, size_bytes FROM events WHERE kind = 'call' \
         AND op IN ('cudaMalloc', 'cudaFree') AND (ret IS NULL OR ret = 0) AND ts < {ts} ORDER BY ts"
    );
    let mut found: BTreeMap<i64, Driver> = BTreeMap::new();
    for batch in trace.batches(&query).await? {
        let (pid, op) = (integers(&batch, "pid")?, strings(&batch, "op")?);
        let (addr, size) = (integers(&batch, "addr")?, integers(&batch, "size_bytes")?);
        for row in 0..batch.num_rows() {
            let pid = pid.at(row).unwrap_or_default();
            let driver =
                found.entry(pid).or_insert_with(|| Driver { pid, held_bytes: Some(0), ..Driver::default() });
            let addr = addr.at(row).filter(|addr| *addr != 0);
            match (op.value(row), size.at(row)) {
                ("cudaMalloc", Some(bytes)) if bytes > 0 => driver.alloc(addr, bytes),
                ("cudaFree", _) if addr.is_some() => driver.free(addr),
                _ => (),
            }
        }
    }
    let mut drivers: Vec<Driver> = found.into_values().filter(|driver| driver.allocs_count > 0).collect();
    for driver in &mut drivers {
        driver.is_like_torch = driver.sizes.keys().all(|bytes| is_of_torch(*bytes));
    }
    Ok(drivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_known_by_its_address_only() {
        let mut driver = Driver { held_bytes: Some(0), ..Driver::default() };
        driver.alloc(Some(0x1000), 20 << 20);
        driver.alloc(Some(0x2000), 2 << 20);
        driver.free(Some(0x1000));
        assert_eq!((driver.held_bytes, driver.alloc_bytes), (Some(2 << 20), 22 << 20));
        driver.alloc(None, 2 << 20);
        driver.free(Some(0x3000));
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
