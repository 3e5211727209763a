//! Advises what would use less GPU memory, as far as the run itself shows it. All advice rests on bytes that
//! were counted; what cannot be shown is not advised.
//!
//! | rule | evidence |
//! |---|---|
//! | `pinned` | at the peak, free memory that active blocks in the same segments kept from being released |
//! | `expandable_segments` | segments reserved due to fragmentation, or a failed request, and what the simulator says |
//! | `other_stream` | segments reserved although another stream had a free block |
//! | `empty_cache_again` | memory released by `empty_cache()` and reserved again |
//! | `empty_cache_early` | memory that became free after the last `empty_cache()` and remained reserved |
//! | `graph_pools` | unused segments that private pools keep |
//! | `rounding` | memory in blocks that was not requested |
//! | `workspace` | memory that cuBLAS allocates itself |
//! | `by_design` | a program that reserves memory ahead of its needs |

use std::collections::BTreeMap;

use serde::Serialize;
use trace_schema::{Bytes, Nanos, Run};

use crate::questions::memory::{
    expandable::{Expandable, Finding},
    history,
    history_report::{CauseSum, HistoryReport, OomReport},
    state::{self, At, Held, Moment},
};
use crate::trace::Trace;
use analyze_run::error::AnalyzeError;

/// Amounts below this share of the peak are not worth advice.
const WORTH_RATIO: f64 = 0.05;

/// One recommendation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The name of the rule; the table above lists them.
    pub rule: &'static str,
    /// The process; `None` for the whole run.
    pub pid: Option<u32>,
    /// The number of bytes that following the advice would free: of `expandable_segments` what the simulator saves
    /// of the peak, of all others at most; 0 if it saves no memory, or that is not known.
    pub size_bytes: i64,
    /// What to do and why, with the figures.
    pub text: String,
}

/// The memory of a run: its state at the peak and at the end, its history, and advice.
#[derive(Clone, Debug, Serialize)]
pub struct Review {
    /// The state when the most memory was reserved.
    pub peak: Moment,
    /// The state at the end of the run.
    pub end: Moment,
    /// The history.
    pub history: HistoryReport,
    /// The advice: on requests that failed, then that with the most bytes first.
    pub advice: Vec<Advice>,
}

/// Analyzes one run.
pub async fn run(trace: &Trace) -> Result<Review, AnalyzeError> {
    let mut moments = state::run_all(trace, &[At::Peak, At::End]).await?.into_iter();
    let (Some(peak), Some(end)) = (moments.next(), moments.next()) else {
        return Err(AnalyzeError::Internal("an instant has no moment".to_owned()));
    };
    let history = history::run(trace).await?;
    review(trace, peak, end, history).await
}

/// Derives the advice from the states and the history; where it is about expandable segments, the run is simulated.
pub async fn review(
    trace: &Trace,
    peak: Moment,
    end: Moment,
    mut history: HistoryReport,
) -> Result<Review, AnalyzeError> {
    let expandable = match wants_simulation(&peak, &history) {
        true => Expandable::of(trace).await?,
        false => Expandable::default(),
    };
    expandable.explain(&mut history.ooms);
    let runs: Vec<&Run> = trace.files().iter().map(|file| &file.run).collect();
    let mut advice = of_failures(&history, &expandable);
    let mut others = of_state(&peak, &end, &history);
    others.extend(of_history(&peak, &history, &expandable, &advice));
    others.extend(by_design(&runs));
    others.sort_by_key(|advice| std::cmp::Reverse(advice.size_bytes));
    advice.append(&mut others);
    Ok(Review { peak, end, history, advice })
}

/// Returns how much of a process was reserved at the peak.
fn reserved_bytes(peak: &Moment, pid: u32) -> i64 {
    peak.allocators.iter().filter(|held| held.pid == pid).filter_map(|held| held.reserved_bytes).sum()
}

/// Returns whether advice on expandable segments may follow.
fn wants_simulation(peak: &Moment, history: &HistoryReport) -> bool {
    let is_open = |oom: &OomReport| !oom.is_expandable && oom.expandable_helps != Some(false);
    let is_fragmentation = |sum: &CauseSum| {
        sum.is_gain
            && sum.cause == "fragmentation"
            && is_worth(sum.size_bytes as i64, reserved_bytes(peak, sum.pid))
    };
    history.ooms.iter().any(is_open) || history.causes.iter().any(is_fragmentation)
}

fn is_worth(bytes: i64, of: i64) -> bool {
    bytes > 0 && bytes as f64 >= WORTH_RATIO * of as f64
}

/// Returns the advice that follows from the states at the peak and at the end.
fn of_state(peak: &Moment, end: &Moment, history: &HistoryReport) -> Vec<Advice> {
    let mut advice = Vec::new();
    let mut add = |rule, held: &Held, size_bytes: i64, text: String| {
        if is_worth(size_bytes, held.reserved_bytes.unwrap_or_default()) {
            advice.push(Advice { rule, pid: Some(held.pid), size_bytes, text });
        }
    };
    for held in &peak.allocators {
        if let Some((segment, pin)) = held.pinned.first().and_then(|first| Some((first, first.pins.first()?)))
        {
            let text = format!(
                "at the peak {} of {} reserved were free but kept by blocks in use beside them, in {} {}; most ({}) by {:#x} ({}, {}): \
                 allocate what stays for long before what does not, or from a pool of its own (torch.cuda.MemPool)",
                Bytes(held.pinned_bytes),
                Bytes(held.reserved_bytes.unwrap_or_default()),
                held.pinned.len(),
                if held.pinned.len() == 1 { "segment" } else { "segments" },
                Bytes(segment.pinned_bytes as i64),
                pin.addr,
                Bytes(pin.size_bytes as i64),
                pin.age_ns
                    .map_or_else(|| "from before recording".to_owned(), |age| format!("{} old", Nanos(age)))
            );
            add("pinned", held, held.pinned_bytes, text);
        }
        if let Some(rounding) = held.rounding_bytes {
            let text = format!(
                "{} of {} in use at the peak were not asked for: sizes are rounded up (roundup_power2_divisions), and rests up to 1 MiB stay with large blocks",
                Bytes(rounding),
                Bytes(held.allocated_bytes)
            );
            add("rounding", held, rounding, text);
        }
        let private = held.private_releasable_bytes;
        let text = format!(
            "private pools kept {} of unused segments at the peak: capture graphs into one pool (torch.cuda.graph(pool=...)), and delete graphs that are done",
            Bytes(private)
        );
        add("graph_pools", held, private, text);
    }
    for held in &end.allocators {
        let emptied = history.releases.iter().rfind(|release| {
            (release.pid, release.device, release.cause) == (held.pid, held.device, "empty_cache")
        });
        let Some(last) = emptied else { continue };
        let text = format!(
            "{} became free after the last empty_cache ({} after recording began) and stayed: delete references (and gc.collect()) first, then call it",
            Bytes(held.releasable_bytes),
            Nanos(last.since_start_ns)
        );
        add("empty_cache_early", held, held.releasable_bytes, text);
    }
    for device in &peak.devices {
        let mut sums: BTreeMap<u32, i64> = BTreeMap::new();
        for share in &device.shares {
            let is_cublas = share.library.as_deref().is_some_and(|library| library.starts_with("libcublas"));
            if let (true, Some(pid)) = (is_cublas, share.pid) {
                *sums.entry(pid).or_default() += share.size_bytes;
            }
        }
        for (pid, size_bytes) in sums.into_iter().filter(|(_, bytes)| is_worth(*bytes, device.used_bytes)) {
            let text = format!(
                "cuBLAS had {} from the driver by its own calls, besides PyTorch's allocator: CUBLAS_WORKSPACE_CONFIG sets its workspaces",
                Bytes(size_bytes)
            );
            advice.push(Advice { rule: "workspace", pid: Some(pid), size_bytes, text });
        }
    }
    advice
}

/// Returns the advice on requests that failed and that expandable segments would have served.
fn of_failures(history: &HistoryReport, expandable: &Expandable) -> Vec<Advice> {
    let served =
        history.ooms.iter().filter(|oom| oom.expandable_helps.or(oom.expandable_serves) == Some(true));
    let advice = |oom: &OomReport| {
        let why = match oom.expandable_helps {
            Some(_) => "would have had room, wherever the blocks had lain",
            None => "would have had room",
        };
        let (size_bytes, said) = simulated(expandable, oom.pid, oom.device);
        let text = format!(
            "a request for {} failed {} after recording began while {} were free in its pool, in pieces of at most {}: expandable segments \
             (PYTORCH_ALLOC_CONF=expandable_segments:True) {why}{said}",
            Bytes(oom.requested_bytes as i64),
            Nanos(oom.since_start_ns),
            Bytes(oom.pool_free_bytes as i64),
            Bytes(oom.largest_free_bytes as i64)
        );
        Advice { rule: "expandable_segments", pid: Some(oom.pid), size_bytes, text }
    };
    served.map(advice).collect()
}

/// Returns the bytes that the simulator saves with expandable segments, 0 if it does not tell, and its words.
fn simulated(expandable: &Expandable, pid: u32, device: i32) -> (i64, String) {
    let finding = expandable.finding(pid, device);
    let size_bytes = match finding {
        Some(Finding::Saves(bytes)) => (*bytes).max(0),
        _ => 0,
    };
    (size_bytes, finding.map_or_else(String::new, |finding| format!("; {finding}")))
}

/// Returns the advice that follows from what was reserved and released. `known` is the advice on requests that
/// failed.
fn of_history(
    peak: &Moment,
    history: &HistoryReport,
    expandable: &Expandable,
    known: &[Advice],
) -> Vec<Advice> {
    let mut advice = Vec::new();
    for sum in history.causes.iter().filter(|sum| sum.is_gain && history::is_avoidable(sum.cause)) {
        let size_bytes = sum.size_bytes as i64;
        if !is_worth(size_bytes, reserved_bytes(peak, sum.pid)) {
            continue;
        }
        let (count, bytes) = (sum.segments_count, Bytes(size_bytes));
        let is_known = known.iter().any(|known| known.pid == Some(sum.pid));
        let (saved_bytes, said) = simulated(expandable, sum.pid, sum.device);
        let (rule, text) = match sum.cause {
            // A failed request has shown it already, or expandable segments are on or would not help: there is
            // nothing more to say.
            "fragmentation"
                if is_known
                    || history.ooms.iter().any(|oom| oom.pid == sum.pid && oom.is_expandable)
                    || expandable.finding(sum.pid, sum.device).is_some_and(Finding::is_no_help) =>
            {
                continue;
            }
            "fragmentation" => (
                "expandable_segments",
                format!(
                    "{count} cudaMalloc calls ({bytes}) were caused by fragmentation, as enough was free in the pool but no block was large enough: expandable segments join free pages, or sizes that vary less fit better{said}"
                ),
            ),
            "other_stream" => (
                "other_stream",
                format!(
                    "{count} cudaMalloc calls ({bytes}) were made although another stream had a free block that was large enough: streams do not share the cache"
                ),
            ),
            _ => {
                let releases = history.releases.iter().filter(|release| release.pid == sum.pid);
                // A release that made room for a request was needed.
                let emptied = releases.filter(|release| release.cause == "empty_cache");
                let (times, spent) = emptied.fold((0, 0), |(n, ns), release| (n + 1, ns + release.dur_ns));
                if times == 0 {
                    continue;
                }
                (
                    "empty_cache_again",
                    format!(
                        "{bytes} that had been released were allocated again, {count} times; {times} releases took {}: without them nothing would have been slower, and no peak higher",
                        Nanos(spent)
                    ),
                )
            }
        };
        let size_bytes = match rule {
            "expandable_segments" => saved_bytes,
            // Avoiding it saves time, but frees no memory.
            "empty_cache_again" => 0,
            _ => size_bytes,
        };
        advice.push(Advice { rule, pid: Some(sum.pid), size_bytes, text });
    }
    advice
}

/// Programs that reserve memory ahead of their needs: a word of their command line or library paths, and what
/// it means.
const BY_DESIGN: &[(&str, &str)] = &[
    (
        "vllm",
        "vLLM takes most of the device at its start (gpu_memory_utilization) for its key-value cache: what it holds says nothing of its needs",
    ),
    (
        "sglang",
        "SGLang takes most of the device at its start (mem_fraction_static) for its key-value cache: what it holds says nothing of its needs",
    ),
    (
        "libtensorflow",
        "TensorFlow takes nearly all of the device at its start unless memory growth is on (TF_FORCE_GPU_ALLOW_GROWTH)",
    ),
    (
        "libjax",
        "JAX takes three quarters of the device at its start unless XLA_PYTHON_CLIENT_PREALLOCATE=false",
    ),
    ("ollama", "Ollama keeps a model loaded for some minutes after its last request (OLLAMA_KEEP_ALIVE)"),
    ("libggml-cuda", "llama.cpp loads the model and its key-value cache for the whole context at its start"),
    (
        "diffusers",
        "a diffusion pipeline keeps all its models on the device unless it is told to move them away (enable_model_cpu_offload)",
    ),
];

fn by_design(runs: &[&Run]) -> Vec<Advice> {
    let mut advice: Vec<Advice> = Vec::new();
    for run in runs {
        for process in &run.processes {
            let words = process.command.iter().map(String::as_str);
            let libraries = run.libraries.iter().map(|library| library.path.as_str());
            let names: Vec<&str> = words.chain(libraries).flat_map(|word| word.split(['/', ' '])).collect();
            for (name, text) in BY_DESIGN {
                let is_it = |word: &&str| {
                    let rest = word.strip_prefix(name);
                    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
                };
                if names.iter().any(is_it) && !advice.iter().any(|known| known.text == *text) {
                    let text = (*text).to_owned();
                    advice.push(Advice { rule: "by_design", pid: Some(process.pid), size_bytes: 0, text });
                }
            }
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use trace_schema::ProcessInfo;

    use super::*;

    #[test]
    fn programs_that_hold_memory_by_design_are_known_by_whole_words() {
        let run = |command: &[&str]| Run {
            processes: vec![ProcessInfo {
                pid: 7,
                command: command.iter().map(|word| (*word).to_owned()).collect(),
                ..ProcessInfo::default()
            }],
            ..Run::default()
        };
        let found = by_design(&[&run(&["/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server"])]);
        assert_eq!((found[0].rule, found[0].pid), ("by_design", Some(7)));
        assert!(by_design(&[&run(&["python3", "train.py", "--name", "vllmish"])]).is_empty());
    }
}
