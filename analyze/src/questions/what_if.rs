//! What a run would have reserved of the GPU's memory with other settings of PyTorch's allocator, and whether requests
//! that are known from elsewhere explain the segments on record.
//!
//! The requests, and when blocks and unused memory were given back, are those on record; the program is taken to do the same. A claim
//! rests on the control: the same rules with the settings that the run had must reserve, after every request, what the
//! record says.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;
use trace_schema::{Bytes, ProcessInfo};

use crate::trace::Trace;
use analyze_memory::{
    input::{Input, Key},
    settings::Settings,
    what_if::{
        record::{Case, Cases, Limits, Served},
        requests::{self, Layout},
    },
};
use analyze_run::{columns::integers, error::AnalyzeError};

/// What is tried if nothing is asked for.
const USUAL: [&str; 4] = [
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:8",
];

/// What some settings come to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// As in `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    pub peak_reserved_bytes: u64,
    /// `None`: nothing was reserved.
    pub peak_since_start_ns: Option<i64>,
    /// The record's peak less this one's; `None`: it did not come to the end.
    pub saved_bytes: Option<i64>,
    pub end_reserved_bytes: u64,
    /// Times that the driver was asked.
    pub asked_count: u64,
    pub given_back_count: u64,
    /// Times that everything unused went because the device was full.
    pub retries_count: u64,
    /// The first request that failed, and had not: nothing is known after it.
    pub fails_since_start_ns: Option<i64>,
    /// The first request that was served, and had failed: nothing is known after it.
    pub serves_since_start_ns: Option<i64>,
    pub ended_requested_bytes: Option<u64>,
    /// No control shows otherwise, and what is saved is more than the control is off by.
    pub is_known: bool,
}

/// One allocator.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    pub pid: u32,
    pub device: i32,
    pub requests_count: u64,
    pub failed_count: u64,
    pub peak_reserved_bytes: u64,
    pub peak_since_start_ns: Option<i64>,
    pub end_reserved_bytes: u64,
    pub asked_count: u64,
    pub given_back_count: u64,
    /// What the device had for it at least, by the first request that failed; `None`: none did, there is taken to be enough.
    pub capacity_bytes: Option<u64>,
    pub control: Outcome,
    /// Requests after which the control had reserved what the record says.
    pub control_equal_count: u64,
    /// The most by which it had not.
    pub control_difference_bytes: u64,
    pub outcomes: Vec<Outcome>,
    /// What limits what can be said.
    pub notes: Vec<String>,
}

/// What to try.
#[derive(Clone, Debug, Default)]
pub struct Params {
    pub settings: Vec<String>,
    pub capacity_bytes: Option<u64>,
}

fn processes(trace: &Trace) -> impl Iterator<Item = (u32, &ProcessInfo)> {
    let runs = trace.files().iter().enumerate();
    runs.flat_map(|(run, file)| file.run.processes.iter().map(move |process| (run as u32, process)))
}

/// Settings of a process with that version.
fn parsed(conf: &str, version: &str) -> Result<Settings, AnalyzeError> {
    let settings = Settings::parse(conf, version);
    if let Some(unknown) = settings.unknown.first() {
        return Err(AnalyzeError::Query(format!(
            "{conf:?}: {unknown:?} is no setting of PyTorch's allocator"
        )));
    }
    if settings.gc_threshold_ratio.is_some() {
        return Err(AnalyzeError::Query(format!(
            "{conf:?}: garbage_collection_threshold is not known here: what it gives back depends on a limit of the process"
        )));
    }
    Ok(settings)
}

/// Answers for one run.
///
/// # Errors
/// If its data cannot be read, or settings are not understood.
pub async fn run(trace: &Trace, params: &Params) -> Result<Vec<WhatIf>, AnalyzeError> {
    let usual = USUAL.map(str::to_owned);
    let asked = if params.settings.is_empty() { &usual[..] } else { &params.settings };
    let of_version = |version: &str| asked.iter().map(|conf| parsed(conf, version)).collect::<Result<_, _>>();
    let default: Vec<Settings> = of_version("")?;
    let mut cases = Cases { default, ..Cases::default() };
    for (run, process) in processes(trace) {
        cases.asked.insert((run, process.pid), of_version(&process.torch_version)?);
    }
    let input = Input::new(trace.events(), trace.files());
    let (_, limits) = input.replay(Vec::new(), BTreeMap::<_, Limits>::new()).await?;
    cases.limits = limits;
    cases.capacity_bytes = params.capacity_bytes;
    let (_, cases) = input.replay(Vec::new(), cases).await?;
    let start = trace.files().first().map_or(0, |file| file.run.clock.start_ns);
    Ok(cases.cases.iter().map(|(key, case)| of_case(*key, case, asked, start)).collect())
}

fn outcome(settings: &str, served: &Served, record_peak: u64, start: i64) -> Outcome {
    let counts = served.counts();
    let ended =
        |is_served| served.ended.filter(|ended| ended.is_served == is_served).map(|ended| ended.ts - start);
    Outcome {
        settings: settings.to_owned(),
        peak_reserved_bytes: counts.peak_reserved_bytes,
        peak_since_start_ns: served.peak_ts().map(|ts| ts - start),
        saved_bytes: served.ended.is_none().then(|| record_peak as i64 - counts.peak_reserved_bytes as i64),
        end_reserved_bytes: counts.reserved_bytes,
        asked_count: counts.asked_count,
        given_back_count: counts.given_back_count,
        retries_count: counts.retries_count,
        fails_since_start_ns: ended(false),
        serves_since_start_ns: ended(true),
        ended_requested_bytes: served.ended.map(|ended| ended.requested_bytes),
        is_known: true,
    }
}

fn of_case(key: Key, case: &Case, asked: &[String], start: i64) -> WhatIf {
    let control = outcome("as they were", &case.control, case.peak_reserved_bytes, start);
    let is_exact = case.equal_count == case.requests_count && case.control.ended.is_none();
    let outcomes = asked.iter().zip(&case.asked).map(|(settings, served)| {
        let outcome = outcome(settings, served, case.peak_reserved_bytes, start);
        let saved = outcome.saved_bytes.unwrap_or_default().unsigned_abs();
        let is_known = is_exact || case.control.ended.is_none() && saved > case.difference_bytes;
        Outcome { is_known, ..outcome }
    });
    let mut notes = Vec::new();
    if !is_exact {
        notes.push(format!(
            "the control has what the record says after {} of {} requests, and is off by {} at most",
            case.equal_count,
            case.requests_count,
            Bytes(case.difference_bytes as i64)
        ));
    }
    if let Some(ended) = case.control.ended {
        let what = if ended.is_served {
            "serves a request that failed"
        } else {
            "fails at a request that was served"
        };
        notes.push(format!(
            "inconclusive: the control {what} ({}), {} after recording began: the room on the device is not known well enough (--capacity)",
            Bytes(ended.requested_bytes as i64),
            trace_schema::Nanos(ended.ts - start)
        ));
    }
    if case.began_late {
        notes.push("recording began in the middle: what was there is laid out anew".to_owned());
    }
    if case.is_rounded {
        notes.push("sizes on record are those of blocks: what was asked for may be less".to_owned());
    }
    if case.settings.gc_threshold_ratio.is_some() {
        notes.push("the run had garbage_collection_threshold, which is not followed".to_owned());
    }
    WhatIf {
        pid: key.pid,
        device: key.device,
        requests_count: case.requests_count,
        failed_count: case.failed_count,
        peak_reserved_bytes: case.peak_reserved_bytes,
        peak_since_start_ns: case.peak_ts.map(|ts| ts - start),
        end_reserved_bytes: case.end_reserved_bytes,
        asked_count: case.asked_count,
        given_back_count: case.given_back_count,
        capacity_bytes: case.capacity_bytes,
        control,
        control_equal_count: case.equal_count,
        control_difference_bytes: case.difference_bytes,
        outcomes: outcomes.collect(),
        notes,
    }
}

/// Free blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rests {
    pub size_bytes: u64,
    pub count: u64,
    /// Requests that lie beside them.
    pub pinned_by: Vec<String>,
}

/// Requests from elsewhere against one process' segments.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    pub pid: u32,
    pub requests_count: usize,
    /// Segments on record.
    pub recorded_count: usize,
    /// Segments that the requests take.
    pub predicted_count: usize,
    /// From the first on, that many are of the same size.
    pub equal_count: usize,
    pub reserved_bytes: u64,
    pub allocated_bytes: u64,
    /// Whole segments with nothing in use.
    pub releasable_bytes: u64,
    /// Largest first.
    pub rests: Vec<Rests>,
}

/// Requests shown beside a rest.
const NAMES: usize = 3;

fn rests(layout: &Layout) -> Vec<Rests> {
    let mut by_size: BTreeMap<u64, Rests> = BTreeMap::new();
    for segment in layout.segments.iter().filter(|segment| !segment.names.is_empty()) {
        for size_bytes in segment.free_bytes.iter().copied() {
            let new = Rests { size_bytes, count: 0, pinned_by: Vec::new() };
            let rests = by_size.entry(size_bytes).or_insert(new);
            rests.count += 1;
            let room = NAMES.saturating_sub(rests.pinned_by.len());
            let last = segment.names.iter().rev().filter(|name| !name.is_empty());
            rests.pinned_by.extend(last.take(room.min(1)).cloned());
        }
    }
    by_size.into_values().rev().collect()
}

/// Compares the requests of a file with the `cudaMalloc` of each process.
///
/// # Errors
/// If the file or the run cannot be read, or settings are not understood.
pub async fn explain(trace: &Trace, path: &Path, conf: Option<&str>) -> Result<Vec<Explained>, AnalyzeError> {
    let requests = requests::read(path)?;
    let batches = trace
        .batches(
            "SELECT CAST(pid AS BIGINT) AS pid, size_bytes FROM events \
             WHERE op = 'cudaMalloc' AND size_bytes > 0 AND coalesce(ret, 0) = 0 ORDER BY pid, ts",
        )
        .await?;
    let mut recorded: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for batch in &batches {
        let (pids, sizes) = (integers(batch, "pid")?, integers(batch, "size_bytes")?);
        for row in 0..batch.num_rows() {
            recorded.entry(pids.value(row) as u32).or_default().push(sizes.value(row) as u64);
        }
    }
    recorded
        .into_iter()
        .map(|(pid, recorded)| {
            let process = processes(trace).map(|(_, process)| process).find(|process| process.pid == pid);
            let settings = match (conf, process) {
                (Some(conf), process) => parsed(conf, process.map_or("", |process| &process.torch_version))?,
                (None, Some(process)) => {
                    Settings::of_environment(&process.environment, &process.torch_version)
                }
                (None, None) => Settings::default(),
            };
            let layout = requests::lay_out(&requests, settings);
            let predicted = layout.segments.iter().map(|segment| segment.size_bytes);
            let equal = recorded.iter().zip(predicted).take_while(|(a, b)| **a == *b);
            let unused = layout.segments.iter().filter(|segment| segment.free_bytes == [segment.size_bytes]);
            Ok(Explained {
                pid,
                requests_count: requests.len(),
                recorded_count: recorded.len(),
                predicted_count: layout.segments.len(),
                equal_count: equal.count(),
                reserved_bytes: layout.reserved_bytes,
                allocated_bytes: layout.allocated_bytes,
                releasable_bytes: unused.map(|segment| segment.size_bytes).sum(),
                rests: rests(&layout),
            })
        })
        .collect()
}
