//! Which calls would confirm a finding, or rule it out: its own evidence, and for its kind what would refute it. For topics
//! in words, a table of first calls, and queries about the functions that they name.

use serde_json::{Value, json};

use super::{answer::ARGUMENTS, id::Id};
use crate::{
    mcp::tools::ToolName,
    questions::findings::{Confidence, Finding},
};
use analyze_engine::session::string_literal;

/// What a call would do for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settles {
    /// It shows the figures that the claim rests on.
    Confirms,
    /// It shows what would have to be there if the claim were wrong.
    RulesOut,
    /// It leads to claims.
    Explores,
}

impl Settles {
    /// Returns the word for it in answers.
    fn name(self) -> &'static str {
        match self {
            Self::Confirms => "confirms",
            Self::RulesOut => "rules out",
            Self::Explores => "explores",
        }
    }
}

/// What a call asks, without the run.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Tool(ToolName),
    SlowCall,
    Gap,
    WithoutEmptyCache,
    Sql(&'static str),
    Search(&'static str),
}

/// A call of a table, and why it is made.
type Call = (Ask, &'static str);

/// The account of the run's time by thread state: what is not in the part of a finding is in another one.
const ACCOUNT: Call = (
    Ask::Sql(
        "SELECT pid, stage, part, state, sum(time_ns) AS time_ns FROM run_time GROUP BY pid, stage, part, state ORDER BY time_ns DESC, pid, stage, part, state",
    ),
    "The parts of the account sum to the wall time: if another part is larger, it bounds the run instead; `unknown` is not on record.",
);
const LOSSES: Call = (
    Ask::Sql("SELECT * FROM lost_events ORDER BY lost_count DESC"),
    "Events that were lost may be those that are missing: where any were, absence proves nothing.",
);
const SLOW_CALL: Call = (
    Ask::SlowCall,
    "The worst slow call with its wakeup chain: its root cause is this one, or the finding is not why calls were slow.",
);
const GAP: Call = (
    Ask::Gap,
    "The longest gap between launches, divided by what the thread did: if host_ns is most of it, nothing else kept the thread.",
);
const MEMORY_PEAK: Call = (
    Ask::Tool(ToolName::Memory),
    "Where the memory was at the peak: what is allocated cannot be saved by the allocator's settings.",
);
const WHAT_IF: Call = (
    Ask::Tool(ToolName::WhatIf),
    "If no setting would have reserved less, fragmentation is not why memory was short.",
);
const LEAKS: Call = (
    Ask::Tool(ToolName::Leaks),
    "If no site keeps blocks epoch after epoch, memory does not leak: the verdict says why else it grows.",
);
const QUALITY: Call = (
    Ask::Sql("SELECT * FROM data_quality"),
    "Contradictions between rows of the run would make its figures wrong; no row means that none was found.",
);

const CAUSES: Call = (
    Ask::Sql("SELECT * FROM metrics_causes ORDER BY excess_ns DESC, subject LIMIT 20"),
    "The excess latency of each function's slow calls, divided by cause: a cause with a small part is not why they were slow.",
);
const DEVICE_BUSY: Call = (
    Ask::Sql(
        "SELECT pid, count(*) AS intervals_count, sum(dur) AS busy_ns FROM device_busy GROUP BY pid ORDER BY pid",
    ),
    "How long the GPU was busy, if a profile recorded it: a busy GPU bounds the run, whatever the host does.",
);
const BREAKDOWN: Call = (
    Ask::Sql(
        "SELECT part, pid, max(size_bytes) AS most_bytes FROM memory_breakdown GROUP BY part, pid ORDER BY most_bytes DESC",
    ),
    "Who else had the device's memory: a neighbour, or libraries, instead of PyTorch.",
);
const WITHOUT_EMPTY_CACHE: Call = (
    Ask::WithoutEmptyCache,
    "What would be reserved without the program's calls of empty_cache(), by the allocator's own rules.",
);
const RELEASES: Call = (
    Ask::Sql("SELECT * FROM memory_releases ORDER BY ts LIMIT 20"),
    "What each release of memory to the driver, such as empty_cache(), released, and why the rest stayed.",
);
const NCCL_VOLUME: Call = (
    Ask::Sql("SELECT * FROM nccl_volume ORDER BY op, pid, communicator"),
    "The calls and bytes of each NCCL operation on each rank: ranks with other numbers do other work.",
);

/// Queries about one function, for which `FUNCTION` stands.
const OF_FUNCTION: &[(&str, &str)] = &[
    (
        "SELECT op, count(*) AS calls_count, sum(dur) AS dur_ns, max(dur) AS longest_ns, sum(on_cpu_ns) AS on_cpu_ns, sum(preempted_ns) AS preempted_ns, sum(runnable_ns) AS runnable_ns, sum(throttled_ns) AS throttled_ns, sum(blocked_ns) AS blocked_ns, sum(stopped_ns) AS stopped_ns, sum(unknown_ns) AS unknown_ns FROM op_time WHERE op = FUNCTION GROUP BY op",
        "The time in all calls of the function, divided by what the thread did: preempted_ns and runnable_ns are the time without a CPU.",
    ),
    (
        "SELECT * FROM metrics_causes WHERE subject = FUNCTION",
        "The excess latency of the function's slow calls, divided by cause: what lost_unexplained_ns has, the record does not explain.",
    ),
    (
        "SELECT op, ts, dur, pid, tid, depth, phase, baseline_ns, excess_ns, verdict, verdict_share_ratio, root_cause, culprit_comm FROM slow_calls WHERE op = FUNCTION ORDER BY excess_ns DESC, ts LIMIT 10",
        "The function's slow calls one by one, each with the cause of most of its excess latency.",
    ),
];
/// The largest number of functions of a topic that are asked for.
const MOST_FUNCTIONS: usize = 3;

/// What would refute findings of these kinds. A test holds that each kind has a line.
const REFUTING: &[(&[&str], &[Call])] = &[
    (
        &["crash", "failed-call", "hang", "killed", "exited-early"],
        &[
            (
                Ask::Sql("SELECT * FROM process_events WHERE op IN ('exit', 'oom_kill') ORDER BY ts"),
                "How each process ended: one that ended well, or before the failure, did not end because of it.",
            ),
            (
                Ask::Sql(
                    "SELECT op, ret, count(*) AS calls_count, min(ts) AS first_ts FROM ops WHERE ret <> 0 GROUP BY op, ret ORDER BY first_ts",
                ),
                "Which calls failed, first ones first: a failure before this one is its cause.",
            ),
            LOSSES,
        ],
    ),
    (&["out-of-memory", "fragmentation", "allocator-retries"], &[MEMORY_PEAK, WHAT_IF, BREAKDOWN]),
    (
        &["leak", "driver-leak"],
        &[
            LEAKS,
            (
                Ask::Sql("SELECT * FROM memory_epochs ORDER BY pid, device, epoch"),
                "The totals at the end of each epoch: allocated bytes that stop growing are a one-off, not a leak.",
            ),
            LOSSES,
        ],
    ),
    (
        &["waiting-for-cpu", "cpu-quota", "stopped"],
        &[
            SLOW_CALL,
            (
                Ask::Sql("SELECT * FROM run_queue_latency ORDER BY total_ns DESC LIMIT 50"),
                "The time in which each thread was runnable and waited: if only threads that nobody waited for did, it is not a factor.",
            ),
            ACCOUNT,
        ],
    ),
    (
        &["needless-sync", "pageable-copies", "copies", "allocation-in-loop", "graph-building"],
        &[
            (
                Ask::Sql("SELECT * FROM sync_waits"),
                "What the GPU did during waits: a wait for a busy GPU is the GPU's time, and not saved by leaving out the call.",
            ),
            ACCOUNT,
            GAP,
        ],
    ),
    (&["tiny-kernels", "idle-gpu", "host-bound", "host-pauses", "throttling"], &[DEVICE_BUSY, GAP, ACCOUNT]),
    (
        &["stragglers"],
        &[
            (
                Ask::Sql("SELECT * FROM nccl ORDER BY ts LIMIT 50"),
                "The collective calls of every process: a rank that is not last in most of them holds nobody up.",
            ),
            ACCOUNT,
        ],
    ),
    (
        &[
            "gil-contention",
            "lock-contention",
            "waiting-for-thread",
            "unknown-wait",
            "starved-loader",
            "sleep",
            "disk",
            "page-cache",
        ],
        &[
            (
                Ask::Sql("SELECT * FROM off_cpu_causes ORDER BY total_ns DESC LIMIT 50"),
                "In which system calls threads slept: sleep in another one is another cause.",
            ),
            SLOW_CALL,
            ACCOUNT,
        ],
    ),
    (
        &["recompilation", "compilation", "module-loading", "start-up"],
        &[
            (
                Ask::Sql(
                    "SELECT ts, pid, comm, detail FROM process_events WHERE op = 'exec' ORDER BY ts LIMIT 50",
                ),
                "The programs that were started: without compilers among them, a pause was something else.",
            ),
            ACCOUNT,
        ],
    ),
];

/// Words of topics, and the calls to begin with.
const TOPICS: &[(&[&str], &[Call])] = &[
    (
        &["slow", "latency", "stall", "call", "jitter", "tail"],
        &[
            (Ask::Tool(ToolName::Findings), "What costs most of the wall time, ranked, with evidence."),
            CAUSES,
            (Ask::SlowCall, "The worst slow call, its causes and its wakeup chain."),
            ACCOUNT,
        ],
    ),
    (&["memory", "oom", "fragmentation", "reserved", "allocator"], &[MEMORY_PEAK, WHAT_IF, LEAKS]),
    (&["oom", "device", "neighbour", "process", "library"], &[BREAKDOWN]),
    (&["leak", "grow", "growth"], &[LEAKS, MEMORY_PEAK]),
    (&["empty", "emptied", "release", "released"], &[WITHOUT_EMPTY_CACHE, RELEASES]),
    (
        &["gpu", "idle", "busy", "kernel", "launch", "utilization"],
        &[
            (Ask::Gap, "The longest gap between launches, and what the host did in it."),
            DEVICE_BUSY,
            ACCOUNT,
            (Ask::Search("launch"), "Views about launches."),
        ],
    ),
    (
        &["cpu", "scheduler", "preempted", "noisy", "neighbour", "hog", "throttled"],
        &[CAUSES, (Ask::SlowCall, "The worst slow call, and which task had the CPU."), ACCOUNT],
    ),
    (
        &["nccl", "collective", "rank", "straggler", "distributed"],
        &[NCCL_VOLUME, (Ask::Search("nccl"), "Views about collective operations."), ACCOUNT],
    ),
    (
        &["crash", "hang", "fail", "failed", "error", "exit"],
        &[
            (Ask::Tool(ToolName::Findings), "What ended the run ranks first."),
            (
                Ask::Sql("SELECT * FROM process_events WHERE op IN ('exit', 'oom_kill') ORDER BY ts"),
                "How each process ended.",
            ),
        ],
    ),
    (&["trust", "missing", "lost", "quality", "record"], &[LOSSES, QUALITY]),
];

/// Where to begin if a topic has none of the words above.
const ANYTHING: &[Call] = &[
    (Ask::Tool(ToolName::Findings), "What is wrong with the run, ranked, with evidence."),
    ACCOUNT,
    QUALITY,
];

/// Returns a call as clients make it, with why it is made.
fn shown(run: &str, tool: ToolName, arguments: Value, why: &str, settles: Settles, id: Option<&Id>) -> Value {
    let mut arguments = arguments;
    if tool != ToolName::Schema && !matches!(id, Some(Id::Thing(..) | Id::Finding { .. })) {
        arguments["run"] = json!(run);
    }
    let mut call =
        json!({ "tool": tool.name(), ARGUMENTS: arguments, "why": why, "settles": settles.name() });
    if let Some(id) = id {
        super::answer::with_id(&mut call, id);
    }
    call
}

fn of_table(run: &str, (ask, why): Call, settles: Settles) -> Value {
    match ask {
        Ask::Tool(tool) => shown(run, tool, json!({}), why, settles, None),
        Ask::SlowCall => shown(run, ToolName::Explain, json!({ "slow_call_rank": 1 }), why, settles, None),
        Ask::Gap => shown(run, ToolName::Explain, json!({ "gap_rank": 1 }), why, settles, None),
        Ask::WithoutEmptyCache => {
            shown(run, ToolName::WhatIf, json!({ "no_empty_cache": true }), why, settles, None)
        }
        Ask::Sql(query) => {
            shown(run, ToolName::Sql, json!({ "query": query }), why, settles, Some(&Id::sql(run, query)))
        }
        Ask::Search(words) => shown(run, ToolName::Schema, json!({ "search": words }), why, settles, None),
    }
}

/// Returns the calls that would confirm a finding, or rule it out.
pub fn for_finding(run: &str, finding: &Finding) -> Vec<Value> {
    let with_query = finding.evidence.iter().filter(|evidence| !evidence.sql.is_empty());
    let own = with_query.map(|evidence| {
        let why = format!("It returns what the finding rests on: {}.", evidence.text);
        let id = Id::sql(run, evidence.sql.clone());
        shown(run, ToolName::Sql, json!({ "query": evidence.sql }), &why, Settles::Confirms, Some(&id))
    });
    let mut calls: Vec<Value> = own.collect();
    let refuting = REFUTING
        .iter()
        .find(|(kinds, _)| kinds.contains(&finding.kind))
        .map_or(ANYTHING, |(_, calls)| *calls);
    calls.extend(refuting.iter().map(|call| of_table(run, *call, Settles::RulesOut)));
    if finding.confidence != Confidence::Measured {
        // What the record lacks is named by the warnings of the run.
        let why =
            format!("The finding is not measured: {}. The warnings say what was not recorded.", finding.open);
        calls.push(shown(run, ToolName::Open, json!({}), &why, Settles::Explores, None));
    }
    calls
}

/// Returns the functions of CUDA and NCCL that a topic names, each once.
fn functions(topic: &str) -> Vec<&str> {
    let is_function = |word: &str| {
        ["cu", "cuda", "nccl"].iter().any(|prefix| {
            word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        })
    };
    let mut found: Vec<&str> = Vec::new();
    for word in topic.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if is_function(word) && !found.contains(&word) {
            found.push(word);
        }
    }
    found.truncate(MOST_FUNCTIONS);
    found
}

/// Returns the calls to begin with for a topic in words.
pub fn for_topic(run: &str, topic: &str) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    for function in functions(topic) {
        let literal = string_literal(function);
        calls.extend(OF_FUNCTION.iter().map(|(query, why)| {
            let query = query.replace("FUNCTION", &literal);
            let id = Id::sql(run, query.clone());
            shown(run, ToolName::Sql, json!({ "query": query }), why, Settles::Explores, Some(&id))
        }));
    }
    let topic = topic.to_lowercase();
    let words: Vec<&str> =
        topic.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_form =
        |word: &str, known: &str| ["", "s", "es"].iter().any(|end| word.strip_suffix(end) == Some(known));
    let is_said = |known: &str| words.iter().any(|word| is_form(word, known));
    for (known, table) in TOPICS {
        if known.iter().any(|known| is_said(known)) {
            calls.extend(table.iter().map(|call| of_table(run, *call, Settles::Explores)));
        }
    }
    if calls.is_empty() {
        calls.extend(ANYTHING.iter().map(|call| of_table(run, *call, Settles::Explores)));
    }
    // Topics have calls in common, for reasons of their own.
    let mut seen: Vec<(Value, Value)> = Vec::new();
    calls.retain(|call| {
        let asked = (call["tool"].clone(), call[ARGUMENTS].clone());
        let is_new = !seen.contains(&asked);
        seen.push(asked);
        is_new
    });
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{questions::findings::detectors, trace::Trace};

    /// Returns the queries that the calls for a topic make.
    fn queries(topic: &str) -> Vec<String> {
        let calls = for_topic("r", topic);
        calls.iter().filter_map(|call| call[ARGUMENTS]["query"].as_str()).map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_of_finding_has_what_would_refute_it() {
        let kinds: Vec<&str> =
            detectors().iter().flat_map(|detector| detector.kinds).map(|(kind, _)| *kind).collect();
        let known: Vec<&str> = REFUTING.iter().flat_map(|(kinds, _)| *kinds).copied().collect();
        for kind in &kinds {
            assert_eq!(known.iter().filter(|other| *other == kind).count(), 1, "{kind}");
        }
        let unknown: Vec<&&str> = known.iter().filter(|kind| !kinds.contains(*kind)).collect();
        assert!(unknown.is_empty(), "no such kinds: {unknown:?}");
    }

    #[test]
    fn every_query_of_the_tables_plans() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let tables = REFUTING.iter().chain(TOPICS).flat_map(|(_, calls)| calls.iter()).chain(ANYTHING);
        let mut known: Vec<String> = tables
            .filter_map(|(ask, _)| if let Ask::Sql(query) = ask { Some((*query).to_owned()) } else { None })
            .collect();
        known.extend(queries("ncclAllReduce and cudaFree"));
        assert!(known.len() > 10);
        runtime.block_on(async {
            let trace = Trace::literal().await.expect("a trace");
            for query in &known {
                let planned = trace.sql(query).await;
                assert!(planned.is_ok(), "{query}: {:?}", planned.err());
            }
        });
    }

    #[test]
    fn a_topic_in_words_has_calls_each_once() {
        let tools = |topic: &str| -> Vec<String> {
            let calls = for_topic("r", topic);
            calls.iter().map(|call| call["tool"].as_str().expect("a tool").to_owned()).collect()
        };
        assert_eq!(tools("Does it leak memory?"), ["memory", "what_if", "leaks"]);
        assert_eq!(tools("zebra"), ["findings", "sql", "sql"]);
        // Topics ask for findings for different reasons: they are asked for once all the same.
        assert_eq!(tools("slow, then failed").iter().filter(|tool| *tool == "findings").count(), 1);
        assert_eq!(tools("launches"), tools("launch"));
        let calls = for_topic("r", "leaks");
        assert_eq!(calls[0][ARGUMENTS], json!({ "run": "r" }));
        assert_eq!(calls[0]["settles"], "explores");
    }

    #[test]
    fn a_function_of_a_topic_has_queries_of_its_own() {
        assert_eq!(
            functions("Is cudaFree(), or cuMemFree, slow? cudaFree, CUDA, cuda, cuBLAS_x"),
            ["cudaFree", "cuMemFree", "cuBLAS_x"]
        );
        let of_function = queries("zebra' cudaFree");
        assert_eq!(of_function.len(), OF_FUNCTION.len());
        assert!(of_function.iter().all(|query| query.contains("= 'cudaFree'")), "{of_function:?}");
    }
}
