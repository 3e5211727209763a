//! Where the memory was: over time, at the peak, and why it came and stayed.

use trace_schema::{Bytes, Nanos};

use crate::{
    analysis::{memory::Curve, memory_advice::Review, memory_map::Map},
    error::AnalyzeError,
    output,
    report::memory_svg,
};

/// Rows of the table of causes.
pub(crate) struct Cause {
    pub(crate) process: String,
    pub(crate) what: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) times: u64,
    pub(crate) bytes: String,
}

/// A failed request.
pub(crate) struct Failure {
    pub(crate) at: String,
    pub(crate) asked: String,
    pub(crate) verdict: &'static str,
    pub(crate) free: String,
    pub(crate) largest: String,
    pub(crate) device_free: String,
    pub(crate) expandable: &'static str,
}

/// A line of a device's or an allocator's account.
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) bytes: i64,
    pub(crate) size: String,
}

/// A device at the peak.
pub(crate) struct Device {
    pub(crate) number: i32,
    pub(crate) svg: String,
    pub(crate) lines: Vec<Line>,
    pub(crate) read: String,
}

/// The figures, and what they say.
pub(crate) struct Memory {
    pub(crate) curve: String,
    pub(crate) addresses: String,
    pub(crate) segments_shown: usize,
    pub(crate) segments_count: usize,
    pub(crate) lives: String,
    pub(crate) lives_shown: usize,
    pub(crate) lives_count: usize,
    pub(crate) peak_in_use: String,
    pub(crate) peak_reserved: String,
    pub(crate) peak_at: String,
    pub(crate) events: i64,
    pub(crate) oom: usize,
    pub(crate) parts: Vec<(String, Vec<Line>)>,
    pub(crate) devices: Vec<Device>,
    pub(crate) causes: Vec<Cause>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) failures_count: usize,
    pub(crate) advice: Vec<String>,
}

/// Failed requests shown.
const FAILURES: usize = 10;

fn size(bytes: i64) -> String {
    Bytes(bytes).to_string()
}

/// `None` if the run has no allocator events.
pub(crate) fn build(curve: &Curve, review: &Review, map: &Map) -> Result<Option<Memory>, AnalyzeError> {
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else { return Ok(None) };
    let start_ns = review.peak.ts_ns - review.peak.since_start_ns;
    let line = |what: &str, bytes: i64| Line { what: what.to_owned(), bytes, size: size(bytes) };
    let parts = review.peak.allocators.iter().map(|held| {
        let mut lines = vec![
            line("handed out", held.allocated_bytes),
            line("given back, other streams may use it", held.pending_bytes),
            line("free, empty_cache would give it back", held.releasable_bytes),
            line("free, kept for graphs", held.private_releasable_bytes),
            line("free, pinned by what is in use beside it", held.pinned_bytes),
            line("not known", held.unknown_bytes),
        ];
        lines.retain(|line| line.bytes != 0);
        lines.push(line("reserved", held.reserved_bytes));
        (format!("process {}, device {}", held.pid, held.device), lines)
    });
    let mut devices = Vec::new();
    for device in &review.peak.devices {
        let mut lines: Vec<Line> = device
            .shares
            .iter()
            .map(|share| {
                let of = share.pid.map_or_else(String::new, |pid| format!("process {pid}: "));
                let library = output::harmless(share.library.as_deref().unwrap_or_default());
                let part = share.part.replace('_', " ");
                line(&format!("{of}{part} {library}"), share.size_bytes)
            })
            .collect();
        lines.push(line("used", device.used_bytes));
        let side = if device.reading_age_ns < 0 { "after" } else { "before" };
        let read = format!("{} {side}", Nanos(device.reading_age_ns.abs()));
        devices.push(Device { number: device.device, svg: memory_svg::ledger(device)?, lines, read });
    }
    let causes = review.history.causes.iter().map(|sum| Cause {
        process: sum.pid.to_string(),
        what: if sum.is_gain { "had from the driver" } else { "given back" },
        cause: sum.cause,
        times: sum.segments_count,
        bytes: size(sum.size_bytes as i64),
    });
    let failures = review.history.ooms.iter().take(FAILURES).map(|oom| Failure {
        at: Nanos(oom.since_start_ns).to_string(),
        asked: size(oom.requested_bytes as i64),
        verdict: oom.verdict,
        free: size(oom.pool_free_bytes as i64),
        largest: size(oom.largest_free_bytes as i64),
        device_free: size(oom.device_free_bytes as i64)
            + if oom.is_limited { ", a limit forbade more" } else { "" },
        expandable: match (oom.is_expandable, oom.expandable_helps) {
            (true, _) => "were on",
            (_, Some(true)) => "would have helped",
            (_, Some(false)) => "would not have helped",
            (_, None) => "not known",
        },
    });
    let bytes = |advice: &crate::analysis::memory_advice::Advice| match advice.size_bytes {
        0 => String::new(),
        bytes => format!(" (at most {})", size(bytes)),
    };
    Ok(Some(Memory {
        curve: memory_svg::curve(curve, start_ns)?,
        addresses: memory_svg::addresses(map)?,
        segments_shown: map.segments.len(),
        segments_count: map.segments_count,
        lives: memory_svg::lives(map, first.ts_ns, last.ts_ns)?,
        lives_shown: map.lives.len(),
        lives_count: map.lives_count,
        peak_in_use: size(curve.peak_in_use_bytes),
        peak_reserved: size(curve.peak_reserved_bytes),
        peak_at: Nanos(review.peak.since_start_ns).to_string(),
        events: curve.events_count,
        oom: curve.oom_ts_ns.len(),
        parts: parts.collect(),
        devices,
        causes: causes.collect(),
        failures: failures.collect(),
        failures_count: review.history.ooms.len(),
        advice: review
            .advice
            .iter()
            .map(|advice| format!("{}{}: {}", advice.rule, bytes(advice), advice.text))
            .collect(),
    }))
}
