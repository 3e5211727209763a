//! Readings of GPU counters over time (NVML), in the steps of the timeline: the minimum and the maximum of
//! each step.
//!
//! A reading is valid at its instant only; nothing is known between two readings. Readings from before or
//! after the timeline count in the totals, but belong to no step.

use serde::Serialize;
use trace_schema::Bytes;

use super::timeline::{STEPS, Timeline};
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// Name of the counter whose value is NVML's bit mask of reasons for a reduced clock.
pub const THROTTLE_REASONS: &str = "throttle_reasons";

/// NVML's bits: mask, name, and whether the reason holds the clock down although there is work and no setting
/// asks for it.
const REASONS: [(i64, &str, bool); 9] = [
    (0x1, "idle", false),
    (0x2, "clocks as set", false),
    (0x4, "power cap", true),
    (0x8, "hardware slowdown", true),
    (0x10, "sync boost", true),
    (0x20, "software thermal", true),
    (0x40, "hardware thermal", true),
    (0x80, "power brake", true),
    (0x100, "display clocks", false),
];

/// The counters that a figure shows, in this order, each with its description.
const DRAWN: [(&str, &str); 5] = [
    ("gpu_busy_percent", "GPU busy: share of time in which a kernel ran"),
    ("memory_used_bytes", "Memory used"),
    ("sm_clock_mhz", "SM clock"),
    ("power_milliwatts", "Power"),
    (THROTTLE_REASONS, "Clock held down (power, heat)"),
];

/// Returns whether any bit of `reasons` holds the clock down although there is work. An unknown bit counts as
/// one that does.
pub fn is_throttled(reasons: i64) -> bool {
    let known = REASONS.iter().map(|(bit, ..)| bit).sum::<i64>();
    REASONS.iter().any(|(bit, _, holds)| *holds && reasons & bit != 0) || reasons & !known != 0
}

/// Returns whether heat or the hardware's own protection holds the clock down. A power cap does not count: it is what bounds a
/// GPU that is used to the full.
pub fn is_fault(reasons: i64) -> bool {
    const FAULTS: i64 = 0x8 | 0x20 | 0x40 | 0x80;
    reasons & FAULTS != 0
}

/// Formats a counter's value with its unit, which is the ending of the counter's name.
pub fn reading(counter: &str, value: i64) -> String {
    let unit = |suffix| counter.ends_with(suffix);
    if counter == THROTTLE_REASONS {
        let names: Vec<&str> =
            REASONS.iter().filter(|(bit, ..)| value & bit != 0).map(|(_, name, _)| *name).collect();
        let known = REASONS.iter().map(|(bit, ..)| bit).sum::<i64>();
        return match value & !known {
            0 if names.is_empty() => "no reason".to_owned(),
            0 => names.join(", "),
            rest => format!("{} ({rest:#x})", [names, vec!["not known here"]].concat().join(", ")),
        };
    }
    match value {
        bytes if unit("_bytes") => Bytes(bytes).to_string(),
        percent if unit("_percent") => format!("{percent} %"),
        mhz if unit("_mhz") => format!("{mhz} MHz"),
        celsius if unit("_celsius") => format!("{celsius} °C"),
        milliwatts if unit("_milliwatts") => format!("{:.1} W", milliwatts as f64 / 1e3),
        other => other.to_string(),
    }
}

/// The readings of one counter in one step of the timeline, in the counter's unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Reading {
    /// Time of the first reading in nanoseconds.
    pub ts_ns: i64,
    /// Minimum.
    pub least: i64,
    /// Maximum.
    pub most: i64,
}

/// A counter of one GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Counter {
    /// Name of the counter, whose ending is the unit of the values.
    pub name: String,
    /// Number of readings.
    pub readings_count: i64,
    /// Mean of all readings, each with the same weight.
    pub mean: f64,
    /// Minimum of all readings.
    pub least: i64,
    /// Maximum of all readings.
    pub most: i64,
    /// Upper end of a figure's axis: the capacity if it is known, 1 for the throttle reasons, otherwise the
    /// maximum.
    pub scale: i64,
    /// Readings within the timeline, one entry per step that has any.
    pub readings: Vec<Reading>,
}

impl Counter {
    /// Returns whether a figure shows the counter.
    pub fn is_drawn(&self) -> bool {
        !self.readings.is_empty() && DRAWN.iter().any(|(name, _)| *name == self.name)
    }

    /// Returns the description of the counter; its name if it has none.
    pub fn words(&self) -> String {
        let drawn = DRAWN.iter().find(|(name, _)| *name == self.name);
        drawn.map_or_else(|| self.name.clone(), |(_, words)| (*words).to_owned())
    }

    fn order(&self) -> usize {
        DRAWN.iter().position(|(name, _)| *name == self.name).unwrap_or(DRAWN.len())
    }
}

/// The counters of one GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// NVML's index of the GPU.
    pub device: i64,
    /// The counters, those that figures show first.
    pub counters: Vec<Counter>,
}

/// Returns the counters of each GPU, in the steps of `timeline`; the list is empty if no counter was read.
pub async fn run(trace: &Trace, timeline: &Timeline) -> Result<Vec<Device>, AnalyzeError> {
    let (start, end) = (timeline.start_ns, timeline.end_ns);
    let step = ((end - start) as f64 / STEPS as f64).max(1.0);
    let query = format!(
        "SELECT device, counter, CAST(floor((ts - {start}) / CAST({step} AS DOUBLE)) AS BIGINT) AS step, min(ts) AS ts, \
         min(value) AS least, max(value) AS most, count(*) AS n, sum(CAST(value AS DOUBLE)) AS total FROM \
         (SELECT device, counter, value, greatest({start} - 1, least(ts, {end})) AS ts FROM samples \
         WHERE device IS NOT NULL AND pid IS NULL) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    );
    let mut devices: Vec<Device> = Vec::new();
    for batch in trace.batches(&query).await? {
        let whole = |name| integers(&batch, name);
        let (device, ts, n) = (whole("device")?, whole("ts")?, whole("n")?);
        let (least, most, names) = (whole("least")?, whole("most")?, strings(&batch, "counter")?);
        let totals = floats(&batch, "total")?;
        for row in 0..batch.num_rows() {
            if devices.last().is_none_or(|last| last.device != device.value(row)) {
                devices.push(Device { device: device.value(row), counters: Vec::new() });
            }
            let Some(of) = devices.last_mut() else { continue };
            if of.counters.last().is_none_or(|last| last.name != names.value(row)) {
                of.counters.push(Counter {
                    name: names.value(row).to_owned(),
                    readings_count: 0,
                    mean: 0.0,
                    least: i64::MAX,
                    most: i64::MIN,
                    scale: 0,
                    readings: Vec::new(),
                });
            }
            let Some(counter) = of.counters.last_mut() else { continue };
            // The field holds the sum until all rows are read.
            counter.mean += totals.at(row).unwrap_or_default();
            counter.readings_count += n.value(row);
            counter.least = counter.least.min(least.value(row));
            counter.most = counter.most.max(most.value(row));
            if (start..end).contains(&ts.value(row)) {
                let (least, most) = (least.value(row), most.value(row));
                counter.readings.push(Reading { ts_ns: ts.value(row), least, most });
            }
        }
    }
    for device in &mut devices {
        let whole = device.counters.iter().find(|counter| counter.name == "memory_total_bytes");
        let memory = whole.map(|counter| counter.most);
        for counter in &mut device.counters {
            counter.mean /= counter.readings_count.max(1) as f64;
            counter.scale = match counter.name.as_str() {
                "memory_used_bytes" => memory.unwrap_or(counter.most),
                THROTTLE_REASONS => 1,
                name if name.ends_with("_percent") => 100,
                _ => counter.most,
            };
        }
        device.counters.sort_by_key(Counter::order);
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_no_throttling() {
        assert!(!is_throttled(0) && !is_throttled(0x1) && !is_throttled(0x3));
        assert!(is_throttled(0x4) && is_throttled(0x41) && is_throttled(0x4000));
        assert!(is_fault(0x41) && is_fault(0x24) && !is_fault(0x4) && !is_fault(0x1));
        assert_eq!(reading(THROTTLE_REASONS, 0x41), "idle, hardware thermal");
        assert_eq!(reading(THROTTLE_REASONS, 0x4000), "not known here (0x4000)");
    }

    #[test]
    fn readings_have_units() {
        assert_eq!(reading("power_milliwatts", 77_549), "77.5 W");
        assert_eq!(reading("memory_used_bytes", 1 << 30), "1.00 GiB");
        assert_eq!(reading("gpu_busy_percent", 0), "0 %");
    }
}
