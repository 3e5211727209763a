//! Computes what a run would have reserved of the GPU's memory with other settings of PyTorch's allocator,
//! and whether requests that are known from elsewhere explain the recorded segments.
//!
//! The requests, and the times at which blocks were freed and unused memory was released, are those on
//! record; the program is assumed to behave the same. A claim rests on the control: the same rules with the
//! settings that the run had must have reserved, after every request, exactly what was recorded.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use serde::Serialize;
use trace_schema::{Bytes, ProcessInfo};

use crate::{questions::marks, trace::Trace};
use analyze_engine::session::string_literal;
use analyze_memory::{
    input::{Input, Key},
    settings::Settings,
    what_if::{
        changes::{Alternative, Changes},
        ensemble::Ensemble,
        limits::Limits,
        policy::Counts,
        record::{Calls, Case, Cases},
        requests::{self, Layout},
        served::Served,
    },
};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// The settings to try if none are given.
const USUAL: [&str; 4] = [
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:8",
];

/// The result for one set of settings.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The settings, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`, and the changes of the program.
    pub settings: String,
    /// The number of replays: more than one if the record leaves decisions open.
    pub replays_count: usize,
    /// The number of replays that end at a request whose outcome is not the one on record.
    pub ended_replays_count: usize,
    /// The largest number of reserved bytes; like each of the following, `None` if the replays differ.
    pub peak_reserved_bytes: Option<u64>,
    /// The least peak of a replay.
    pub peak_reserved_min_bytes: u64,
    /// The greatest peak of a replay.
    pub peak_reserved_max_bytes: u64,
    /// The time of the maximum, in ns since recording began; `None` if nothing was reserved, too.
    pub peak_since_start_ns: Option<i64>,
    /// The recorded peak minus this one in bytes; `None` if a replay ended early, too.
    pub saved_bytes: Option<i64>,
    /// The bytes reserved at the end of the simulation.
    pub end_reserved_bytes: Option<u64>,
    /// The fewest bytes that a replay has reserved at its end.
    pub end_reserved_min_bytes: u64,
    /// The most bytes that a replay has reserved at its end.
    pub end_reserved_max_bytes: u64,
    /// The number of times that memory was reserved from the driver.
    pub asked_count: Option<u64>,
    /// The number of times that memory was released to the driver.
    pub given_back_count: Option<u64>,
    /// The number of times that everything unused was released because the device was full.
    pub retries_count: Option<u64>,
    /// The largest number of bytes that the settings let the process reserve; `None` if they have no limit.
    pub limit_bytes: Option<u64>,
    /// The time at which the first request failed that had not failed on record, in ns since recording began;
    /// the simulation ends there. `None` if the replays differ.
    pub fails_since_start_ns: Option<i64>,
    /// The time at which the first request was served that had failed on record, in ns since recording began;
    /// the simulation ends there. `None` if the replays differ.
    pub serves_since_start_ns: Option<i64>,
    /// The size in bytes of the request that ended the simulation.
    pub ended_requested_bytes: Option<u64>,
    /// Whether the control supports the result: it reproduces the record, or the bytes saved exceed the
    /// control's largest error.
    pub is_known: bool,
}

/// The results for one allocator.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// The number of requests that were served on record.
    pub requests_count: u64,
    /// The number of requests that failed on record.
    pub failed_count: u64,
    /// The largest number of reserved bytes on record.
    pub peak_reserved_bytes: u64,
    /// The time of that maximum, in ns since recording began; `None` if nothing was reserved.
    pub peak_since_start_ns: Option<i64>,
    /// The bytes reserved at the end of the record.
    pub end_reserved_bytes: u64,
    /// The number of segments and ranges that were reserved on record.
    pub asked_count: u64,
    /// The number of segments and ranges that were released on record.
    pub given_back_count: u64,
    /// The bytes that the allocator could reserve at least, as given by the user or shown by the first failed
    /// request; `None` if neither tells, and memory is assumed to suffice.
    pub capacity_bytes: Option<u64>,
    /// The result for the settings that the run had.
    pub control: Outcome,
    /// The number of requests after which the control had reserved exactly what was recorded.
    pub control_equal_count: u64,
    /// The largest difference between the control's reserved bytes and the record's.
    pub control_difference_bytes: u64,
    /// The result for each of the alternative settings.
    pub outcomes: Vec<Outcome>,
    /// The limitations of the results, in words.
    pub notes: Vec<String>,
}

/// The parameters of the analysis.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// The alternative settings, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; if empty, some usual ones are
    /// tried.
    pub settings: Vec<String>,
    /// The largest number of bytes that an allocator can reserve; `None` derives it from failed requests. It
    /// also stands for the device's total memory where the run does not tell.
    pub capacity_bytes: Option<u64>,
    /// The program does not call `empty_cache()`.
    pub no_empty_cache: bool,
    /// The names of marks at whose ends the program calls `empty_cache()` in addition.
    pub empty_cache_after: Vec<String>,
    /// The name of the marks during which their threads allocate from a pool of its own.
    pub mem_pool: Option<String>,
}

impl Params {
    fn changes_program(&self) -> bool {
        self.no_empty_cache || !self.empty_cache_after.is_empty() || self.mem_pool.is_some()
    }
}

/// The setting that needs the device's total memory, and why it cannot be followed without.
const FRACTION: &str = "per_process_memory_fraction";
const UNKNOWN_TOTAL: &str =
    "it is a share of the device's total memory, which the record does not tell (--capacity gives it)";

fn processes(trace: &Trace) -> impl Iterator<Item = (u32, &ProcessInfo)> {
    let runs = trace.files().iter().enumerate();
    runs.flat_map(|(run, file)| file.run.processes.iter().map(move |process| (run as u32, process)))
}

/// Parses settings for a process with that version of PyTorch.
fn parsed(conf: &str, version: &str) -> Result<Settings, AnalyzeError> {
    let settings = Settings::parse(conf, version);
    match settings.refused.iter().chain(&settings.not_simulated).next() {
        Some(refusal) => Err(AnalyzeError::Query(refusal.to_string())),
        None => Ok(settings),
    }
}

/// Returns the total memory of the devices of each run, by the run's number, as CUDA and PyTorch count it:
/// without what the driver reserves for itself. NVML's numbers of devices are not CUDA's, so it is known only
/// if all devices have the same.
async fn device_bytes(trace: &Trace) -> Result<HashMap<u32, u64>, AnalyzeError> {
    let batches = trace
        .batches(
            "SELECT run, max(room) AS bytes FROM (SELECT run, device, \
             max(CASE WHEN counter = 'memory_total_bytes' THEN value END) \
             - max(CASE WHEN counter = 'memory_reserved_bytes' THEN value END) AS room \
             FROM samples WHERE device IS NOT NULL GROUP BY run, device) AS devices \
             GROUP BY run HAVING min(room) = max(room) AND count(room) = count(*)",
        )
        .await?;
    let mut found = HashMap::new();
    for batch in &batches {
        let (runs, bytes) = (strings(batch, "run")?, integers(batch, "bytes")?);
        for row in 0..batch.num_rows() {
            let run = trace.files().iter().position(|file| file.name == runs.value(row));
            let bytes = bytes.at(row).and_then(|bytes| u64::try_from(bytes).ok());
            found.extend(run.map(|run| run as u32).zip(bytes));
        }
    }
    Ok(found)
}

/// Returns what each process does otherwise, by its number.
async fn changes(trace: &Trace, params: &Params) -> Result<HashMap<u32, Changes>, AnalyzeError> {
    let mut found: HashMap<u32, Changes> = HashMap::new();
    let wanted: BTreeSet<&String> = params.empty_cache_after.iter().chain(&params.mem_pool).collect();
    for name in wanted {
        let query = format!(
            "SELECT CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, ts, ts + coalesce(dur, 0) AS end_ts \
             FROM marks WHERE name = {} ORDER BY pid, end_ts",
            string_literal(name)
        );
        let mut uses: BTreeMap<(u32, u32), Vec<(i64, i64)>> = BTreeMap::new();
        for batch in &trace.batches(&query).await? {
            let [pids, tids, starts, ends] = [
                integers(batch, "pid")?,
                integers(batch, "tid")?,
                integers(batch, "ts")?,
                integers(batch, "end_ts")?,
            ];
            for row in 0..batch.num_rows() {
                let thread = (pids.value(row) as u32, tids.value(row) as u32);
                uses.entry(thread).or_default().push((starts.value(row), ends.value(row)));
            }
        }
        if uses.is_empty() {
            return Err(marks::missing(name));
        }
        for ((pid, tid), times) in uses {
            let changes = found.entry(pid).or_default();
            changes.no_empty_cache = params.no_empty_cache;
            if params.empty_cache_after.contains(name) {
                changes.empty_cache_ts.extend(times.iter().map(|(_, end)| *end));
                changes.empty_cache_ts.sort_unstable();
            }
            if params.mem_pool.as_ref() == Some(name) {
                changes.pool_uses.insert(tid, times.into());
            }
        }
    }
    Ok(found)
}

/// Analyzes every allocator of one run whose requests are on record.
///
/// # Errors
/// Returns an error if the run's data cannot be read, or if settings cannot be followed.
pub async fn run(trace: &Trace, params: &Params) -> Result<Vec<WhatIf>, AnalyzeError> {
    let usual = USUAL.map(str::to_owned);
    // Changes alone are tried with the settings that the run had.
    let asked: Vec<Option<String>> = match params.settings.is_empty() {
        true if params.changes_program() => vec![None],
        true => usual.map(Some).into(),
        false => params.settings.iter().cloned().map(Some).collect(),
    };
    let of_version = |version: &str| {
        let parsed = |conf: &Option<String>| conf.as_ref().map(|conf| parsed(conf, version)).transpose();
        asked.iter().map(parsed).collect::<Result<Vec<Option<Settings>>, _>>()
    };
    let alternatives = |settings: Vec<Option<Settings>>, changes: &Changes| -> Vec<Alternative> {
        let with = |settings| Alternative { settings, changes: changes.clone() };
        settings.into_iter().map(with).collect()
    };
    let default = of_version("")?;
    let changes = changes(trace, params).await?;
    let ignored = ignored(default.iter().flatten());
    let has_share = default.iter().flatten().any(|settings| settings.memory_ratio.is_some());
    let unmarked = Changes { no_empty_cache: params.no_empty_cache, ..Changes::default() };
    let mut cases = Cases { default: alternatives(default, &unmarked), ..Cases::default() };
    for (run, process) in processes(trace) {
        let changes = changes.get(&process.pid).unwrap_or(&unmarked);
        cases.asked.insert((run, process.pid), alternatives(of_version(&process.torch_version)?, changes));
    }
    cases.device_bytes = device_bytes(trace).await?;
    let is_known = params.capacity_bytes.is_some() || cases.device_bytes.len() == trace.files().len();
    if !is_known && has_share {
        return Err(AnalyzeError::Query(format!("{FRACTION}: {UNKNOWN_TOTAL}")));
    }
    let input = Input::new(trace.events(), trace.files());
    let (_, limits) = input.replay(Vec::new(), BTreeMap::<_, Limits>::new()).await?;
    cases.limits = limits;
    cases.capacity_bytes = params.capacity_bytes;
    let (_, cases) = input.replay(Vec::new(), cases).await?;
    let start = trace.files().first().map_or(0, |file| file.run.clock.start_ns);
    let found = cases.cases.iter().map(|(key, case)| {
        let mut found = of_case(*key, case, &asked, params, start);
        found.notes.extend(ignored.clone());
        found
    });
    // Segments without requests, as calls of the driver alone show them, tell nothing about other settings.
    Ok(found.filter(|found| found.requests_count + found.failed_count > 0).collect())
}

/// Returns a note that names the settings without effect; `None` if there are none.
fn ignored<'a>(settings: impl Iterator<Item = &'a Settings>) -> Option<String> {
    let without_effect: BTreeSet<_> = settings.flat_map(|of| &of.without_effect).collect();
    let named: Vec<String> =
        without_effect.into_iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
    (!named.is_empty()).then(|| format!("without effect on what is reserved: {}", named.join(", ")))
}

fn outcome(settings: String, replays: &Ensemble, record_peak: u64, start: i64) -> Outcome {
    let peak = replays.range(|served| served.counts().peak_reserved_bytes);
    let end = replays.range(|served| served.counts().reserved_bytes);
    let count = |count: fn(&Counts) -> u64| replays.range(|served| count(&served.counts())).single();
    let ended =
        replays.range(|served| served.ended.map(|ended| (ended.ts, ended.requested_bytes, ended.is_served)));
    let ended_at = |is_served: bool| {
        ended.single().flatten().filter(|(.., served)| *served == is_served).map(|(ts, ..)| ts - start)
    };
    let has_ended = ended.max.is_some();
    Outcome {
        settings,
        replays_count: replays.all().count(),
        ended_replays_count: replays.all().filter(|served| served.ended.is_some()).count(),
        peak_reserved_bytes: peak.single(),
        peak_reserved_min_bytes: peak.min,
        peak_reserved_max_bytes: peak.max,
        peak_since_start_ns: replays.range(Served::peak_ts).single().flatten().map(|ts| ts - start),
        saved_bytes: peak.single().filter(|_| !has_ended).map(|peak| record_peak as i64 - peak as i64),
        end_reserved_bytes: end.single(),
        end_reserved_min_bytes: end.min,
        end_reserved_max_bytes: end.max,
        asked_count: count(|counts| counts.asked_count),
        given_back_count: count(|counts| counts.given_back_count),
        retries_count: count(|counts| counts.retries_count),
        limit_bytes: replays.all().next().and_then(Served::limit_bytes),
        fails_since_start_ns: ended_at(false),
        serves_since_start_ns: ended_at(true),
        ended_requested_bytes: ended.single().flatten().map(|(_, bytes, _)| bytes),
        is_known: true,
    }
}

/// Returns the settings and changes of an alternative in words.
fn in_words(settings: Option<&str>, params: &Params) -> String {
    let mut words = vec![settings.unwrap_or("as they were").to_owned()];
    words.extend(params.no_empty_cache.then(|| "no empty_cache()".to_owned()));
    words.extend(params.empty_cache_after.iter().map(|mark| format!("empty_cache() after {mark:?}")));
    words.extend(params.mem_pool.iter().map(|mark| format!("a MemPool in {mark:?}")));
    words.join("; ")
}

fn of_case(key: Key, case: &Case, asked: &[Option<String>], params: &Params, start: i64) -> WhatIf {
    let control = Ensemble::new(case.control.clone(), None);
    let control = outcome("as they were".to_owned(), &control, case.peak_reserved_bytes, start);
    let is_exact = case.equal_count == case.requests_count && case.control.ended.is_none();
    let outcomes: Vec<Outcome> = asked
        .iter()
        .zip(&case.asked)
        .map(|(settings, asked)| {
            let outcome = outcome(
                in_words(settings.as_deref(), params),
                &asked.replays,
                case.peak_reserved_bytes,
                start,
            );
            let recorded = case.peak_reserved_bytes;
            let least = match recorded {
                recorded if outcome.peak_reserved_max_bytes < recorded => {
                    recorded - outcome.peak_reserved_max_bytes
                }
                recorded => outcome.peak_reserved_min_bytes.saturating_sub(recorded),
            };
            let has_ended = outcome.ended_replays_count > 0;
            let waits = params.no_empty_cache && case.waits_in_calls;
            let is_known = !waits
                && (is_exact || case.control.ended.is_none() && !has_ended && least > case.difference_bytes);
            Outcome { is_known, ..outcome }
        })
        .collect();
    let mut notes = Vec::new();
    if outcomes.iter().any(|outcome| outcome.replays_count > 1) {
        notes.push(
            "a range spans all replays: addresses of segments, which each process gets anew, calls of \
             empty_cache() that are not on record, when a private pool was destroyed, or what a failed request \
             asked for decide between them"
                .to_owned(),
        );
    }
    let has_more = |outcome: &Outcome| {
        outcome.limit_bytes.is_none() && outcome.peak_reserved_max_bytes > case.peak_reserved_bytes
    };
    if case.capacity_bytes.is_none() && outcomes.iter().any(has_more) {
        notes.push(
            "the device is taken to have room for more than was ever reserved on record (--capacity limits it)".to_owned(),
        );
    }
    if params.no_empty_cache && case.waits_in_calls {
        notes.push(
            "inconclusive without empty_cache(): it waited for streams that still used blocks, which would have been free later"
                .to_owned(),
        );
    }
    if case.calls == Calls::Partial {
        notes.push(
            "the program called empty_cache(); a call that released nothing is not on record: each replay has other ones"
                .to_owned(),
        );
    }
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
    notes.extend(case.settings.not_simulated.iter().map(|refusal| format!("the run had {refusal}")));
    if case.settings.memory_ratio.is_some() {
        if case.device_bytes.is_none() {
            notes.push(format!("the run had {FRACTION}, which is not followed: {UNKNOWN_TOTAL}"));
        }
        if case.settings.gc_threshold_ratio.is_some() {
            notes.push(
                "the run had garbage_collection_threshold: where it released memory, all unused memory is released"
                    .to_owned(),
            );
        }
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
        outcomes,
        notes,
    }
}

/// Free blocks of one size that remain beside requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rests {
    /// The size of each block in bytes.
    pub size_bytes: u64,
    /// The number of blocks.
    pub count: u64,
    /// The names of requests in the same segments, at most three.
    pub pinned_by: Vec<String>,
}

/// A comparison of requests from elsewhere with the segments of one process.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The process.
    pub pid: u32,
    /// The number of requests.
    pub requests_count: usize,
    /// The number of recorded segments.
    pub recorded_count: usize,
    /// The number of segments that the requests need.
    pub predicted_count: usize,
    /// The number of leading segments whose predicted and recorded sizes are the same.
    pub equal_count: usize,
    /// Predicted reserved bytes.
    pub reserved_bytes: u64,
    /// Predicted allocated bytes.
    pub allocated_bytes: u64,
    /// Predicted bytes in segments that are entirely free.
    pub releasable_bytes: u64,
    /// The free blocks in the other segments by size, largest first.
    pub rests: Vec<Rests>,
}

/// The largest number of requests named for one size of free blocks.
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

/// Compares the requests of a file with the `cudaMalloc` calls of each process.
///
/// # Errors
/// Returns an error if the file or the run cannot be read, or if settings cannot be followed.
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
                (Some(conf), process) => {
                    let settings = parsed(conf, process.map_or("", |process| &process.torch_version))?;
                    if settings.memory_ratio.is_some() {
                        return Err(AnalyzeError::Query(format!(
                            "{FRACTION}: the requests of --requests are laid out as if memory sufficed"
                        )));
                    }
                    settings
                }
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
