//! A lie detector: rows are taken out of recorded runs in seeded ways, and the metadata say so, as a source that stores or
//! loses a part of its events would. What is then answered must be what the whole run answers, or be open, or be a bound that
//! contains it: a time of a thread state must be the same or null, a gap between launches must be one of the whole run's, a
//! slow call may lose causes to `inconclusive` but gain none, a count may be lower only if rows of its kind are said to be
//! missing, memory, releases and leaks must be the same or said to be uncertain, and a comparison of the cut run with the whole
//! one may claim no difference. `INQUEST_LIES=6` takes rows out in six times as many ways.

mod answers;
mod cut;
mod tally;

use analyze::trace::Trace;
use analyze_run::random::Random;
use tempfile::TempDir;

use self::{
    answers::{Compared, Memory, Times, rows},
    cut::{Cut, Offer, Source},
    tally::Tallies,
};
use super::support::testdata;

const TIMES: &[Source] =
    &[Source::Switches, Source::Switches, Source::Calls, Source::Calls, Source::Slices, Source::Scheduler];
const MEMORY: &[Source] = &[Source::Allocator, Source::Allocator, Source::Allocator, Source::Marks];
const ALL: &[Source] = &[
    Source::Switches,
    Source::Switches,
    Source::Calls,
    Source::Calls,
    Source::Allocator,
    Source::Allocator,
    Source::Scheduler,
    Source::Slices,
    Source::Marks,
    Source::Names,
    Source::Samples,
];

/// Runs, the number of ways in which rows are taken out of each, and what they are rows of, in turn.
const RUNS: [(&str, u64, &[Source]); 6] = [
    ("h200/compile", 11, ALL),
    ("h200/nccl", 6, TIMES),
    ("h200/graphs", 22, ALL),
    ("h200/malloc_async", 12, TIMES),
    ("h200/mixed-7gb", 6, MEMORY),
    ("memory/leak", 8, MEMORY),
];
/// Comparisons read all figures of a run, so that few cuts are compared, of a small run: the first of every other source.
const COMPARED: (&str, usize) = ("h200/graphs", 2);

async fn offer(trace: &Trace) -> Offer {
    let span =
        rows(trace, "'span'", "first, last", "(SELECT min(ts) AS first, max(ts) AS last FROM events)").await;
    let [Some(first), Some(last)] = span["span"][..] else { panic!("no rows") };
    let threads = "(SELECT DISTINCT tid FROM events WHERE kind = 'off_cpu')";
    let functions = "(SELECT op, count(*) AS calls FROM ops GROUP BY op)";
    let mut tids: Vec<i64> = rows(trace, "tid", "tid", threads)
        .await
        .values()
        .filter_map(|values| values[0])
        .map(|tid| tid as i64)
        .collect();
    tids.sort_unstable();
    let mut ops: Vec<String> = rows(trace, "op", "calls", functions).await.into_keys().collect();
    ops.sort_unstable();
    Offer { span: (first as i64, last as i64), tids, ops }
}

#[tokio::test]
async fn what_is_not_stored_is_not_claimed() {
    let dir = TempDir::new().unwrap();
    let mut tallies = Tallies::default();
    let times_more = std::env::var("INQUEST_LIES").map_or(1, |times| times.parse().unwrap());
    for (number, (name, rounds, sources)) in (0..).zip(RUNS) {
        let whole = Trace::open_one(testdata(&format!("{name}.parquet")).as_ref()).await.unwrap();
        let offer = offer(&whole).await;
        let has_memory = sources.contains(&Source::Allocator);
        let has_times = sources != MEMORY;
        let times = if has_times { Some(Times::of(&whole).await) } else { None };
        let memory = if has_memory { Some(Memory::of(&whole).await) } else { None };
        let compared = if name == COMPARED.0 { Some(Compared::of(&whole).await) } else { None };
        for round in 0..rounds * times_more {
            let mut random = Random::nth(20 + number, round);
            let place = round as usize;
            let cut = Cut::draw(&mut random, sources[place % sources.len()], &offer);
            let said = format!("{name}, round {round}, {cut:?}");
            let out = dir.path().join("cut.parquet");
            cut.write(&whole.files()[0], &offer, &mut random, &out);
            let part = Trace::open_one(&out).await.unwrap();
            // The allocator has no part in times, and only marks and its own events have one in what is asked of memory.
            let is_of_memory = matches!(cut.source, Source::Allocator | Source::Marks);
            if let Some(whole) = times.as_ref().filter(|_| cut.source != Source::Allocator) {
                whole.judge(&Times::of(&part).await, cut.source, &said, &mut tallies);
            }
            if let Some(whole) = memory.as_ref().filter(|_| is_of_memory) {
                whole.judge(&Memory::of(&part).await, &said, &mut tallies);
            }
            if let Some(whole) =
                compared.as_ref().filter(|_| place < sources.len() && place.is_multiple_of(COMPARED.1))
            {
                whole.judge(&Compared::of(&part).await, &said, &mut tallies);
            }
        }
    }
    tallies.finish();
}
