use analyze_run::random::Random;

use super::*;

/// Calls of a thread, made one after another: each takes 1 ns, and the next begins 1 ns later.
#[derive(Default)]
struct Thread {
    names: Names,
    calls: Vec<(i64, i64, u32)>,
    now: i64,
}

impl Thread {
    fn call(&mut self, op: &str, count: usize) {
        for _ in 0..count {
            self.calls.push((self.now, self.now + 1, self.names.number(op)));
            self.now += 2;
        }
    }

    fn launch(&mut self, count: usize) {
        self.call("cudaLaunchKernel", count);
    }

    /// Makes a step that ends with a synchronizing call, and returns its end.
    fn step(&mut self, launches_count: usize) -> i64 {
        self.launch(launches_count);
        self.call("cudaStreamSynchronize", 1);
        self.now - 1
    }

    fn found(&self) -> Option<Found> {
        by_calls(|| self.calls.iter().copied(), &self.names)
    }
}

fn spans(borders: &[i64]) -> Vec<(i64, i64)> {
    borders.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn steps_end_with_the_call_that_synchronizes() {
    let mut thread = Thread::default();
    let borders: Vec<i64> = (0..6).map(|_| thread.step(10)).collect();
    thread.launch(3);
    let expected = Found {
        by: FoundBy::Sequence,
        name: "cudaStreamSynchronize".to_owned(),
        // Nothing ends before the first one.
        spans: spans(&borders),
    };
    assert_eq!(thread.found(), Some(expected));
}

#[test]
fn a_copy_begins_a_step() {
    let mut thread = Thread::default();
    let mut borders = Vec::new();
    for _ in 0..5 {
        borders.push(thread.now);
        thread.call("cudaMemcpyAsync", 1);
        thread.launch(30);
    }
    assert_eq!(thread.found().map(|found| found.spans), Some(spans(&borders)));
}

#[test]
fn three_steps_are_the_least() {
    for (steps_count, is_found) in [(3, false), (4, true)] {
        let mut thread = Thread::default();
        for _ in 0..steps_count {
            thread.step(10);
        }
        assert_eq!(thread.found().is_some(), is_found, "{steps_count} synchronizing calls");
    }
}

#[test]
fn start_up_is_no_step_and_an_interval_of_another_kind_is_none() {
    let mut thread = Thread::default();
    for count in [1, 7, 3] {
        thread.step(count);
    }
    let mut borders = vec![thread.now - 1];
    borders.extend((0..20).map(|_| thread.step(10)));
    let evaluated = thread.step(25);
    let later: Vec<i64> = (0..20).map(|_| thread.step(10)).collect();
    let found = thread.found().expect("steps").spans;
    let expected: Vec<(i64, i64)> =
        spans(&borders).into_iter().chain([(evaluated, later[0])]).chain(spans(&later)).collect();
    assert_eq!(found, expected);
}

#[test]
fn steps_of_two_shapes_are_one_step_together() {
    let mut thread = Thread::default();
    let borders: Vec<i64> = (0..41).map(|index| thread.step(if index % 2 == 0 { 100 } else { 50 })).collect();
    let found = thread.found().expect("steps").spans;
    assert_eq!(found, spans(&borders.iter().step_by(2).copied().collect::<Vec<_>>()));
}

#[test]
fn what_repeats_within_a_step_is_no_step() {
    // Twelve layers that each fill memory, and the head of the model between the last and the first. With a small head, most
    // intervals between layers have the same number of launches.
    for head in [40, 100] {
        let mut thread = Thread::default();
        let mut borders = Vec::new();
        for _ in 0..50 {
            borders.push(thread.now);
            for _ in 0..12 {
                thread.call("cudaMemsetAsync", 1);
                thread.launch(40);
            }
            thread.launch(head);
        }
        let found = thread.found().expect("steps").spans;
        assert!(found.len() >= 48, "{}", found.len());
        assert!(found.iter().all(|(ts, end)| end - ts == borders[1] - borders[0]), "{found:?}");
    }
}

#[test]
fn irregular_launches_are_no_steps() {
    for seed in 0..20 {
        let (mut thread, mut random) = (Thread::default(), Random::nth(seed, 0));
        for _ in 0..300 {
            let count = 5 + random.below(45);
            thread.step(count);
            if random.below(3) == 0 {
                thread.call("cudaMemcpyAsync", 1);
            }
        }
        assert_eq!(thread.found(), None, "seed {seed}");
    }
    let mut thread = Thread::default();
    thread.launch(1_000);
    assert_eq!(thread.found(), None, "nothing but launches");
    assert_eq!(Thread::default().found(), None);
}

#[test]
fn a_part_of_the_launches_is_no_run_of_steps() {
    // Regular steps have 200 of the launches, and come after or before others.
    for (before, after, is_found) in [(0, 49, true), (0, 51, false), (190, 0, true), (191, 0, false)] {
        let mut thread = Thread::default();
        thread.launch(before);
        for _ in 0..21 {
            thread.step(10);
        }
        thread.launch(after);
        assert_eq!(thread.found().is_some(), is_found, "{before} {after}");
    }
}

#[test]
fn graphs_come_before_other_anchors() {
    let mut thread = Thread::default();
    let mut borders = Vec::new();
    for _ in 0..5 {
        borders.push(thread.now);
        thread.call("cudaGraphLaunch", 1);
        thread.call("cudaStreamSynchronize", 1);
    }
    let expected = Found { by: FoundBy::Graph, name: "cudaGraphLaunch".to_owned(), spans: spans(&borders) };
    assert_eq!(thread.found(), Some(expected));
}

/// A range of thread 1, which drives the GPU, or of thread 2.
fn range(name: &str, tid: u32, ts: i64, end: i64) -> Range<'_> {
    Range { name, tid, is_driver: tid == 1, ts, end }
}

/// Finds steps where a call begins each 10 ns from 0 to 1000.
fn marked(ranges: &[Range<'_>]) -> Option<Found> {
    by_marks(ranges.iter().copied(), 100, |ts| (ts.clamp(0, 1_000) as usize).div_ceil(10))
}

#[test]
fn the_outermost_marks_are_the_steps_and_last_until_the_next() {
    let mut ranges = Vec::new();
    let names: Vec<String> = (0..10).map(|step| format!("step {step}")).collect();
    for (step, name) in (0..).zip(&names) {
        let ts = 100 * step;
        ranges.extend([range(name, 1, ts, ts + 90), range("forward", 1, ts, ts + 40)]);
        ranges.extend([range("backward", 1, ts + 40, ts + 80), range("loader", 2, ts, ts + 95)]);
    }
    // They are three, and the steps many.
    ranges.extend([0, 300, 600].map(|ts| range("epoch", 1, ts, ts + 300)));
    let found = marked(&ranges).expect("steps");
    let mut expected = spans(&(0..=10).map(|step| 100 * step).collect::<Vec<_>>());
    expected[9].1 = 990;
    assert_eq!((found.by, found.name.as_str(), found.spans), (FoundBy::Marks, "step #", expected));
}

#[test]
fn marks_that_overlap_or_are_few_or_hold_no_calls_are_no_steps() {
    let each = |times: [(i64, i64); 3]| times.map(|(ts, end)| range("step", 1, ts, end));
    assert!(marked(&each([(0, 300), (300, 600), (600, 1_000)])).is_some());
    assert!(marked(&each([(0, 301), (300, 600), (600, 1_000)])).is_none(), "overlap");
    assert!(marked(&each([(0, 300), (300, 600), (600, 1_000)])[..2]).is_none(), "few");
    assert!(marked(&each([(0, 300), (300, 600), (600, 790)])).is_none(), "a fifth of the calls comes later");
    assert!(marked(&each([(500, 600), (600, 700), (700, 1_000)])).is_some());
    assert!(marked(&each([(520, 600), (600, 700), (700, 1_000)])).is_none(), "more than half came before");
}

#[test]
fn a_name_without_other_numbers_stays_as_it_is() {
    let ranges = [0, 300, 600].map(|ts| range("block 2", 1, ts, ts + 300));
    assert_eq!(marked(&ranges).map(|found| found.name), Some("block 2".to_owned()));
    assert_eq!(without_numbers("epoch 12, step 345"), "epoch #, step #");
}

#[test]
fn warm_up_is_what_is_slow_at_the_beginning() {
    let count = |durs: &[i64]| warm_up_count(&durs.iter().map(|dur| (0, *dur)).collect::<Vec<_>>());
    let steady = [100, 101, 102, 103, 101, 100, 102, 101, 100, 103];
    assert_eq!(count(&steady), 0);
    assert_eq!(count(&[&[900, 400, 200][..], &steady].concat()), 3);
    assert_eq!(count(&[&[900, 400, 100, 200][..], &steady].concat()), 4, "most of them are slow");
    assert_eq!(count(&[&[900, 100, 100, 200][..], &steady].concat()), 1, "a slow step among others");
    assert_eq!(count(&[&steady[..], &[900]].concat()), 0);
    // It is at most half of the steps.
    assert_eq!(count(&[900, 900, 900, 100]), 0);
    assert_eq!(count(&[900, 900, 100, 100]), 2);
    assert_eq!((count(&[]), count(&[5])), (0, 0));
}
