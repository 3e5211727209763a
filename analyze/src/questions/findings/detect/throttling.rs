//! GPUs whose clock heat or hardware holds down, by NVML's readings.

use trace_schema::{Counted, Nanos};

use crate::questions::{
    devices::{THROTTLE_REASONS, reading},
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
        records::gpu::Throttled,
    },
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[("throttling", "Heat or the hardware's own protection holds a GPU's clock down.")],
    detect,
};

fn detect<'a>(facts: &Facts<'a>, _: &mut [Ledger<'a>]) -> Vec<Finding> {
    let wall_ns = facts.run_time.first().map(|process| process.wall_ns);
    facts.records.gpu.throttled.iter().map(|throttled| of_device(throttled, wall_ns)).collect()
}

fn of_device(throttled: &Throttled, wall_ns: Option<i64>) -> Finding {
    let device = throttled.device;
    let title =
        format!("The clock of GPU {device} was held down: {}.", reading(THROTTLE_REASONS, throttled.reasons));
    let clocks = throttled.clocks_mhz.map_or_else(String::new, |(fastest, slowest)| {
        format!("; the clock fell to {slowest} MHz, from {fastest} MHz")
    });
    let shown = format!(
        "{}, {} in all{clocks}",
        Counted(throttled.readings_count, "reading"),
        Nanos(throttled.time_ns)
    );
    let sql = format!(
        "SELECT * FROM samples WHERE device = {device} AND counter = '{THROTTLE_REASONS}' ORDER BY ts"
    );
    let mut finding = Finding::new("throttling", Rank::Cost, None, title)
        .shown_by(shown, sql, "devices")
        .to_do("Check the cooling and power supply of the GPU (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER), or move the job.");
    // The time of a GPU is part of what its processes waited for.
    finding.overlaps = vec!["needless-sync", "idle-gpu"];
    match (throttled.clocks_mhz, wall_ns) {
        (Some(_), Some(wall_ns)) => finding.bounded(
            0,
            throttled.slowed_ns,
            wall_ns,
            "work that the clock of the multiprocessors does not bound is not slowed down",
        ),
        _ => finding.inconclusive("no clock is on record beside the reasons"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_named_and_the_cost_is_bounded_by_the_clock() {
        let throttled = Throttled {
            device: 2,
            reasons: 0x40,
            readings_count: 5,
            time_ns: 1_000,
            slowed_ns: 250,
            clocks_mhz: Some((2_000, 1_500)),
        };
        let finding = of_device(&throttled, Some(10_000));
        assert_eq!(finding.title, "The clock of GPU 2 was held down: hardware thermal.");
        assert_eq!((finding.cost_range_ns, finding.share_ratio), (Some((0, 250)), Some(0.025)));
        let unknown = of_device(&Throttled { clocks_mhz: None, ..throttled }, Some(10_000));
        assert_eq!(unknown.cost_ns, None);
    }
}
