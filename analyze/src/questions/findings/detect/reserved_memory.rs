//! Memory that PyTorch's allocator has reserved and cannot use, and requests for which it had to release what it cached.

use std::collections::BTreeMap;

use trace_schema::Bytes;

use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
        records::GpuMemory,
    },
    memory::{
        advice::Advice,
        history_report::{OomReport, ReleaseReport},
        state::Held,
    },
};
use analyze_memory::leaks::{growth::Growth, measured::Verdict};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        ("fragmentation", "PyTorch reserved memory that other allocator settings would not need."),
        ("allocator-retries", "PyTorch released cached memory so that the driver could serve a request."),
    ],
    detect,
};

/// Smallest share of a GPU's memory in use at which memory is scarce: below it, what is reserved keeps nothing else out.
const SCARCE_RATIO: f64 = 0.9;
/// Smallest share of the peak that other settings save and that counts where memory is scarce.
const SCARCE_SAVING_RATIO: f64 = 0.05;
/// Smallest share of the peak that counts anywhere: a job that needs a quarter less fits beside another one.
const SAVING_RATIO: f64 = 0.25;

fn detect<'a>(facts: &Facts<'a>, _: &mut [Ledger<'a>]) -> Vec<Finding> {
    let Some(memory) = facts.memory else { return Vec::new() };
    let history = &memory.review.history;
    let mut found = retries(&history.releases);
    let retried: Vec<i64> = found.iter().filter_map(|finding| finding.pid).collect();
    let gpus = &facts.records.gpu_memory;
    let peak = &memory.review.peak.allocators;
    found.extend(memory.review.advice.iter().filter_map(|advice| saving(advice, peak, &retried, gpus)));
    let grows = memory.growth.iter().filter_map(growing);
    let is_known = |finding: &Finding, of: &[Finding]| {
        of.iter().any(|other| (other.kind, other.pid) == (finding.kind, finding.pid))
    };
    let grows: Vec<Finding> = grows.filter(|finding| !is_known(finding, &found)).collect();
    found.extend(grows);
    // A request that failed for fragmentation is a finding of its own.
    found.retain(|finding| finding.kind != "fragmentation" || !failed(&history.ooms, finding.pid));
    found
}

/// Returns whether a request of a process failed for fragmentation.
fn failed(ooms: &[OomReport], pid: Option<i64>) -> bool {
    ooms.iter().any(|oom| Some(i64::from(oom.pid)) == pid && oom.verdict == "fragmentation")
}

/// Returns what the simulator saves with expandable segments, if that counts.
fn saving(advice: &Advice, peak: &[Held], retried: &[i64], gpus: &GpuMemory) -> Option<Finding> {
    let pid = i64::from(advice.pid?);
    let of_process = peak.iter().filter(|held| i64::from(held.pid) == pid);
    let reserved_bytes: i64 = of_process.filter_map(|held| held.reserved_bytes).sum();
    let is_scarce =
        retried.contains(&pid) || gpus.most_used_ratio(pid).is_some_and(|ratio| ratio >= SCARCE_RATIO);
    let least = if is_scarce { SCARCE_SAVING_RATIO } else { SAVING_RATIO };
    let is_worth = advice.size_bytes > 0 && advice.size_bytes as f64 >= least * reserved_bytes as f64;
    (advice.rule == "expandable_segments" && is_worth).then(|| {
        let saved = Bytes(advice.size_bytes);
        let title = format!(
            "PyTorch reserved {} at the peak, {saved} of it only because of fragmentation.",
            Bytes(reserved_bytes)
        );
        let sql = format!(
            "SELECT cause, count(*), sum(size_bytes) FROM memory_segment_events WHERE pid = {pid} GROUP BY cause"
        );
        Finding::new("fragmentation", Rank::Cost, Some(pid), title)
            .holds(advice.size_bytes)
            .shown_by(advice.text.clone(), sql, "memory")
            .to_do("Set PYTORCH_ALLOC_CONF=expandable_segments:True.")
            .saves(format!("{saved} of the peak, by `analyze what-if`"))
    })
}

/// Returns the growth of memory that is reserved around blocks whose sum does not grow.
fn growing(growth: &Growth) -> Option<Finding> {
    if growth.verdict != Verdict::Fragmentation {
        return None;
    }
    let pid = i64::from(growth.pid);
    let rate = growth.reserved_trend.map_or(0.0, |trend| trend.bytes_per_epoch);
    let title = format!(
        "What PyTorch reserves grows by {} an epoch while what is allocated does not: live blocks hold the free memory around them.",
        Bytes(rate.round() as i64)
    );
    let judged = growth.points.get(growth.warm_up_count..).unwrap_or_default();
    let held =
        |point: Option<&analyze_memory::leaks::growth::Point>| point.map_or(0, |point| point.pinned_bytes);
    let sql = format!(
        "SELECT epoch, allocated_bytes, reserved_bytes, held_free_bytes FROM memory_epochs WHERE pid = {pid} ORDER BY epoch"
    );
    let finding = Finding::new("fragmentation", Rank::Cost, Some(pid), title)
        .holds(held(judged.last()).saturating_sub(held(judged.first())).max(0))
        .shown_by(growth.reasons.join("; "), sql, "memory")
        .to_do("Run `analyze what-if RUN --conf expandable_segments:True`, and set what it finds to help.");
    Some(finding)
}

/// Returns a finding for each process that released cached memory to serve requests.
fn retries(releases: &[ReleaseReport]) -> Vec<Finding> {
    let mut by_process: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for release in releases.iter().filter(|release| release.cause == "make_room") {
        let sum = by_process.entry(release.pid).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(release.given_back_bytes));
    }
    let finding = |(pid, (count, bytes)): (u32, (u64, u64))| {
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let bytes = Bytes(bytes as i64);
        let title = format!(
            "The GPU had no room for a request {times}, and PyTorch released cached memory and retried (num_alloc_retries)."
        );
        let sql =
            format!("SELECT * FROM memory_releases WHERE pid = {pid} AND cause = 'make_room' ORDER BY ts");
        Finding::new("allocator-retries", Rank::Cost, Some(i64::from(pid)), title)
            .holds(bytes.0)
            .shown_by(format!("{bytes} were released to make room"), sql, "memory")
            .to_do("Hold less at once (smaller batch, activation checkpointing), so that the cache need not be released.")
    };
    by_process.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(pid: u32, reserved_bytes: i64) -> Held {
        Held {
            pid,
            device: 0,
            is_inferred: false,
            reserved_bytes: Some(reserved_bytes),
            allocated_bytes: 0,
            rounding_bytes: None,
            pending_bytes: 0,
            releasable_bytes: 0,
            private_releasable_bytes: 0,
            pinned_bytes: 0,
            unknown_bytes: 0,
            outside_bytes: 0,
            segments_count: 0,
            largest_free_bytes: 0,
            pinned: Vec::new(),
            faults: Vec::new(),
            lost_count: 0,
            differences: Vec::new(),
            unknown_settings: Vec::new(),
        }
    }

    fn release(pid: u32, cause: &'static str) -> ReleaseReport {
        ReleaseReport {
            pid,
            device: 0,
            tid: pid,
            cause,
            why_not_known: None,
            ts_ns: 0,
            since_start_ns: 0,
            dur_ns: 0,
            freed_before_bytes: None,
            ipc_freed_bytes: None,
            closed_handles_count: None,
            before_bytes: 100,
            given_back_bytes: 60,
            segments_count: 1,
            after_bytes: 40,
            in_use_bytes: 40,
            exported_bytes: 0,
            pinned_bytes: 0,
            private_bytes: 0,
            releasable_bytes: 0,
            unknown_bytes: 0,
            calls_count: None,
            call_p50_ns: None,
            call_max_ns: None,
            others: Vec::new(),
        }
    }

    #[test]
    fn fragmentation_counts_where_memory_is_scarce_or_much_would_be_saved() {
        let advice = |rule, size_bytes| Advice { rule, pid: Some(7), size_bytes, text: String::new() };
        let of = |size_bytes, used, retried: &[i64]| {
            let gpus = GpuMemory::of_test(&[(0, used)]);
            saving(&advice("expandable_segments", size_bytes), &[held(7, 100), held(8, 900)], retried, &gpus)
        };
        assert!(of(24, 89, &[]).is_none());
        assert!(of(25, 89, &[]).is_some_and(|finding| finding.saves.starts_with("25 B")));
        assert!(of(4, 90, &[]).is_none());
        assert!(of(5, 90, &[]).is_some());
        assert!(of(5, 10, &[7]).is_some());
        // What the simulator does not know, it does not save.
        assert!(of(0, 90, &[7]).is_none());
        assert!(saving(&advice("pinned", 90), &[held(7, 100)], &[7], &GpuMemory::default()).is_none());
    }

    #[test]
    fn only_what_was_released_to_make_room_is_a_retry() {
        let found = retries(&[release(7, "make_room"), release(7, "make_room"), release(8, "empty_cache")]);
        let kinds: Vec<_> =
            found.iter().map(|finding| (finding.kind, finding.pid, finding.cost_bytes)).collect();
        assert_eq!(kinds, [("allocator-retries", Some(7), Some(120))]);
        assert!(found[0].title.contains("2 times"), "{}", found[0].title);
    }
}
