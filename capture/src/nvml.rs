//! Samples the GPUs' counters from NVIDIA's management library (NVML), on a thread of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{Clock, TemperatureSensor},
    enums::device::UsedGpuMemory,
};
use trace_schema::{Gpu, Kind, Row};

use crate::clock;

/// Name of the library; machines without development files have only the versioned name.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The sampling thread.
pub(crate) struct Sampler {
    rows: mpsc::Receiver<Vec<Row>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The GPUs that NVML lists.
    pub(crate) gpus: Vec<Gpu>,
}

impl Sampler {
    /// Begins to sample every `interval`, on a thread that calls `prepare` first.
    ///
    /// # Errors
    /// A sentence that says why NVML cannot be used here.
    pub(crate) fn start(interval: Duration, prepare: impl FnOnce() + Send + 'static) -> Result<Self, String> {
        let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init().map_err(|error| error.to_string())?;
        let gpus = describe(&nvml);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (sender, rows) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || {
                prepare();
                while !stopped.load(Ordering::Relaxed) {
                    let mut samples = Vec::new();
                    for index in 0..nvml.device_count().unwrap_or(0) {
                        if let Ok(device) = nvml.device_by_index(index) {
                            read(index, &device, &mut samples);
                        }
                    }
                    if sender.send(samples).is_err() {
                        return;
                    }
                    thread::park_timeout(interval);
                }
            })
            .map_err(|error| error.to_string())?;
        Ok(Self { rows, stop, thread: Some(thread), gpus })
    }

    /// Rows of the readings since the last call.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows.try_iter().flatten().collect()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

fn describe(nvml: &Nvml) -> Vec<Gpu> {
    let driver = nvml.sys_driver_version().unwrap_or_default();
    (0..nvml.device_count().unwrap_or(0))
        .filter_map(|index| nvml.device_by_index(index).ok())
        .map(|device| Gpu { name: device.name().unwrap_or_default(), driver: driver.clone() })
        .collect()
}

/// Reads the counters of a device; a counter that it does not have is left out.
fn read(index: u32, device: &Device<'_>, samples: &mut Vec<Row>) {
    let mut add = |op: &'static str, pid: u32, value: i64| {
        samples.push(Row {
            device: Some(index as i32),
            value: Some(value),
            ..Row::new(clock::monotonic_ns(), Kind::Sample, op.into(), pid, pid)
        });
    };
    if let Ok(memory) = device.memory_info() {
        add("memory_used_bytes", 0, memory.used as i64);
        add("memory_reserved_bytes", 0, memory.reserved as i64);
        add("memory_total_bytes", 0, memory.total as i64);
    }
    if let Ok(processes) = device.running_compute_processes() {
        for process in processes {
            if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                add("process_memory_bytes", process.pid, bytes as i64);
            }
        }
    }
    if let Ok(utilization) = device.utilization_rates() {
        add("gpu_busy_percent", 0, i64::from(utilization.gpu));
        add("memory_busy_percent", 0, i64::from(utilization.memory));
    }
    if let Ok(mhz) = device.clock_info(Clock::SM) {
        add("sm_clock_mhz", 0, i64::from(mhz));
    }
    if let Ok(mhz) = device.clock_info(Clock::Memory) {
        add("memory_clock_mhz", 0, i64::from(mhz));
    }
    if let Ok(celsius) = device.temperature(TemperatureSensor::Gpu) {
        add("temperature_celsius", 0, i64::from(celsius));
    }
    if let Ok(milliwatts) = device.power_usage() {
        add("power_milliwatts", 0, i64::from(milliwatts));
    }
    if let Ok(reasons) = device.current_throttle_reasons() {
        add("throttle_reasons", 0, reasons.bits() as i64);
    }
}
