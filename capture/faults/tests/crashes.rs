//! Recorders under failures and kills: what was flushed is there, what was never recorded is not, and nothing else is left.
//! `crash-test` tries more.

use std::{path::Path, time::Duration};

use fault_injection::{
    campaign::{self, Effort, Tally},
    recordings::Recording,
    scenarios,
};

const RECORD_ROWS: &str = env!("CARGO_BIN_EXE_record-rows");

#[test]
fn a_recorder_loses_nothing_that_it_has_flushed() {
    let mut all = Tally::default();
    for (seed, scenario) in (1..).zip(scenarios::recorders(Path::new(RECORD_ROWS), 2_000)) {
        let effort = Effort { trials_count: 40, threads_count: 2, seed };
        all += campaign::walk(&scenario, effort, |_| true).unwrap();
    }
    assert!(all.wrong.is_empty(), "{all}\n{}", all.wrong.join("\n"));
    // Each way to end was tried.
    let counts =
        [all.complete_count, all.kept_count, all.recovered_count, all.refused_count, all.killed_count];
    assert!(counts.iter().all(|count| *count > 10), "{all}");
}

#[test]
fn a_kill_at_any_moment_costs_a_second_at_most() {
    let recorder = Recording::rows(Path::new(RECORD_ROWS), 3_000, None, true);
    let effort = Effort { trials_count: 8, threads_count: 8, seed: 1 };
    let tally = campaign::kill_at_random(&recorder, effort, Duration::from_millis(2_800)).unwrap();
    assert!(tally.wrong.is_empty(), "{tally}\n{}", tally.wrong.join("\n"));
    assert_eq!((tally.trials_count, tally.killed_count), (8, 8), "{tally}");
    let line = tally.json("kills", 1, Duration::from_millis(2_800));
    assert_eq!((line["killed_count"].as_u64(), line["took_s"].as_u64()), (Some(8), Some(2)), "{line}");
    assert_eq!(line["most_lost_ns"].as_i64(), Some(tally.most_lost_ns));
}
