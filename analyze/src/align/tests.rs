//! Tests with generated processes whose two records and whose true alignment are known: no alignment that is
//! reported may be wrong.

use std::ops::Range;

use super::*;
use analyze_run::random::Random;

const OPS: [(&str, &str); 6] = [
    // The function as the profile records it, and as the run does.
    ("cudaLaunchKernel", "cuLaunchKernel"),
    ("cudaMemcpyAsync", "cudaMemcpyAsync"),
    ("cudaMalloc", "cudaMalloc"),
    ("cudaStreamSynchronize", "cudaStreamSynchronize"),
    ("cudaMemsetAsync", "cuMemsetD8Async"),
    ("cudaLaunchKernelExC", "cuLaunchKernelEx"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    SameProcess,
    /// The profile is of another run of the same program: the calls are the same, but their pace differs.
    OtherRun,
    /// The profile is of another run of the same program, with each gap within a few percent of the original.
    SimilarRun,
    /// The profile is of another program.
    OtherProgram,
    /// The profile lies before the recording.
    Before,
    /// Every iteration of the loop takes the same time.
    Even,
    /// The profile's clock is set in the middle of the profile.
    Step,
    /// The profile's clock swings around that of the run.
    Wave,
}

#[derive(Clone, Debug)]
struct Case {
    relation: Relation,
    threads: usize,
    calls: usize,
    /// Approximate time between calls in microseconds.
    pace: usize,
    offset_ns: i64,
    drift_ppm: i64,
    lost_percent: [usize; 2],
    /// The profile has the thread IDs of a container.
    is_contained: bool,
    loses_burst: bool,
    jitter_ns: usize,
}

/// A call with its true times.
#[derive(Clone, Copy)]
struct True {
    thread: usize,
    op: usize,
    start: i64,
    end: i64,
    /// Time without a CPU before `start`, between the beginnings of the two records, in nanoseconds.
    held: i64,
}

/// Returns whether the profile records the call around the one that the run records.
fn is_runtime(op: usize) -> bool {
    op == 0 || op >= 4
}

fn program(random: &mut Random, case: &Case) -> Vec<usize> {
    let length = 20 + random.below(60);
    (0..length)
        .map(|_| if random.below(4) > 0 { 0 } else { random.below(OPS.len()) })
        .take(case.calls)
        .collect()
}

/// Generates what a process does: each thread runs a loop of calls.
fn happened(random: &mut Random, case: &Case, programs: &[Vec<usize>]) -> Vec<True> {
    let mut calls = Vec::new();
    for (thread, program) in programs.iter().enumerate() {
        let mut now = 1_000_000_000 + random.below(3_000_000) as i64;
        for number in 0..case.calls / case.threads {
            let op = program[number % program.len()];
            let (gap, dur) = if case.relation == Relation::Even {
                (case.pace as i64 * 1_000 + (op as i64) * 700, 3_000 + op as i64 * 500)
            } else {
                let mut gap = (case.pace * 300 + random.below(case.pace * 1_400)) as i64;
                if random.below(100) == 0 {
                    gap += random.below(3_000_000) as i64;
                }
                (gap, (2_500 + op * 900 + random.below(2_000) * (1 + random.below(4))) as i64)
            };
            // In one of 200 calls, the thread loses its CPU between the two records.
            let held = if case.relation != Relation::Even && random.below(200) == 0 {
                random.below(2_000_000) as i64
            } else {
                0
            };
            now += gap + held;
            calls.push(True { thread, op, start: now, end: now + dur, held });
            // The recording of a call takes time, too.
            now += dur + 5_000;
        }
    }
    calls
}

/// Generates the two sides, and a function that returns the true offset at a time on the profile's clock.
fn record(
    random: &mut Random,
    case: &Case,
) -> (Side, Side, Functions, Recording, impl Fn(i64) -> i64 + use<>) {
    let programs: Vec<Vec<usize>> = (0..case.threads).map(|_| program(random, case)).collect();
    let calls = happened(random, case, &programs);
    let profiled = match case.relation {
        Relation::SimilarRun => {
            // Two runs always differ at least by the time of a cache miss.
            let percent = 2 + random.below(10);
            let mut late = vec![0i64; case.threads];
            let mut last = vec![0i64; case.threads];
            let mut again = calls.clone();
            for call in &mut again {
                let gap = if last[call.thread] == 0 { 0 } else { call.start - last[call.thread] };
                let by = gap * percent as i64 / 100 + 300;
                late[call.thread] += random.below(2 * by as usize + 1) as i64 - by;
                last[call.thread] = call.end;
                call.start += late[call.thread];
                call.end += late[call.thread];
            }
            again
        }
        Relation::OtherRun => happened(random, case, &programs),
        Relation::OtherProgram => {
            let others: Vec<Vec<usize>> = (0..case.threads).map(|_| program(random, case)).collect();
            happened(random, case, &others)
        }
        _ => calls.clone(),
    };
    let first = calls.iter().map(|call| call.start).min().unwrap();
    let last = calls.iter().map(|call| call.end).max().unwrap();
    // The profiler is on for the middle half; the recorder for all of the run, or for the time after the
    // profile.
    let (from, to) = (first + (last - first) / 4, last - (last - first) / 4);
    let recorded = match case.relation {
        Relation::Before => to..last + 1_000,
        // Calls that a set clock moves behind the end of the recording do not count as ones that the run
        // could have.
        Relation::Step => first - 1_000..last + 10_000_000,
        _ => first - 1_000..last + 1_000,
    };
    // A full buffer loses all calls for a while, and the run records that it did.
    let burst = match case.loses_burst {
        true => Some(from + (to - from) / 3..from + (to - from) / 3 + (to - from) / 8),
        false => None,
    };
    let mut functions = Functions::default();
    let (mut profile, mut captured) = (Side::default(), Side::default());
    let mut order: Vec<u32> = (0..case.threads as u32).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, random.below(place + 1));
    }
    for (row, call) in calls.iter().enumerate() {
        let is_lost = burst.as_ref().is_some_and(|burst| burst.contains(&call.start));
        if is_lost || !recorded.contains(&call.start) || random.below(100) < case.lost_percent[0] {
            continue;
        }
        let is_outer = !is_runtime(call.op);
        let before = random.below(400) as i64 + if is_outer { call.held } else { 0 };
        let after = random.below(400) as i64;
        let op = functions.number(OPS[call.op].1);
        let row = row as u64;
        captured.push(
            7_000,
            7_000 + call.thread as u32,
            Call { start: call.start - before, end: call.end + after, op, row },
        );
    }
    let (offset, drift) = (case.offset_ns, case.drift_ppm);
    let middle = (from + to) / 2;
    let step = if case.relation == Relation::Step { 30_000 + random.below(3_000_000) as i64 } else { 0 };
    let swing = if case.relation == Relation::Wave { 10_000 + random.below(90_000) as i64 } else { 0 };
    // This converts the run's clock to the profile's: the inverse of the alignment, accurate to a nanosecond.
    let theirs = move |ts: i64| {
        let late = if ts > middle { step } else { 0 };
        let phase = std::f64::consts::TAU * (ts - from) as f64 / (to - from) as f64;
        let swung = (swing as f64 * phase.sin()).round() as i64;
        ts - offset - (ts - middle) * drift / 1_000_000 + late + swung
    };
    for (row, call) in profiled.iter().enumerate() {
        if !(from..to).contains(&call.start) || random.below(100) < case.lost_percent[1] {
            continue;
        }
        let jitter = |random: &mut Random| random.below(case.jitter_ns + 1) as i64;
        let (start, end) = if is_runtime(call.op) {
            (call.start - 900 - jitter(random) - call.held, call.end + 900 + jitter(random))
        } else {
            (call.start + 300 + jitter(random), call.end - 200 - jitter(random))
        };
        let (pid, tid) = match case.is_contained {
            true => (1, 1 + order[call.thread]),
            false => (7_000, 7_000 + call.thread as u32),
        };
        let op = functions.number(OPS[call.op].0);
        let (start, end) = (theirs(start), theirs(end));
        profile.push(pid, tid, Call { start, end, op, row: row as u64 });
        if random.below(10) == 0 {
            let op = functions.number("cudaGetDevice");
            profile.push(pid, tid, Call { start: end + 10, end: end + 60, op, row: u64::MAX });
        }
    }
    let ours = move |ts: i64| {
        let mut guess = ts + offset;
        for _ in 0..4 {
            guess += ts - theirs(guess);
        }
        guess - ts
    };
    let recording = Recording { span: recorded, lost: burst.into_iter().collect() };
    (profile, captured, functions, recording, ours)
}

fn case(random: &mut Random, relation: Relation) -> Case {
    let lost = [0, 0, 1, 10, 30];
    Case {
        relation,
        threads: 1 + random.below(4),
        calls: 400 + random.below(4_000),
        pace: 1 + random.below(30),
        offset_ns: random.below(1 << 40) as i64 * 1_000_000 - 1_000_000_000_000,
        drift_ppm: [0, 0, 20, -200][random.below(4)],
        lost_percent: [lost[random.below(lost.len())], lost[random.below(lost.len())]],
        is_contained: random.below(3) == 0,
        loses_burst: random.below(4) == 0,
        jitter_ns: [100, 500, 1_500][random.below(3)],
    }
}

/// Returns the largest error of an alignment over the profile, the number of calls that it misplaces, and the
/// number of wrong matches.
fn errors(aligned: &Aligned, profile: &Side, ours: &dyn Fn(i64) -> i64) -> ([i64; 2], usize) {
    let calls = profile.threads.iter().flat_map(|thread| &thread.calls);
    let errors: Vec<i64> =
        calls.map(|call| (aligned.line.offset_at(call.start) - ours(call.start)).abs()).collect();
    let misplaced = errors.iter().filter(|error| **error > 2_000).count() as i64;
    let wrong = aligned.matched.iter().filter(|matched| matched.profile_row != matched.captured_row).count();
    ([errors.into_iter().max().unwrap(), misplaced], wrong)
}

fn run_case(seed: u64, relation: Relation) -> (Case, Result<Aligned, String>, [i64; 2], usize) {
    run_drifting(seed, relation, None)
}

/// Runs a case, with another drift if one is given.
fn run_drifting(
    seed: u64,
    relation: Relation,
    drift_ppm: Option<i64>,
) -> (Case, Result<Aligned, String>, [i64; 2], usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0x1234_5678_9abc_def1));
    let mut case = case(&mut random, relation);
    case.drift_ppm = drift_ppm.unwrap_or(case.drift_ppm);
    let (profile, captured, functions, recording, ours) = record(&mut random, &case);
    let result = run(profile.clone(), captured, &functions, &recording);
    let (error, wrong) = result.as_ref().map_or(([0, 0], 0), |aligned| errors(aligned, &profile, &ours));
    (case, result, error, wrong)
}

/// Checks that profiles of the same process are aligned correctly.
fn all_right(seeds: Range<u64>) {
    let mut refused = Vec::new();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let (case, result, [error, _], wrong) = run_case(seed, Relation::SameProcess);
        match result {
            Ok(aligned) => {
                let quality = &aligned.quality;
                assert!(error <= 2_000, "{seed}: off by {error} ns: {case:?} {:?} {quality:?}", aligned.line);
                assert!(
                    wrong * 200 <= aligned.matched.len(),
                    "{seed}: {wrong} wrong of {}: {case:?}",
                    aligned.matched.len()
                );
                let stated = quality.residual_median_ns.max(quality.offset_error_ns().unwrap_or(0)) + 1_000;
                assert!(error <= stated, "{seed}: off by {error} ns, and {stated} ns are stated: {case:?}");
                let burst = if case.loses_burst { 0.75 } else { 1.0 };
                let kept =
                    (100 - case.lost_percent[0]) as f64 / 100.0 * burst * quality.matchable_count as f64;
                assert!(quality.matched_count as f64 > kept * 0.93 - 20.0, "{seed}: {case:?} {quality:?}");
            }
            Err(why) => refused.push((seed, why, case)),
        }
    }
    assert!(refused.len() as u64 * 100 <= count, "{} refused: {refused:#?}", refused.len());
}

#[test]
fn profiles_of_the_same_process_are_aligned() {
    all_right(0..200);
}

#[test]
fn profiles_of_the_same_process_are_aligned_too() {
    all_right(200..400);
}

#[test]
fn what_cannot_be_aligned_is_refused() {
    for relation in [
        Relation::OtherRun,
        Relation::SimilarRun,
        Relation::OtherProgram,
        Relation::Before,
        Relation::Even,
        Relation::Step,
        Relation::Wave,
    ] {
        let count = if relation == Relation::SimilarRun { 150 } else { 30 };
        for seed in 0..count {
            let (case, result, [_, misplaced], _) = run_case(100_000 + seed, relation);
            if let Ok(aligned) = result {
                // An even loop may have something that tells its iterations apart, and a clock may be set
                // shortly before the last few calls: then the answer must be right for all other calls.
                let is_right = matches!(relation, Relation::Even | Relation::Step) && misplaced <= 5;
                assert!(
                    is_right,
                    "{relation:?} {seed}: {misplaced} misplaced: {case:?} {:?} {:?}",
                    aligned.line, aligned.quality
                );
            }
        }
    }
}

#[test]
fn clocks_may_drift_by_as_much_as_kernels_correct_them() {
    for drift_ppm in [500, 1_000, -1_000] {
        // The drift is relative to the profile's clock.
        let expected = drift_ppm as f64 / 1e6 / (1.0 - drift_ppm as f64 / 1e6);
        for seed in 0..40 {
            let (case, result, [error, _], wrong) =
                run_drifting(seed, Relation::SameProcess, Some(drift_ppm));
            let aligned = result.unwrap_or_else(|why| panic!("{drift_ppm} ppm, {seed}: {why}: {case:?}"));
            assert!(
                error <= 2_000 && wrong * 200 <= aligned.matched.len(),
                "{drift_ppm} ppm, {seed}: {error} ns"
            );
            let off = (aligned.line.drift - expected).abs();
            // One of 20 lies outside of its 95 % interval, and none far.
            assert!(off <= 2.0 * aligned.line.drift_error, "{drift_ppm} ppm, {seed}: {:?}", aligned.line);
        }
    }
}

#[test]
fn few_or_no_calls_are_refused() {
    let mut functions = Functions::default();
    let (launch, copy) = (functions.number("cudaLaunchKernel"), functions.number("cudaMemcpy"));
    let side = |op: u32, count: i64| {
        let mut side = Side::default();
        for number in 0..count {
            let start = number * number * 1_000;
            side.push(1, 1, Call { start, end: start + 500, op, row: number as u64 });
        }
        side
    };
    let all = Recording { span: 0..i64::MAX, lost: Vec::new() };
    let refused = |a: Side, b: Side| run(a, b, &functions, &all).unwrap_err();
    assert!(refused(side(launch, 100), side(copy, 100)).contains("no function in common"));
    assert!(refused(Side::default(), side(copy, 100)).contains("no function in common"));
    assert!(refused(side(copy, 1), side(copy, 1)).contains("no time between two calls"));
    assert!(refused(side(copy, 20), side(copy, 20)).contains("32 are needed"));
    assert_eq!(run(side(copy, 100), side(copy, 100), &functions, &all).unwrap().line.offset_ns, 0);
}

#[test]
fn layers_stand_in_for_one_another() {
    let mut functions = Functions::default();
    let mut can = |a: &str, b: &str| {
        let (a, b) = (functions.number(a), functions.number(b));
        functions.can_be_one(a, b)
    };
    assert!(can("cudaLaunchKernel", "cuLaunchKernelEx") && can("cudaLaunchKernel", "cudaLaunchKernelExC"));
    assert!(can("cudaDeviceSynchronize", "cuCtxSynchronize") && can("cudaMemcpyAsync", "cuMemcpyHtoDAsync"));
    assert!(can("cudaStreamIsCapturing", "cudaStreamIsCapturing"));
    assert!(!can("cudaGraphLaunch", "cuLaunchKernel") && !can("cudaMemcpy", "cudaMemcpyAsync"));
    assert!(!can("cudaStreamSynchronize", "cuCtxSynchronize") && !can("cudaMalloc", "cudaFree"));
}
