//! Tests of verdicts on literal rows: twenty calls of 100 ns, and one that took longer for a known reason.

use trace_schema::Row;

use super::*;
use crate::{
    blocker::Blocker,
    culprits,
    derived::Derived,
    literal_events::{PID, call, derive, off_cpu, slice},
    thread_state::State,
};

/// When the slow call begins, in ns.
const SLOW_TS: i64 = 50_000;

/// Twenty calls of a function by thread 1, each of 100 ns.
fn usual(op: &'static str) -> impl Iterator<Item = Row> {
    (0..20).map(move |number| call(1, (number * 1_000, number * 1_000 + 100), op))
}

/// Derives the verdicts on the usual calls of a function, and one of `dur` ns with these other rows.
fn with_slow(op: &'static str, dur: i64, others: Vec<Row>) -> Arc<Derived> {
    let slow = call(1, (SLOW_TS, SLOW_TS + dur), op);
    // The thread's switches are on record.
    let known = off_cpu(1, (40_000, 40_010), "preempted");
    derive(usual(op).chain([slow, known]).chain(others).collect(), Params::default())
}

/// Returns the only slow call that began when the slow one did, and the division of its excess.
fn verdict(derived: &Derived) -> (&SlowCall, Vec<(Cause, f64)>) {
    let judgement = &derived.judgement;
    let slow = judgement.slow.iter().find(|slow| slow.call.ts == SLOW_TS).expect("a slow call");
    let division = judgement.division(&mut Walker::new(&derived.schedule), slow);
    let parts = Cause::ALL.into_iter().zip(division).filter(|(_, ns)| *ns != 0.0);
    (slow, parts.collect())
}

#[test]
fn a_call_is_slow_above_the_factor_and_by_at_least_the_minimum() {
    let baseline = |calls_count, own| {
        let kind = crate::groups::Usual { calls_count, own, ..Default::default() };
        Baseline { kind, ..Baseline::default() }
    };
    let params = |slow_factor, slow_by_ns| Params { slow_factor, slow_by_ns };
    for (params, calls_count, expected, dur, is_slow) in [
        (params(3.0, 0), 10, 100.0, 300, false),
        (params(3.0, 0), 10, 100.0, 301, true),
        (params(3.0, 0), 9, 100.0, 301, false),
        (params(3.0, 500), 10, 100.0, 599, false),
        (params(3.0, 500), 10, 100.0, 600, true),
        (params(3.0, 200), 10, 100.0, 300, false),
        (params(0.5, 0), 10, 100.0, 100, false),
        (params(0.5, 0), 10, 100.0, 101, true),
    ] {
        let baseline = baseline(calls_count, expected);
        assert_eq!(params.is_slow(dur, &baseline), is_slow, "{params:?} {calls_count} {dur}");
        let is_beyond = dur as f64 >= params.limit_ns(expected);
        assert!(is_beyond || !is_slow, "the limit lets no slow call go: {params:?} {dur}");
    }
    assert_eq!([params(3.0, 0), params(3.0, 500)].map(|params| params.limit_ns(100.0)), [300.0, 600.0]);
}

#[test]
fn a_call_that_lost_its_cpu_was_slow_because_of_who_had_it() {
    let rows = vec![
        Row { cpu: Some(0), ..off_cpu(1, (SLOW_TS + 100, SLOW_TS + 700), "preempted") },
        slice(0, (SLOW_TS + 100, SLOW_TS + 600), (9, 91, "hog")),
        slice(0, (SLOW_TS + 600, SLOW_TS + 700), (9, 92, "hog")),
    ];
    let derived = with_slow("cudaFree", 1_000, rows);
    let (slow, division) = verdict(&derived);
    assert_eq!((slow.baseline_ns, slow.excess_ns), (100.0, 900.0));
    assert_eq!(division, [(Cause::Scheduler, 600.0), (Cause::Unexplained, 300.0)]);
    assert_eq!((slow.verdict, slow.root, slow.has_chain), (Cause::Scheduler, Cause::Scheduler, true));
    assert_eq!(slow.culprit.map(|task| (task.pid, task.tid)), Some((9, 91)));
    assert_eq!((slow.behind_ns, slow.off_cpu_open_ns), (0.0, 0.0));

    let [function] = &derived.judgement.functions[..] else { panic!("{:?}", derived.judgement.functions) };
    assert_eq!((function.calls_count, function.censored_count, function.slow.clone()), (21, 0, 0..1));
    assert_eq!(function.percentiles.p50_ns, 100.0);
    assert_eq!(function.division[Cause::Scheduler.index()], 600.0);
    // Without the scheduler, the longest of 21 calls took 400 ns, and without the unknown cause 700 ns.
    let longest = |percentiles: Percentiles| (percentiles.p999_ns - 100.0) / 0.98 + 100.0;
    assert!((longest(function.percentiles) - 1_000.0).abs() < 1e-6, "{:?}", function.percentiles);
    let without: Vec<(Cause, i64)> =
        function.without.iter().map(|(cause, of)| (*cause, longest(*of).round() as i64)).collect();
    assert_eq!(without, [(Cause::Scheduler, 400), (Cause::Unexplained, 700)]);

    // Threads of one process that held the CPU are one culprit.
    let blame = culprits::find(&derived, function.run, &[slow]);
    let [culprit] = &blame.culprits[..] else { panic!("{:?}", blame.culprits) };
    assert_eq!((culprit.cause, culprit.pid, culprit.tid), (Cause::Scheduler, 9, None));
    assert_eq!((culprit.comm.as_str(), culprit.held_ns, culprit.run_ns), ("hog", 600, 600));
    assert_eq!((culprit.share_ratio, blame.waiting_in_slow_ns), (1.0, 600));
    assert!(blame.holders.contains(&9) && blame.holders.len() == 1 && blame.syscalls.is_empty());
    assert_eq!(blame.behind_ns(Cause::Scheduler), 0);
    let mut involved: Vec<_> = blame.involved.iter().map(|(_, pid, tid)| (*pid, *tid)).collect();
    involved.sort_unstable();
    assert_eq!(involved, [(PID, 1), (9, 91), (9, 92)]);
}

#[test]
fn a_call_that_waited_for_a_lock_was_slow_because_of_who_kept_its_holder_from_running() {
    let by_two = |row: Row| Row { waker_pid: Some(PID), waker_tid: Some(2), ..row };
    let rows = vec![
        // Its time is also that of the call around it, and counts once.
        call(1, (SLOW_TS + 50, SLOW_TS + 950), "cuMemFree"),
        by_two(Row { syscall: Some(202), ..off_cpu(1, (SLOW_TS + 100, SLOW_TS + 900), "sleeping") }),
        Row { cpu: Some(5), ..off_cpu(2, (SLOW_TS + 200, SLOW_TS + 700), "preempted") },
        slice(5, (SLOW_TS + 200, SLOW_TS + 700), (9, 91, "hog")),
    ];
    let derived = with_slow("cudaFree", 1_000, rows);
    let (slow, division) = verdict(&derived);
    let futex = Cause::Blocked(Blocker::Futex);
    assert_eq!(division, [(futex, 800.0), (Cause::Unexplained, 100.0)]);
    assert_eq!((slow.verdict, slow.root, slow.behind_ns), (futex, Cause::Scheduler, 500.0));
    assert_eq!(slow.culprit.map(|task| task.tid), Some(91));
    let blame = culprits::find(&derived, derived.judgement.functions[0].run, &[slow]);
    // The lock's holder was working for the other 300 ns.
    let found: Vec<_> = blame.culprits.iter().map(|of| (of.cause, of.pid, of.tid, of.held_ns)).collect();
    assert_eq!(found, [(Cause::Scheduler, 9, None, 500), (futex, PID, Some(2), 300)]);
    assert_eq!((blame.behind_ns(Cause::Scheduler), blame.behind_ns(futex)), (500, 0));
    let syscalls: Vec<_> =
        blame.syscalls.iter().map(|of| (of.name.as_str(), of.slow_ns, of.run_ns)).collect();
    assert_eq!(syscalls, [("futex", 800, 800)]);
}

#[test]
fn a_call_whose_purpose_is_to_wait_did_its_job() {
    let rows = vec![Row { syscall: Some(16), ..off_cpu(1, (SLOW_TS + 100, SLOW_TS + 900), "sleeping") }];
    let derived = with_slow("cudaStreamSynchronize", 1_000, rows);
    let (slow, division) = verdict(&derived);
    assert_eq!(division, [(Cause::GpuWait, 900.0)]);
    assert_eq!((slow.verdict, slow.root, slow.culprit), (Cause::GpuWait, Cause::GpuWait, None));
    let blame = culprits::find(&derived, derived.judgement.functions[0].run, &[slow]);
    assert!(blame.culprits.is_empty() && blame.syscalls.is_empty(), "{:?}", blame.culprits);
    // A wait for a CPU is not its purpose.
    let rows = vec![
        Row { syscall: Some(16), ..off_cpu(1, (SLOW_TS + 100, SLOW_TS + 800), "sleeping") },
        Row { cpu: Some(0), ..off_cpu(1, (SLOW_TS + 800, SLOW_TS + 900), "preempted") },
        slice(0, (SLOW_TS + 800, SLOW_TS + 900), (9, 91, "hog")),
    ];
    let derived = with_slow("cudaStreamSynchronize", 1_000, rows);
    let (slow, division) = verdict(&derived);
    assert_eq!(division, [(Cause::Scheduler, 100.0), (Cause::GpuWait, 800.0)]);
    let blame = culprits::find(&derived, derived.judgement.functions[0].run, &[slow]);
    let found: Vec<_> = blame.culprits.iter().map(|of| (of.cause, of.pid, of.held_ns)).collect();
    assert_eq!(found, [(Cause::Scheduler, 9, 100)]);
}

#[test]
fn time_off_cpu_without_a_reason_is_open_only_where_it_may_be_a_wait() {
    let away = || vec![off_cpu(1, (SLOW_TS + 100, SLOW_TS + 900), "unknown")];
    for (op, expected, open) in
        [("cudaFree", Cause::Scheduler, 0.0), ("cudaStreamSynchronize", Cause::Inconclusive, 800.0)]
    {
        let derived = with_slow(op, 1_000, away());
        let (slow, division) = verdict(&derived);
        assert_eq!((slow.verdict, slow.off_cpu_open_ns), (expected, open), "{op}");
        assert!(division.contains(&(expected, 800.0)), "{division:?}");
        assert!(derived.with_unknown.contains(&derived.judgement.functions[0].run), "{op}");
    }
}

#[test]
fn a_first_launch_is_slow_by_being_the_first() {
    let launch = |row: Row| Row { func: Some(1), ..row };
    let mut rows: Vec<Row> = usual("cudaLaunchKernel").map(launch).collect();
    rows.push(Row { func: Some(2), ..call(1, (SLOW_TS, SLOW_TS + 1_000), "cudaLaunchKernel") });
    rows.push(off_cpu(1, (40_000, 40_010), "preempted"));
    let derived = derive(rows, Params::default());
    let (slow, division) = verdict(&derived);
    assert_eq!((slow.verdict, division), (Cause::FirstCall, vec![(Cause::FirstCall, 900.0)]));
    assert!(!derived.with_first.is_empty());
}

#[test]
fn a_nested_call_of_another_class_takes_what_it_took() {
    let nested = |op| vec![call(1, (SLOW_TS + 100, SLOW_TS + 800), op)];
    let derived = with_slow("cudaMalloc", 1_000, nested("cuModuleLoad"));
    let (slow, division) = verdict(&derived);
    assert_eq!(division, [(Cause::Nested, 700.0), (Cause::Unexplained, 200.0)]);
    assert_eq!(slow.call.child().map(|child| derived.schedule.names.name(child)), Some("cuModuleLoad"));
    // A call of the same class is what the call is made of.
    let derived = with_slow("cudaMalloc", 1_000, nested("cuMemAlloc"));
    assert_eq!(verdict(&derived).1, [(Cause::Unexplained, 900.0)]);
}

#[test]
fn a_copy_of_many_bytes_takes_what_they_cost() {
    let copy = |ts, bytes: i64| {
        let row = call(1, (ts, ts + 1_000 + bytes / 16), "cudaMemcpyAsync");
        Row { size_bytes: Some(bytes), direction: Some("h2d".into()), ..row }
    };
    // Three sizes, so that there are pairs of points enough for a line.
    let mut rows: Vec<Row> = (0..20).map(|number| copy(number * 6_000, 1 << 16)).collect();
    rows.extend((0..9).map(|number| copy(1_000_000 + number * 20_000, 1 << 18)));
    rows.push(copy(10_000_000, 1 << 24));
    rows.push(off_cpu(1, (900_000, 900_010), "preempted"));
    let derived = derive(rows, Params::default());
    let slow = derived.judgement.slow.iter().find(|slow| slow.call.ts == 10_000_000).expect("a slow copy");
    let division = derived.judgement.division(&mut Walker::new(&derived.schedule), slow);
    assert_eq!((slow.verdict, slow.baseline_ns), (Cause::Size, 5_096.0));
    assert!((division[Cause::Size.index()] - slow.excess_ns).abs() < 1.0, "{division:?}");
    let line = derived.judgement.functions[0].size_line.expect("a line");
    assert!(
        (line.ns_per_byte - 1.0 / 16.0).abs() < 1e-9 && (line.fixed_ns - 1_000.0).abs() < 1e-3,
        "{line:?}"
    );
}

/// Calls are let go that turn out to be slow, because later ones are much shorter: the rows are read again.
#[test]
fn a_call_that_was_let_go_is_found_by_reading_again() {
    let calls = |from: i64, count: i64, dur| {
        (0..count)
            .map(move |number| call(1, (from + number * 20_000, from + number * 20_000 + dur), "cudaFree"))
    };
    let count = 1 << 12;
    let later = 1_000_000_000;
    let mut rows: Vec<Row> = calls(0, count, 10_000).collect();
    rows.push(call(1, (500_000_000, 500_014_000), "cudaFree"));
    rows.extend(calls(later, 3 * count, 1_000));
    let derived = derive(rows, Params::default());
    assert_eq!(derived.judgement.slow.len() as i64, count + 1);
    assert!(derived.judgement.slow.iter().all(|slow| slow.baseline_ns == 1_000.0 && slow.call.ts < later));
}

#[test]
fn only_waits_of_other_threads_for_a_cpu_are_behind_a_call() {
    let link = |depth, state, ns| Link {
        ts: 0,
        end: ns,
        thread: (0, 1, 1 + depth as u32),
        depth,
        state,
        task: None,
        slept_in: None,
        slept_from: None,
        cpu: None,
        syscall: None,
    };
    let links = [
        link(0, State::Preempted, 100),
        link(1, State::Preempted, 20),
        link(2, State::Runnable, 3),
        link(1, State::Throttled, 1_000),
        link(1, State::Unknown, 1_000),
    ];
    assert_eq!(behind_ns(&links, Cause::Blocked(Blocker::Futex), 500.0), 23.0);
    assert_eq!(behind_ns(&links, Cause::Blocked(Blocker::Futex), 5.0), 5.0, "at most the excess");
    assert_eq!(behind_ns(&links, Cause::GpuWait, 500.0), 0.0);
}
