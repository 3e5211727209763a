//! Questions that are asked together: those that read calls share one sweep of the rows, and the answers are those that each has by
//! itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use analyze::trace::Trace;
use analyze_run::{
    error::AnalyzeError,
    events::{Batches, Events},
};
use analyze_verdict::{
    call::{Call, Sink},
    derived::Source,
    params::Params,
    schedule::Schedule,
    time_split::Parts,
};
use arrow::util::pretty::pretty_format_batches;
use futures::future::join_all;
use tokio::time::timeout;

use super::support::run;

/// The time after which questions wait for each other.
const PATIENCE: Duration = Duration::from_secs(120);

/// Queries that scan one table of calls each, one of which ends before the rows do.
const QUERIES: [&str; 11] = [
    "SELECT op, count(*) AS n, sum(dur) AS ns, sum(on_cpu_ns) AS on_cpu, sum(preempted_ns) AS preempted FROM op_time GROUP BY op ORDER BY op",
    "SELECT op, direction, first_call, count(*) AS n, count(stream) AS streams, max(addr) AS addr FROM ops GROUP BY op, direction, first_call \
     ORDER BY op, direction, first_call",
    "SELECT count(*) AS n FROM ops",
    "SELECT count(*) AS n FROM (SELECT op FROM ops LIMIT 3)",
    "SELECT count(*) AS n, sum(dur) AS ns, sum(host_ns) AS host, sum(sync_ns) AS sync FROM launch_gaps",
    "SELECT op, count(*) AS n, round(sum(excess_ns)) AS ns FROM slow_calls GROUP BY op ORDER BY op",
    "SELECT state, count(*) AS n, sum(dur) AS ns FROM chain_links GROUP BY state ORDER BY state",
    "SELECT part, count(*) AS n, sum(time_ns) AS ns FROM run_time GROUP BY part ORDER BY part",
    "SELECT pid, stage, sum(time_ns) AS ns, sum(waits_count) AS waits FROM run_time GROUP BY pid, stage ORDER BY pid, stage",
    "SELECT found_by, count(*) AS n, sum(dur_ns) AS ns, sum(host_ns) AS host, sum(waiting_for_cpu_ns) AS waiting FROM steps GROUP BY found_by",
    "SELECT op, calls_count, p50_ns, p99_ns, total_ns FROM op_summary ORDER BY total_ns DESC, op, direction, size_class, first_call",
];

async fn answer(trace: &Trace, query: &str) -> String {
    let batches = trace.batches(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test]
async fn answers_are_those_of_each_question_by_itself() {
    let trace = Trace::open_one(run("qwen2-hogs").as_ref()).await.unwrap();
    let together = trace.together();
    for query in QUERIES {
        assert!(trace.shares_sweep(query).await.unwrap(), "{query}");
    }
    for query in [
        "SELECT count(*) FROM marks",
        "SELECT count(*) FROM memory_timeline",
        "SELECT count(*) FROM ops a JOIN ops b ON a.ts = b.ts",
        "SELECT count(*) FROM ops o JOIN slow_calls s ON s.ts = o.ts",
    ] {
        assert!(!trace.shares_sweep(query).await.unwrap(), "{query}");
    }
    let parts = QUERIES.map(|query| together.part(answer(together.trace(), query)));
    let derived = together.part(together.trace().derived(Params::default()));
    let (found, derived) = timeout(PATIENCE, async { tokio::join!(join_all(parts), derived) }).await.unwrap();
    let alone = Trace::open_one(run("qwen2-hogs").as_ref()).await.unwrap();
    for (query, found) in QUERIES.iter().zip(found) {
        assert_eq!(found, answer(&alone, query).await, "{query}");
    }
    let expected = alone.derived(Params::default()).await.unwrap();
    let slow = |of: &analyze_verdict::derived::Derived| {
        let calls = of.judgement.slow.iter();
        calls.map(|slow| (slow.call.ts, slow.call.dur, slow.verdict, slow.root)).collect::<Vec<_>>()
    };
    assert_eq!(slow(&derived.unwrap()), slow(&expected));
}

/// The events of a trace, which counts how often all rows are read.
struct Counted {
    events: Arc<dyn Events>,
    readings: AtomicUsize,
}

impl Events for Counted {
    fn select(&self, query: &str) -> Batches {
        self.events.select(query)
    }

    fn ordered(&self, columns: &[&str]) -> Batches {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.events.ordered(columns)
    }
}

/// A sink that counts calls, and fails at one if it is told to.
struct Counting {
    calls: Arc<AtomicUsize>,
    fails_at: usize,
}

impl Sink for Counting {
    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        match self.calls.fetch_add(1, Ordering::Relaxed) + 1 {
            count if count == self.fails_at => Err(AnalyzeError::Internal("it has enough".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Sweeps the calls of a source; returns their number.
async fn count(source: &Source, fails_at: usize) -> Result<usize, AnalyzeError> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = Counting { calls: Arc::clone(&calls), fails_at };
    source.sweep(&["stream"], false, |_, _| counting).await?;
    Ok(calls.load(Ordering::Relaxed))
}

#[tokio::test]
async fn parts_share_one_sweep_and_latecomers_have_their_own() {
    let trace = Trace::open_one(run("qwen2-quiet").as_ref()).await.unwrap();
    let counted = Arc::new(Counted { events: trace.events(), readings: AtomicUsize::new(0) });
    let events: Arc<dyn Events> = Arc::clone(&counted) as _;
    let readings = || counted.readings.swap(0, Ordering::Relaxed);
    // Without files, rows come from the events.
    let source = Source::new(events, &[], true);
    let expected = count(&source, 0).await.unwrap();
    assert!(expected > 1_000 && readings() == 1);

    let (sharing, shared) = source.sharing();
    let parts = [shared.part(), shared.part(), shared.part(), shared.part()];
    let sharing = &sharing;
    let questions = parts.into_iter().enumerate().map(|(number, part)| async move {
        // The first part asks for nothing, and the sink of the second one fails.
        let found = match number {
            0 => Ok(0),
            1 => count(sharing, 10).await,
            _ => count(sharing, 0).await,
        };
        drop(part);
        found
    });
    let found = timeout(PATIENCE, join_all(questions)).await.unwrap();
    let error = found[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("it has enough"), "{error}");
    assert_eq!((found[2].as_ref().ok(), found[3].as_ref().ok()), (Some(&expected), Some(&expected)));
    assert_eq!(readings(), 1);

    assert_eq!(timeout(PATIENCE, count(sharing, 0)).await.unwrap().unwrap(), expected);
    assert_eq!(readings(), 1, "of its own");
}
