//! A lie detector: rows of the scheduler and calls are taken out of recorded runs in seeded ways, and the metadata say so, as a
//! source that stores a part of its events would. What is then answered must be what the whole run answers, or be open:
//! a time of a thread state must be the same or null, a gap between launches must be one of the whole run's, and a slow call
//! may lose causes to `inconclusive`, but gain none.

use std::collections::HashMap;

use analyze::trace::Trace;
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
    random::Random,
    reading::plain,
};
use arrow::{
    array::{Array, BooleanArray, Float64Array, Int64Array, RecordBatch},
    compute::{cast, filter_record_batch},
    datatypes::DataType,
};
use tempfile::TempDir;
use trace_schema::{Kind, Stored};

use super::support::run;

/// Runs of which rows are taken out.
const RUNS: [&str; 4] = ["compile", "nccl", "graphs", "malloc_async"];
/// Ways of taking rows out of each run.
const ROUNDS: u64 = 20;

const STATES: &str = "on_cpu_ns, preempted_ns, runnable_ns, throttled_ns, blocked_ns, stopped_ns";
const CAUSES: &str = "scheduler_ns, throttled_ns, blocked_ioctl_ns, blocked_futex_ns, blocked_page_fault_ns, blocked_disk_ns, \
     blocked_sleep_ns, blocked_poll_ns, blocked_other_ns, first_call_ns, unexplained_ns";

/// Place of `blocked_ns` among the states.
const BLOCKED: usize = 4;

/// What is taken out: rows of a kind, within a span, of one thread or all, each with a probability.
struct Cut {
    kind: Kind,
    op: Option<String>,
    tid: Option<i64>,
    from: i64,
    to: i64,
    ratio: f64,
}

/// Rows by key; the values are null where they are open.
type Rows = HashMap<String, Vec<Option<f64>>>;

async fn rows(trace: &Trace, key: &str, values: &str, table: &str) -> Rows {
    let values: Vec<&str> = values.split(", ").collect();
    let list: Vec<String> = values.iter().map(|name| format!("CAST({name} AS DOUBLE) AS {name}")).collect();
    let query = format!("SELECT {key} AS key, {} FROM {table}", list.join(", "));
    let mut found = Rows::new();
    for batch in trace.batches(&query).await.unwrap() {
        let keys = strings(&batch, "key").unwrap();
        let columns: Vec<Float64Array> =
            values.iter().map(|name| analyze_run::columns::floats(&batch, name).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let of_row = columns.iter().map(|column| column.is_valid(row).then(|| column.value(row)));
            found.insert(keys.value(row).to_owned(), of_row.collect());
        }
    }
    found
}

/// The answers that are compared.
struct Answers {
    states: Rows,
    gaps: Rows,
    causes: Rows,
}

impl Answers {
    async fn of(trace: &Trace) -> Self {
        let call = "concat(pid, ' ', tid, ' ', ts, ' ', op)";
        Self {
            states: rows(trace, call, STATES, "op_time").await,
            gaps: rows(
                trace,
                "concat(pid, ' ', tid, ' ', ts)",
                "dur, host_ns, runnable_ns, blocked_ns",
                "launch_gaps",
            )
            .await,
            causes: rows(trace, call, CAUSES, "slow_calls").await,
        }
    }
}

/// Numbers of answers that are as definite as the whole run's, that are open, and that contradict it.
#[derive(Debug, Default)]
struct Tally {
    same: usize,
    open: usize,
    lies: Vec<String>,
}

impl Tally {
    /// Compares values that must be the same, or null.
    fn equal(&mut self, what: &str, whole: &Rows, part: &Rows) {
        for (key, values) in part {
            let Some(expected) = whole.get(key) else {
                self.lies.push(format!("{what}: the whole run has no {key}"));
                continue;
            };
            for (value, expected) in values.iter().zip(expected) {
                match value {
                    None => self.open += 1,
                    Some(_) if value == expected => self.same += 1,
                    Some(_) => self.lies.push(format!("{what} {key}: {values:?}, not {expected:?}")),
                }
            }
        }
        self.open += whole.keys().filter(|key| !part.contains_key(*key)).count();
    }

    /// Compares causes: none may have more than in the whole run. What is usual for a kind of call is taken over those on
    /// record, so that time asleep above the usual may grow; but never above the time that the call was asleep.
    fn at_most(&mut self, whole: &Rows, part: &Rows, states: &Rows) {
        for (key, values) in part {
            // Which calls are slow depends on other calls of their kind, so that one may be slow here alone.
            let Some(expected) = whole.get(key) else { continue };
            let asleep = states.get(key).and_then(|states| states[BLOCKED]).unwrap_or(0.0);
            for ((value, expected), cause) in values.iter().zip(expected).zip(CAUSES.split(", ")) {
                let (value, expected) = (value.unwrap_or(0.0), expected.unwrap_or(0.0));
                let most = if cause.starts_with("blocked") { asleep.max(expected) } else { expected };
                if value > most + 1.0 {
                    self.lies.push(format!("{key}: {values:?}"));
                } else if value + 1.0 < expected {
                    self.open += 1;
                } else {
                    self.same += 1;
                }
            }
        }
    }
}

/// Takes rows out of a batch, and counts those that it had and those that stay.
fn cut(batch: &RecordBatch, cut: &Cut, random: &mut Random, counts: &mut (u64, u64)) -> RecordBatch {
    let text = |name: &str| {
        let column = cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
        strings(&RecordBatch::try_from_iter([(name, column)]).unwrap(), name).unwrap()
    };
    let (kinds, ops) = (text("kind"), text("op"));
    let (times, tids): (Int64Array, Int64Array) =
        (integers(batch, "ts").unwrap(), integers(batch, "tid").unwrap());
    let stays = |row: usize| {
        let is_meant = kinds.value(row) == cut.kind.name()
            && cut.op.as_ref().is_none_or(|op| ops.value(row) == op)
            && cut.tid.is_none_or(|tid| tids.value(row) == tid)
            && (cut.from..cut.to).contains(&times.value(row));
        let goes = is_meant && random.unit() < cut.ratio;
        counts.0 += u64::from(is_meant);
        counts.1 += u64::from(is_meant && !goes);
        !goes
    };
    let mask: BooleanArray = (0..batch.num_rows()).map(stays).map(Some).collect();
    filter_record_batch(batch, &mask).unwrap()
}

#[tokio::test]
async fn what_is_not_stored_is_not_claimed() {
    let dir = TempDir::new().unwrap();
    let mut tally = Tally::default();
    for name in RUNS {
        let whole = Trace::open_one(run(name).as_ref()).await.unwrap();
        let expected = Answers::of(&whole).await;
        let file = &whole.files()[0];
        let span =
            rows(&whole, "'span'", "first, last", "(SELECT min(ts) AS first, max(ts) AS last FROM events)")
                .await;
        let [Some(first), Some(last)] = span["span"][..] else { panic!("{name} has no rows") };
        let threads =
            rows(&whole, "tid", "tid", "(SELECT DISTINCT tid FROM events WHERE kind = 'off_cpu')").await;
        let mut threads: Vec<i64> = threads.values().filter_map(|tid| tid[0]).map(|tid| tid as i64).collect();
        threads.sort_unstable();
        for round in 0..ROUNDS {
            let mut random = Random::nth(20, round);
            let is_switches = random.below(3) > 0 && !threads.is_empty();
            let is_part = random.below(2) == 0;
            let (one, other) = (random.unit(), random.unit());
            let at = |share: f64| (first + share * (last - first)) as i64;
            let of = Cut {
                kind: if is_switches { Kind::OffCpu } else { Kind::Call },
                op: (!is_switches)
                    .then(|| ["cudaLaunchKernel", "cuLaunchKernel"][random.below(2)].to_owned()),
                tid: (is_switches && random.below(2) == 0).then(|| threads[random.below(threads.len())]),
                from: if is_part { at(one.min(other)) } else { i64::MIN },
                to: if is_part { at(one.max(other)) } else { i64::MAX },
                ratio: [0.1, 0.5, 1.0][random.below(3)],
            };
            let mut counts = (0, 0);
            let kept: Vec<Result<RecordBatch, AnalyzeError>> = plain::batches(file.paths.clone(), None)
                .map(|batch| Ok(cut(&batch?, &of, &mut random, &mut counts)))
                .collect();
            let mut metadata = file.run.clone();
            // A switch is on record at its start, and reaches to its end.
            metadata.stored.push(Stored {
                kind: of.kind.name().to_owned(),
                op: of.op.clone().unwrap_or_default(),
                tid: of.tid.unwrap_or(0) as u32,
                from_ns: of.from,
                to_ns: if is_switches { i64::MAX } else { of.to },
                made_count: Some(counts.0),
                stored_count: counts.1,
                ..Stored::default()
            });
            let out = dir.path().join(format!("{name}-{round}.parquet"));
            trace_writer::write(&out, true, kept.into_iter(), || metadata).unwrap();
            let found = Answers::of(&Trace::open_one(&out).await.unwrap()).await;
            tally.equal("states", &expected.states, &found.states);
            tally.equal("gaps", &expected.gaps, &found.gaps);
            // Calls that are gone change what is nested in what, and which calls are usual; of them, only times are compared.
            if is_switches {
                tally.at_most(&expected.causes, &found.causes, &expected.states);
            }
        }
    }
    let (same, open) = (tally.same, tally.open);
    println!("{same} definite, {open} open, {} contradictions", tally.lies.len());
    assert!(
        tally.lies.is_empty(),
        "{} contradictions, as {:?}",
        tally.lies.len(),
        &tally.lies[..tally.lies.len().min(5)]
    );
    assert!(same > open, "silence is no way out: {same} definite, {open} open");
}
