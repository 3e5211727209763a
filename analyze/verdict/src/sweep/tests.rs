//! Tests of the sweep: calls of threads whose nesting, phases and time off CPU are known, and rows of any times.

use proptest::{collection::vec, option, prelude::*, sample::select};
use trace_schema::{Kind, Row};

use super::*;
use crate::{
    blocker::Blocker,
    literal_events::{PID, call, off_cpu, range, slice, sweep},
    thread_state::State,
    time_split::Parts,
};

/// A call that was left.
#[derive(Clone, Debug)]
struct Left {
    tid: u32,
    call: Call,
    parts: Option<Parts>,
}

impl Left {
    /// Returns the split of the call's time; a call without one was running all the time.
    fn parts(&self) -> Parts {
        self.parts.unwrap_or(Parts { on_cpu: self.call.dur.unwrap_or(0), ..Parts::default() })
    }
}

/// A sink that keeps every call, and the number of calls that were entered.
#[derive(Default)]
struct Kept {
    left: Vec<Left>,
    entered_count: usize,
}

impl Sink for Kept {
    fn entered(&mut self, _: &Call, _: &Schedule) -> Result<(), AnalyzeError> {
        self.entered_count += 1;
        Ok(())
    }

    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let (_, _, tid) = schedule.key(call.slot);
        self.left.push(Left { tid, call: call.clone(), parts: parts.copied() });
        Ok(())
    }
}

/// Returns the calls by thread and start, the outer of two first.
fn calls(sweep: &Sweep<Kept>) -> Vec<Left> {
    let mut left = sweep.sink.left.clone();
    left.sort_by_key(|left| (left.tid, left.call.ts, left.call.depth));
    left
}

/// Returns how often each contradiction was counted.
fn faults(sweep: &Sweep<Kept>) -> Vec<(Fault, u64)> {
    sweep.faults.iter().map(|((_, fault), count)| (*fault, *count)).collect()
}

const OPS: [&str; 3] = ["cudaMalloc", "cuMemAlloc", "cudaLaunchKernel"];

/// A call as the thread makes it.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    ts: i64,
    end: i64,
    op: usize,
    depth: u32,
    parent: Option<usize>,
    /// The longest call made directly in it, and the time of all of these.
    child: Option<(usize, i64)>,
    child_ns: i64,
}

/// Makes the calls that a thread enters and leaves: whether it leaves one, after how long, and otherwise which it enters.
fn made(steps: &[(bool, i64, usize)]) -> Vec<Made> {
    let (mut now, mut open, mut made) = (100, Vec::<usize>::new(), Vec::<Made>::new());
    let leave = |made: &mut Vec<Made>, open: &mut Vec<usize>, now: i64| {
        let Some(index) = open.pop() else { return };
        made[index].end = now;
        let (op, dur) = (made[index].op, now - made[index].ts);
        if let Some(outer) = open.last() {
            let outer = &mut made[*outer];
            outer.child_ns += dur;
            outer.child = outer.child.filter(|(_, longest)| *longest >= dur).or(Some((op, dur)));
        }
    };
    let mut has_entered = false;
    for (leaves, step, op) in steps {
        let is_leaving = *leaves && !open.is_empty();
        if is_leaving {
            // A call takes time.
            now += (*step).max(i64::from(has_entered));
            leave(&mut made, &mut open, now);
        } else {
            now += step;
            let parent = open.last().map(|outer| made[*outer].op);
            let depth = open.len() as u32;
            open.push(made.len());
            made.push(Made { ts: now, end: 0, op: *op, depth, parent, child: None, child_ns: 0 });
        }
        has_entered = !is_leaving;
    }
    while !open.is_empty() {
        now += 1;
        leave(&mut made, &mut open, now);
    }
    made
}

const STATES: [&str; 6] = ["preempted", "sleeping", "uninterruptible", "throttled", "stopped", "unknown"];

/// An off-CPU interval: how long after the one before, its length, its state, and how long the thread was runnable.
type Away = (i64, i64, &'static str, Option<i64>);

fn away() -> impl Strategy<Value = Vec<Away>> {
    vec((0..9_i64, 0..12_i64, select(STATES.to_vec()), option::of(-2..14_i64)), 0..10)
}

/// Returns the rows of a thread's time off CPU, which do not overlap.
fn off_cpu_rows(tid: u32, away: &[Away]) -> Vec<Row> {
    let mut at = 95;
    let row = |(gap, length, state, runnable_ns): &Away| {
        at += gap + length;
        Row { runnable_ns: *runnable_ns, syscall: Some(202), ..off_cpu(tid, (at - length, at), state) }
    };
    away.iter().map(row).collect()
}

/// Returns what a thread does at a time, by its rows.
fn state_at(rows: &[Row], time: i64) -> State {
    let end = |row: &Row| row.ts + row.dur.unwrap_or(0);
    let Some(row) = rows.iter().find(|row| (row.ts..end(row)).contains(&time)) else { return State::OnCpu };
    match &*row.op {
        "preempted" => State::Preempted,
        "throttled" => State::Throttled,
        "stopped" => State::Stopped,
        "unknown" => State::Unknown,
        _ if end(row) - time <= row.runnable_ns.unwrap_or(0) => State::Runnable,
        _ => State::Blocked(Blocker::Futex),
    }
}

/// Counts the time of a call by what its thread does in each nanosecond.
fn counted(rows: &[Row], (ts, end): (i64, i64)) -> Parts {
    let mut parts = Parts::default();
    for time in ts..end {
        *match state_at(rows, time) {
            State::OnCpu => &mut parts.on_cpu,
            State::Preempted => &mut parts.preempted,
            State::Runnable => &mut parts.runnable,
            State::Throttled => &mut parts.throttled,
            State::Blocked(blocker) => &mut parts.blocked[blocker as usize],
            State::Stopped => &mut parts.stopped,
            State::Unknown => &mut parts.unknown,
        } += 1;
    }
    parts.blocked_syscall = (parts.blocked_ns() > 0).then_some(202);
    parts
}

fn sum(parts: &Parts) -> i64 {
    let Parts { on_cpu, preempted, runnable, throttled, stopped, unknown, .. } = *parts;
    on_cpu + preempted + runnable + throttled + stopped + unknown + parts.blocked_ns()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Two threads enter and leave calls, and are off CPU at any times.
    #[test]
    fn calls_have_their_places_and_the_exact_split_of_their_time(
        steps in [(); 2].map(|()| vec((any::<bool>(), 0..5_i64, 0..OPS.len()), 0..20)),
        away in [away(), away()],
    ) {
        let threads = [0, 1].map(|thread| (made(&steps[thread]), off_cpu_rows(thread as u32, &away[thread])));
        let mut rows = Vec::new();
        for (tid, (made, off)) in (0..).zip(&threads) {
            rows.extend(made.iter().map(|made| call(tid, (made.ts, made.end), OPS[made.op])));
            rows.extend(off.iter().cloned());
        }
        let sweep = sweep(rows, Kept::default());
        prop_assert_eq!(faults(&sweep), []);
        let all: usize = threads.iter().map(|(made, _)| made.len()).sum();
        prop_assert_eq!((sweep.sink.left.len(), sweep.sink.entered_count), (all, all));
        let op = |name: u32| OPS.iter().position(|op| *op == sweep.schedule.names.name(name)).unwrap();
        for (tid, (made, off)) in (0..).zip(&threads) {
            let left: Vec<Left> = calls(&sweep).into_iter().filter(|left| left.tid == tid).collect();
            for (left, made) in left.iter().zip(made) {
                let Call { ts, depth, parent, child, child_ns, .. } = left.call;
                let found = Made {
                    ts,
                    end: left.call.end(),
                    op: op(left.call.op),
                    depth,
                    parent: parent.map(op),
                    child: child.map(|(name, dur)| (op(name), dur)),
                    child_ns,
                };
                prop_assert_eq!(&found, made);
                let parts = left.parts();
                prop_assert_eq!(parts, counted(off, (made.ts, made.end)));
                prop_assert_eq!(sum(&parts), made.end - made.ts);
            }
        }
    }

    /// Whatever the rows are: every call with a time that a clock can have is left once, and its parts sum to it.
    #[test]
    fn calls_of_any_rows_are_left_once_and_divided_exactly(
        rows in vec(
            (0..3_u32, 0..60_i64, option::weighted(0.9, -3..20_i64), 0..4_usize, select(STATES.to_vec())),
            0..40,
        ),
    ) {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(tid, ts, dur, kind, state)| match OPS.get(kind) {
                Some(op) => Row { dur, ..call(tid, (ts, ts), op) },
                None => Row { dur, runnable_ns: Some(3), ..off_cpu(tid, (ts, ts), state) },
            })
            .collect();
        let mut expected: Vec<(u32, i64, Option<i64>)> = rows
            .iter()
            .filter(|row| row.kind == Kind::Call)
            .map(|row| (row.tid, row.ts, row.dur.filter(|dur| *dur >= 0)))
            .collect();
        let sweep = sweep(rows, Kept::default());
        let mut found: Vec<(u32, i64, Option<i64>)> =
            sweep.sink.left.iter().map(|left| (left.tid, left.call.ts, left.call.dur)).collect();
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
        for left in sweep.sink.left.iter().filter(|left| left.call.dur.is_some()) {
            prop_assert_eq!(Some(sum(&left.parts())), left.call.dur, "{:?}", left);
        }
        for tid in 0..3 {
            let Some(slot) = sweep.schedule.known_slot((sweep.run, PID, tid)) else { continue };
            let states = sweep.schedule.pieces_of(slot);
            prop_assert!(states.iter().all(|state| state.ts < state.end), "{:?}", states);
            prop_assert!(states.windows(2).all(|pair| pair[0].end <= pair[1].ts), "{:?}", states);
        }
    }
}

/// Returns start, depth and whether the call ended, of each call.
fn places(sweep: &Sweep<Kept>) -> Vec<(i64, u32, bool)> {
    calls(sweep).iter().map(|left| (left.call.ts, left.call.depth, left.call.dur.is_some())).collect()
}

#[test]
fn calls_that_cross_are_siblings() {
    let rows = vec![
        call(1, (10, 20), "cudaMalloc"),
        call(1, (15, 30), "cudaFree"),
        call(1, (26, 28), "cuMemFree"),
        // It ends together with the one around it.
        call(1, (40, 60), "cudaMalloc"),
        call(1, (50, 60), "cuMemAlloc"),
        // It begins when the one before ends.
        call(1, (60, 61), "cuMemAlloc"),
    ];
    let sweep = sweep(rows, Kept::default());
    let expected = [(10, 0), (15, 0), (26, 1), (40, 0), (50, 1), (60, 0)];
    assert_eq!(places(&sweep), expected.map(|(ts, depth)| (ts, depth, true)));
    assert_eq!(faults(&sweep), [(Fault::CrossingCalls, 1)]);
}

#[test]
fn a_call_without_an_end_contains_what_can_be_nested_in_it() {
    let open = |ts, op| Row { dur: None, ..call(1, (ts, ts), op) };
    for (outer, inner, is_nested) in [
        ("cudaMalloc", "cuMemAlloc", true),
        ("ncclAllReduce", "cudaLaunchKernel", true),
        ("cudaMalloc", "cudaFree", true),
        ("cudaMalloc", "cudaMalloc", false),
        ("cuMemAlloc", "cudaMalloc", false),
        ("cudaLaunchKernel", "ncclAllReduce", false),
        ("some_function", "cuMemAlloc", true),
        ("some_function", "some_function", false),
    ] {
        let rows = vec![open(10, outer), call(1, (12, 14), inner)];
        let sweep = sweep(rows, Kept::default());
        let expected = [(10, 0, false), (12, u32::from(is_nested), true)];
        assert_eq!(places(&sweep), expected, "{inner} in {outer}");
        let counted = if is_nested { vec![] } else { vec![(Fault::CallNotEnded, 1)] };
        assert_eq!(faults(&sweep), counted, "{inner} in {outer}");
        // The time of a call whose end is not on record is not divided.
        assert!(calls(&sweep)[0].parts.is_none());
    }
    // What is nested in it and has an end goes on without it.
    let rows = vec![open(10, "cudaMalloc"), call(1, (12, 40), "cuMemAlloc"), call(1, (20, 30), "cudaMalloc")];
    let sweep = sweep(rows, Kept::default());
    assert_eq!(places(&sweep), [(10, 0, false), (12, 1, true), (20, 0, true)]);
}

#[test]
fn times_that_no_clock_has_are_left_out() {
    let row = |(ts, dur): (i64, i64)| Row { ts, dur: Some(dur), ..call(1, (0, 0), "cudaFree") };
    for (time, is_told) in [
        ((-(1 << 60), 5), true),
        ((-(1 << 60) - 1, 5), false),
        ((1 << 62, 5), true),
        (((1 << 62) + 1, 5), false),
        ((0, 1 << 53), true),
        ((0, (1 << 53) + 1), false),
        ((0, -(1 << 53) - 1), false),
    ] {
        // A row that comes alone, and one of two that come at a time.
        for copies in [1, 2] {
            let rows = [vec![row(time); copies], vec![call(2, (9, 10), "cudaFree")]].concat();
            let sweep = sweep(rows, Kept::default());
            let expected =
                if is_told { (copies + 1, vec![]) } else { (1, vec![(Fault::OutOfRange, copies as u64)]) };
            assert_eq!((sweep.sink.left.len(), faults(&sweep)), expected, "{time:?}");
        }
    }
    let sweep = sweep(vec![row((0, -(1 << 53)))], Kept::default());
    assert_eq!((places(&sweep), faults(&sweep)), (vec![(0, 0, false)], vec![(Fault::NegativeDuration, 1)]));
}

#[test]
fn a_call_is_of_the_range_that_began_last_around_its_start() {
    let begins = [5, 10, 19, 20, 99, 100];
    let mut rows: Vec<Row> = begins.iter().map(|ts| call(1, (*ts, ts + 1), "cudaFree")).collect();
    rows.extend([range(2, (0, 100), "epoch"), range(1, (10, 20), "step"), range(2, (10, 15), "part")]);
    // A point is no range, and other processes have ranges of their own.
    rows.push(Row { op: "point".into(), ..range(1, (19, 19), "point") });
    rows.push(Row { pid: 9, ..range(1, (0, 1000), "other") });
    rows.push(Row { pid: 9, ..call(7, (50, 51), "cudaFree") });
    let sweep = sweep(rows, Kept::default());
    let name = |phase: Option<u32>| phase.map_or("", |phase| sweep.schedule.names.name(phase));
    let found: Vec<_> = calls(&sweep).iter().map(|left| (left.call.ts, name(left.call.phase))).collect();
    let expected =
        [(5, "epoch"), (10, "part"), (19, "step"), (20, "epoch"), (99, "epoch"), (100, ""), (50, "other")];
    assert_eq!(found, expected);
}

#[test]
fn the_first_launch_of_a_kernel_is_one_by_function_and_process() {
    let launch = |ts, op, func, pid| Row { func, pid, ..call(1, (ts, ts + 1), op) };
    let rows = vec![
        launch(10, "cudaLaunchKernel", Some(5), PID),
        launch(20, "cudaLaunchKernel", Some(5), PID),
        launch(30, "cudaLaunchKernel", Some(6), PID),
        launch(40, "cudaLaunchKernel", Some(5), PID),
        launch(50, "cuLaunchKernel", Some(5), PID),
        launch(60, "cudaLaunchKernel", Some(5), 9),
        launch(70, "cudaLaunchKernel", None, PID),
        // The handle of an event.
        launch(80, "cudaEventRecord", Some(5), PID),
    ];
    let sweep = sweep(rows, Kept::default());
    let mut first: Vec<i64> =
        sweep.sink.left.iter().filter(|left| left.call.is_first).map(|left| left.call.ts).collect();
    first.sort_unstable();
    assert_eq!(first, [10, 30, 50, 60]);
}

/// Slices begin before the interval that they are behind, though they come with it.
#[test]
fn rows_of_one_time_are_taken_in_the_order_in_which_others_depend_on_them() {
    let away = |next| Row { cpu: Some(3), next_tid: Some(next), ..off_cpu(1, (10, 20), "preempted") };
    for (next, has_moved) in [(7, false), (8, true)] {
        let rows = vec![
            call(1, (10, 30), "cudaFree"),
            away(next),
            slice(3, (10, 18), (7, 7, "hog")),
            slice(3, (10, 10), (6, 6, "short")),
            range(1, (10, 12), "step"),
        ];
        let sweep = sweep(rows, Kept::default());
        let left = &calls(&sweep)[0];
        assert!(left.call.phase.is_some());
        assert_eq!((left.parts().on_cpu, left.parts().preempted), (10, 10));
        assert_eq!(sweep.schedule.thread_states((sweep.run, PID, 1))[0].has_moved, has_moved);
        assert_eq!(faults(&sweep), []);
    }
}
