//! Requests to PyTorch's allocator that failed, with who had the memory. Calls of the driver that failed are failures.

use std::collections::BTreeMap;

use trace_schema::{Bytes, Counted, Nanos};

use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
    },
    memory::history_report::OomReport,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[("out-of-memory", "PyTorch's allocator could not serve a request for GPU memory.")],
    detect,
};

/// Number of other processes that are named.
const NAMED: usize = 2;

fn detect<'a>(facts: &Facts<'a>, _: &mut [Ledger<'a>]) -> Vec<Finding> {
    facts.memory.map_or_else(Vec::new, |memory| of_requests(&memory.review.history.ooms))
}

/// Returns a finding for each allocator with failed requests.
fn of_requests(ooms: &[OomReport]) -> Vec<Finding> {
    let mut by_allocator: BTreeMap<(u32, i32), Vec<&OomReport>> = BTreeMap::new();
    for oom in ooms {
        by_allocator.entry((oom.pid, oom.device)).or_default().push(oom);
    }
    by_allocator.values().filter_map(|ooms| of_allocator(ooms)).collect()
}

fn of_allocator(ooms: &[&OomReport]) -> Option<Finding> {
    let oom = ooms.first()?;
    let why = match oom.verdict {
        "fragmentation" => format!(
            "{} were free in its pool, in pieces of at most {}",
            Bytes(oom.pool_free_bytes as i64),
            Bytes(oom.largest_free_bytes as i64)
        ),
        "other_stream" => format!(
            "a free block of {} was large enough and belonged to another stream",
            Bytes(oom.other_stream_bytes as i64)
        ),
        "limit" => format!(
            "the device had {} free, and a limit of the process forbade more",
            Bytes(oom.device_free_bytes as i64)
        ),
        "neighbour" => neighbours(oom),
        _ => format!(
            "the process had {} reserved, of which {} were allocated, and the device had {} free",
            Bytes(oom.reserved_bytes),
            Bytes(oom.allocated_bytes),
            Bytes(oom.device_free_bytes as i64)
        ),
    };
    let (asked, at) = (Bytes(oom.requested_bytes as i64), Nanos(oom.since_start_ns));
    let title = format!("The GPU's memory ran out at {at}: {asked} were requested, and {why}.");
    let first = if ooms.len() > 1 { "; this is the first" } else { "" };
    let count = format!("{} failed{first}", Counted(ooms.len(), "request"));
    let (to_do, saves) = advice(oom);
    let sql = format!("SELECT * FROM memory_ooms WHERE pid = {} ORDER BY ts", oom.pid);
    let finding = Finding::new("out-of-memory", Rank::OutOfMemory, Some(i64::from(oom.pid)), title)
        .holds(oom.requested_bytes as i64)
        .shown_by(format!("{count}; verdict: {}", oom.verdict), sql, "memory")
        .to_do(to_do)
        .saves(saves);
    Some(match &oom.occupancy {
        Some(of) => finding.shown_by(
            format!(
                "of the device's memory the process had {}, others {}, and {} were free",
                Bytes(of.own_bytes),
                Bytes(of.others_bytes),
                Bytes(oom.device_free_bytes as i64)
            ),
            "SELECT * FROM memory_breakdown ORDER BY ts",
            "memory",
        ),
        // Who else used the device decides between these two.
        None if oom.verdict == "capacity" => Finding {
            open: "the device's counters do not tell what other processes had".to_owned(),
            ..finding
        },
        None => finding,
    })
}

fn neighbours(oom: &OomReport) -> String {
    let Some(of) = &oom.occupancy else { return "other processes had the memory".to_owned() };
    let named = of.others.iter().take(NAMED).map(|(pid, bytes)| match pid {
        Some(pid) => format!("process {pid} {}", Bytes(*bytes)),
        None => format!("a process that the driver does not name {}", Bytes(*bytes)),
    });
    let named: Vec<String> = named.collect();
    format!(
        "other processes had {} of the device's memory ({}), this one {}",
        Bytes(of.others_bytes),
        named.join(", "),
        Bytes(of.own_bytes)
    )
}

/// Returns what to do, and what it saves as far as the replay or the simulator tells.
fn advice(oom: &OomReport) -> (String, &'static str) {
    match (oom.verdict, oom.expandable_helps, oom.expandable_serves) {
        ("fragmentation" | "other_stream", Some(true), _) => (
            "Set PYTORCH_ALLOC_CONF=expandable_segments:True.".to_owned(),
            "with expandable segments the request has room, wherever the blocks lie",
        ),
        ("fragmentation" | "other_stream", None, Some(true)) => (
            "Set PYTORCH_ALLOC_CONF=expandable_segments:True.".to_owned(),
            "`analyze what-if` serves the request with expandable segments",
        ),
        ("fragmentation", ..) => (
            "Allocate what stays for long before what does not; `analyze oom RUN` names the blocks in the way."
                .to_owned(),
            "",
        ),
        ("other_stream", ..) => (
            "Allocate on the stream that freed the memory, or call torch.cuda.empty_cache() before the request."
                .to_owned(),
            "",
        ),
        ("limit", ..) => (
            "Raise or remove the limit (torch.cuda.set_per_process_memory_fraction).".to_owned(),
            "",
        ),
        ("neighbour", ..) => (
            "Stop the other process, or run this one on another GPU (CUDA_VISIBLE_DEVICES).".to_owned(),
            "",
        ),
        _ => (
            format!(
                "Hold less at once (smaller batch, activation checkpointing, sharding); `analyze memory RUN --at {}ns` shows what was held.",
                oom.since_start_ns
            ),
            "",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::memory::occupancy::Occupancy;

    fn failed(pid: u32, verdict: &'static str) -> OomReport {
        OomReport {
            pid,
            device: 0,
            tid: pid,
            ts_ns: 2_000,
            since_start_ns: 1_000_000_000,
            requested_bytes: 1 << 30,
            block_bytes: 1 << 30,
            segment_bytes: 1 << 30,
            device_free_bytes: 100 << 20,
            verdict,
            is_limited: false,
            reserved_bytes: 600 << 20,
            allocated_bytes: 500 << 20,
            pending_bytes: 0,
            pinned_bytes: 0,
            private_bytes: 0,
            pool_free_bytes: 2 << 30,
            largest_free_bytes: 512 << 20,
            other_stream_bytes: 0,
            is_expandable: false,
            expandable_helps: None,
            expandable_serves: None,
            expandable_reason: None,
            hole_addr: None,
            hole_in_use_bytes: None,
            hole_in_use_count: None,
            segments_count: None,
            segments_in_use_bytes: None,
            segments_in_use_count: None,
            occupancy: None,
            moment: None,
        }
    }

    #[test]
    fn failures_are_told_process_by_process() {
        let found = of_requests(&[failed(8, "capacity"), failed(7, "limit"), failed(8, "capacity")]);
        let pids: Vec<Option<i64>> = found.iter().map(|finding| finding.pid).collect();
        assert_eq!(pids, [Some(7), Some(8)]);
        assert!(found[0].title.contains("a limit of the process"), "{}", found[0].title);
        assert!(found[1].evidence[0].text.starts_with("2 requests"), "{:?}", found[1].evidence);
        assert!(!found[1].open.is_empty() && found[0].open.is_empty());
        assert!(of_requests(&[]).is_empty());
    }

    #[test]
    fn a_neighbour_is_named_with_what_it_has() {
        let occupancy =
            Occupancy { own_bytes: 1 << 30, others_bytes: 138 << 30, others: vec![(Some(9), 138 << 30)] };
        let oom = OomReport { occupancy: Some(occupancy), ..failed(7, "neighbour") };
        let found = of_requests(&[oom]);
        assert!(found[0].title.contains("(process 9 138 GiB), this one 1.00 GiB"), "{}", found[0].title);
        assert!(found[0].to_do.contains("CUDA_VISIBLE_DEVICES"));
    }

    #[test]
    fn expandable_segments_are_advised_only_where_they_are_known_to_help() {
        let of = |expandable_helps, expandable_serves| {
            let oom = OomReport { expandable_helps, expandable_serves, ..failed(7, "fragmentation") };
            let found = of_requests(&[oom]);
            (found[0].to_do.contains("expandable_segments"), found[0].saves.is_empty())
        };
        assert_eq!(of(Some(true), None), (true, false));
        assert_eq!(of(None, Some(true)), (true, false));
        assert_eq!([of(None, None), of(Some(false), None), of(None, Some(false))], [(false, true); 3]);
    }
}
