//! Outputs while system calls fail, and programs are killed: each is whole or as it was before, with the exit code of errors of
//! reading and writing, and nothing else is left. `crash-test` tries more.

use std::path::Path;

use fault_injection::{
    campaign::{self, Effort, Tally},
    outputs::Outputs,
    scenarios,
};

const ANALYZE: &str = env!("CARGO_BIN_EXE_analyze");

fn walked(verbs: Vec<Outputs>, trials_count: usize) -> Tally {
    let mut all = Tally::default();
    for (seed, verb) in (1..).zip(verbs) {
        let effort = Effort { trials_count, threads_count: 2, seed };
        all += campaign::walk(&verb, effort, |_| true).unwrap();
    }
    assert!(all.wrong.is_empty(), "{all}\n{}", all.wrong.join("\n"));
    all
}

#[test]
fn an_output_is_whole_or_as_it_was() {
    let all = walked(scenarios::quick_verbs(Path::new(ANALYZE)).unwrap(), 16);
    // Each way to end was tried.
    let counts = [all.complete_count, all.kept_count, all.refused_count, all.killed_count];
    assert!(counts.iter().all(|count| *count > 5), "{all}");
}

#[test]
fn a_report_and_a_baseline_are_whole_or_as_they_were() {
    walked(scenarios::slow_verbs(Path::new(ANALYZE)).unwrap(), 2);
}
