//! Compares the operator with DataFusion's own plans: the same SQL runs in a session with the rule and in one
//! without.

use std::sync::Arc;

use analyze_run::random::Random;
use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt32Array},
    util::pretty::pretty_format_batches,
};
use datafusion::{
    datasource::MemTable,
    error::DataFusionError,
    execution::{
        memory_pool::FairSpillPool, runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder,
    },
    prelude::{SessionConfig, SessionContext},
};

use super::rules;

fn session(partitions: usize, batch_size: usize, is_ours: bool, memory_bytes: usize) -> SessionContext {
    session_of(partitions, batch_size, is_ours, memory_bytes, true)
}

fn session_of(
    partitions: usize,
    batch_size: usize,
    is_ours: bool,
    memory_bytes: usize,
    by_hash: bool,
) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(batch_size);
    // DataFusion does not distribute small tables by default, but the tests need it.
    config.options_mut().optimizer.prefer_hash_join = by_hash;
    config.options_mut().optimizer.repartition_file_min_size = 0;
    config.options_mut().optimizer.hash_join_single_partition_threshold = 0;
    config.options_mut().optimizer.hash_join_single_partition_threshold_rows = 0;
    config.options_mut().execution.sort_spill_reservation_bytes = 1024;
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)));
    let mut state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap());
    if is_ours {
        state = state.with_physical_optimizer_rules(rules());
    }
    SessionContext::new_with_state(state.build())
}

const ROOM: usize = 1 << 30;

/// Creates rows with everything that intervals can have: nulls, zero and negative lengths, overflow,
/// floats.
fn rows(random: &mut Random, count: usize, id: i64) -> RecordBatch {
    let mut ts = Vec::new();
    let mut dur = Vec::new();
    for _ in 0..count {
        ts.push((random.below(12) > 0).then(|| match random.below(40) {
            0 => i64::MAX - 3,
            1 => i64::MIN + 2,
            _ => random.below(60) as i64,
        }));
        dur.push((random.below(12) > 0).then(|| match random.below(12) {
            0 => 0,
            1 => -(random.below(9) as i64),
            2 => 40,
            _ => random.below(9) as i64,
        }));
    }
    let run =
        (0..count).map(|_| (random.below(15) > 0).then(|| if random.below(2) == 0 { "one" } else { "two" }));
    let run: StringArray = run.collect();
    let tid: UInt32Array =
        (0..count).map(|_| (random.below(15) > 0).then(|| random.below(3) as u32)).collect();
    // A timestamp that overflows is an error in DataFusion, in both plans; an integer wraps around.
    let moments: TimestampNanosecondArray =
        ts.iter().map(|ts| ts.filter(|ts| (0..99).contains(ts))).collect();
    let x: Int64Array = (0..count).map(|_| (random.below(9) > 0).then(|| random.below(5) as i64)).collect();
    let ids = Int64Array::from_iter_values((0..count as i64).map(|row| id + row));
    let floats: arrow::array::Float64Array = ts
        .iter()
        .map(|ts| {
            ts.map(|ts| match ts {
                0..5 => -0.0,
                5 => f64::NAN,
                _ => ts as f64 / 2.0 - 9.0,
            })
        })
        .collect();
    let unsigned: arrow::array::UInt64Array = ts.iter().map(|ts| ts.map(|ts| ts as u64)).collect();
    RecordBatch::try_from_iter_with_nullable(vec![
        ("id", Arc::new(ids) as ArrayRef, true),
        ("run", Arc::new(run), true),
        ("tid", Arc::new(tid), true),
        ("ts", Arc::new(Int64Array::from(ts)), true),
        ("dur", Arc::new(Int64Array::from(dur)), true),
        ("at", Arc::new(moments), true),
        ("half", Arc::new(floats), true),
        ("pos", Arc::new(unsigned), true),
        ("x", Arc::new(x), true),
    ])
    .unwrap()
}

fn register(context: &SessionContext, name: &str, batch: &RecordBatch, parts: usize) {
    let rows = batch.num_rows();
    let part = |number: usize| {
        let (from, to) = (rows * number / parts, rows * (number + 1) / parts);
        vec![batch.slice(from, to - from)]
    };
    let table = MemTable::try_new(batch.schema(), (0..parts).map(part).collect()).unwrap();
    context.register_table(name, Arc::new(table)).unwrap();
}

async fn lines(context: &SessionContext, sql: &str) -> Result<Vec<String>, DataFusionError> {
    let batches = context.sql(sql).await?.collect().await?;
    let text = pretty_format_batches(&batches)?.to_string();
    // Without batches there is no header either, and the frame of the table is not compared.
    let rows = text.lines().enumerate().filter(|(number, line)| *number != 1 && line.starts_with('|'));
    let mut lines: Vec<String> = rows.map(|(_, line)| line.replace(' ', "")).collect();
    lines.sort();
    Ok(lines)
}

async fn explain(context: &SessionContext, sql: &str) -> String {
    let batches = context.sql(&format!("EXPLAIN {sql}")).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Conditions that are planned as interval joins.
const TAKEN: &[&str] = &[
    "a.tid = b.tid AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur",
    "a.tid = b.tid AND a.ts <= b.ts + b.dur AND b.ts <= a.ts + a.dur",
    "a.tid = b.tid AND b.ts + b.dur > a.ts AND a.ts + a.dur >= b.ts",
    "a.tid = b.tid AND a.run = b.run AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur",
    "a.tid = b.tid AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur AND a.x + b.x <> 4 AND a.id <> b.id",
    "a.tid = b.tid AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur AND a.x < b.x AND a.x > b.x - 3",
    "a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur",
    "a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur AND (a.x = b.x OR a.id < b.id)",
    "a.tid = b.tid AND a.ts >= b.ts AND a.ts < b.ts + b.dur",
    "a.tid = b.tid AND a.ts > b.ts AND a.ts <= b.ts + b.dur",
    "a.tid = b.tid AND a.ts BETWEEN b.ts AND b.ts + b.dur",
    "a.ts BETWEEN b.ts AND b.ts + b.dur",
    "a.run = b.run AND a.ts + a.x >= b.ts AND a.ts - a.dur < b.ts + coalesce(b.dur, 3)",
    "a.tid = b.tid AND a.at >= b.at AND a.at < b.at + INTERVAL '5 nanoseconds'",
    "a.tid = b.tid AND a.half < b.half + b.x AND b.half < a.half + a.x",
    "a.tid = b.tid AND a.pos <= b.pos AND b.pos < a.pos + arrow_cast(5, 'UInt64')",
    "a.tid = b.tid AND a.ts < b.x AND b.ts > a.x AND b.dur < a.dur",
];

/// Conditions that are not planned as interval joins.
const NOT_TAKEN: &[&str] = &[
    "a.tid = b.tid",
    "a.tid = b.tid AND a.dur < b.x",
    "a.tid = b.tid AND a.ts < b.ts AND a.dur < b.dur",
    "a.ts < b.ts + b.dur",
    "a.half = b.half AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur",
    "a.tid = b.tid AND a.ts < b.ts + a.dur AND b.ts < b.x + a.x",
    "a.tid = b.tid AND (a.ts < b.ts + b.dur OR b.ts < a.ts + a.dur)",
];

/// Asserts that both sessions return the same rows.
async fn compare(seed: u64, from: &str, condition: &str) {
    let mut random = Random::nth(seed, 0);
    let sizes = [0, 1, 7, 40, 160];
    let [left, right] = [0, 1000].map(|id| {
        let count = sizes[random.below(5)];
        rows(&mut random, count, id)
    });
    let partitions = 1 + random.below(4);
    let batch_size = [1, 2, 3, 16, 8192][random.below(5)];
    let columns = ["a.id AS a, b.id AS b", "b.dur, a.*", "count(*) AS n, sum(a.id * b.id) AS s"];
    let columns = columns[random.below(3)];
    let sql = format!("SELECT {columns} FROM {} ON {condition}", from);
    let by_hash = random.below(4) > 0;
    let [ours, theirs] =
        [true, false].map(|is_ours| session_of(partitions, batch_size, is_ours, ROOM, by_hash));
    for context in [&ours, &theirs] {
        register(context, "a", &left, partitions);
        register(context, "b", &right, partitions);
    }
    let [ours, theirs] = [lines(&ours, &sql).await, lines(&theirs, &sql).await];
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    assert_eq!(ours, theirs, "seed {seed}, {partitions} partitions, batches of {batch_size}: {sql}");
}

#[tokio::test]
async fn gives_the_rows_of_datafusion() {
    for (number, condition) in TAKEN.iter().chain(NOT_TAKEN).enumerate() {
        for seed in 0..12 {
            compare(seed * 1000 + number as u64, "a JOIN b", condition).await;
        }
    }
}

#[tokio::test]
async fn gives_the_rows_of_datafusion_over_runs_and_outer_joins() {
    // One key is a constant in each of two branches, as the name of a run is, and one is made constant by a
    // filter.
    let runs = "(SELECT 'p' AS r, * FROM a UNION ALL SELECT 'q' AS r, * FROM b)";
    let of_runs = format!("{runs} a JOIN {runs} b");
    let one_thread = "(SELECT * FROM a WHERE tid = 1) a JOIN b";
    for seed in 0..8 {
        compare(seed, &of_runs, &format!("a.r = b.r AND {}", TAKEN[0])).await;
        compare(seed, &of_runs, &format!("a.r = b.r AND {}", TAKEN[6])).await;
        compare(seed, one_thread, TAKEN[0]).await;
        for kind in ["LEFT", "RIGHT", "FULL"] {
            compare(seed, &format!("a {kind} JOIN b"), TAKEN[0]).await;
        }
    }
    let context = session(4, 16, true, ROOM);
    for name in ["a", "b"] {
        register(&context, name, &rows(&mut Random(1), 50, 0), 4);
    }
    let sql = format!("SELECT * FROM {of_runs} ON a.r = b.r AND {}", TAKEN[0]);
    assert!(explain(&context, &sql).await.contains("IntervalJoinExec"));
    let sql = format!("SELECT a.id FROM a, b WHERE {}", TAKEN[0]);
    assert!(explain(&context, &sql).await.contains("IntervalJoinExec"));
}

#[tokio::test]
async fn gives_the_rows_of_datafusion_over_inputs_in_order_of_start() {
    let in_order = |name: &str| format!("(SELECT * FROM {name} ORDER BY ts LIMIT 500) {name}");
    let from = format!("{} JOIN {}", in_order("a"), in_order("b"));
    for (number, condition) in TAKEN.iter().enumerate() {
        for seed in 0..5 {
            compare(seed * 1000 + number as u64, &from, condition).await;
        }
    }
    let plan = |partitions: usize, condition: &'static str| {
        let context = session(partitions, 64, true, ROOM);
        for name in ["a", "b"] {
            register(&context, name, &rows(&mut Random(1), 50, 0), 2);
        }
        let sql = format!("SELECT a.id, b.id FROM {from} ON {condition}");
        async move { explain(&context, &sql).await }
    };
    for condition in [0, 3, 4, 8] {
        let plan = plan(2, TAKEN[condition]).await;
        assert!(plan.contains("by=start"), "{plan}");
        // These two sorts are those of the query itself.
        assert_eq!(plan.matches("SortExec").count(), 2, "{plan}");
    }
    // These are not swept by start: no keys, another start, many partitions.
    for (partitions, condition) in [(2, TAKEN[6]), (2, TAKEN[12]), (16, TAKEN[0])] {
        let plan = plan(partitions, condition).await;
        assert!(plan.contains("IntervalJoinExec") && !plan.contains("by=start"), "{plan}");
    }
}

#[tokio::test]
async fn is_planned_for_each_form_and_for_no_other() {
    let context = session(2, 64, true, ROOM);
    let batch = rows(&mut Random(1), 50, 0);
    register(&context, "a", &batch, 2);
    register(&context, "b", &batch, 2);
    for condition in TAKEN {
        let plan = explain(&context, &format!("SELECT a.id, b.id FROM a JOIN b ON {condition}")).await;
        assert!(plan.contains("IntervalJoinExec: on="), "{condition}\n{plan}");
        assert!(!plan.contains("HashJoinExec") && !plan.contains("NestedLoop"), "{condition}\n{plan}");
    }
    for condition in NOT_TAKEN {
        let plan = explain(&context, &format!("SELECT a.id, b.id FROM a JOIN b ON {condition}")).await;
        assert!(!plan.contains("IntervalJoinExec"), "{condition}\n{plan}");
    }
    for kind in ["LEFT", "RIGHT", "FULL", "LEFT SEMI", "RIGHT ANTI"] {
        let sql = format!("SELECT * FROM a {kind} JOIN b ON {}", TAKEN[0]);
        let plan = explain(&context, &sql).await;
        assert!(!plan.contains("IntervalJoinExec"), "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn explain_names_keys_intervals_filter_and_projection() {
    let context = session(1, 64, true, ROOM);
    let batch = rows(&mut Random(1), 50, 0);
    register(&context, "a", &batch, 1);
    register(&context, "b", &batch, 1);
    let sql =
        "SELECT a.id FROM a JOIN b ON a.tid = b.tid AND a.ts >= b.ts AND a.ts < b.ts + b.dur AND a.x <> b.x";
    let plan = explain(&context, sql).await;
    let expected = "IntervalJoinExec: on=[(tid@1, tid@0)], left=[ts@2, ts@2], right=[ts@1, ts@1 + dur@2), \
                    filter=x@0 != x@1, projection=[id@0]";
    assert!(plan.contains(expected), "{plan}");
}

#[tokio::test]
async fn metrics_tell_rows_candidates_and_memory() {
    let context = session(2, 16, true, ROOM);
    let batch = rows(&mut Random(1), 200, 0);
    register(&context, "a", &batch, 2);
    register(&context, "b", &batch, 2);
    let sql = format!("ANALYZE SELECT a.id, b.id FROM a JOIN b ON {}", TAKEN[4]);
    let plan = explain(&context, &sql).await;
    let line = plan.lines().find(|line| line.contains("IntervalJoinExec")).unwrap();
    for metric in ["output_rows=", "elapsed_compute=", "candidates=", "peak_mem_used="] {
        assert!(line.contains(metric), "{metric} is not in {line}");
    }
}

#[tokio::test]
async fn an_input_in_order_is_not_sorted_again() {
    let context = session(1, 64, true, ROOM);
    let batch = rows(&mut Random(1), 50, 0);
    register(&context, "a", &batch, 1);
    let sql = "SELECT a.id FROM (SELECT * FROM a ORDER BY tid, ts LIMIT 40) a JOIN (SELECT * FROM a ORDER BY tid, ts LIMIT 40) b \
               ON a.tid = b.tid AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur";
    let plan = explain(&context, sql).await;
    assert_eq!(plan.matches("SortExec").count(), 2, "{plan}");
}

#[tokio::test]
async fn little_memory_spills_or_ends_cleanly() {
    let table = |dur: i64| {
        let batch = |rows: std::ops::Range<i64>| {
            let ts = Int64Array::from_iter_values(rows.clone().map(|row| row * 7919 % 20_000 * 10));
            let durs = Int64Array::from_iter_values(rows.clone().map(|_| dur));
            let ids = Int64Array::from_iter_values(rows);
            let columns: Vec<(&str, ArrayRef)> =
                vec![("id", Arc::new(ids)), ("ts", Arc::new(ts)), ("dur", Arc::new(durs))];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let batches: Vec<_> = (0..80).map(|number| batch(number * 250..(number + 1) * 250)).collect();
        Arc::new(MemTable::try_new(batches[0].schema(), vec![batches]).unwrap())
    };
    let sql =
        "SELECT count(*) AS n, sum(a.id) AS s FROM a JOIN b ON a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur";
    // With short intervals, the sweep keeps next to nothing, and the sorts spill.
    for bytes in [ROOM, 400_000] {
        let context = session(1, 256, true, bytes);
        context.register_table("a", table(15)).unwrap();
        context.register_table("b", table(15)).unwrap();
        let rows = lines(&context, sql).await.unwrap();
        assert!(rows.iter().any(|row| row.contains("59998")), "{rows:?}");
    }
    // With intervals without end, all rows stay active, which needs more memory than there is.
    let context = session(1, 256, true, 400_000);
    context.register_table("a", table(1 << 40)).unwrap();
    context.register_table("b", table(1 << 40)).unwrap();
    let error = lines(&context, sql).await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
}
