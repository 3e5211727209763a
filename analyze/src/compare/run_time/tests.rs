//! Tests of the division of a difference: it adds up, it names what was planted, and what is unknown stays so.

use super::*;
use crate::compare::{
    facts::Facts,
    figure::Figure,
    gate::Rules,
    judge::{Comparison, compare},
    runs::RunFigures,
};

/// Seconds in nanoseconds.
const S: f64 = 1e9;

/// A run whose account has these parts: part, name, time before the first launch and after it in seconds. The wall time is
/// the sum of those without a name.
fn run(name: &str, parts: &[(&str, Option<&str>, f64, f64)]) -> RunFigures {
    let mut figures = Figures::new();
    let mut add = |metric: &str, part: Option<&str>, name: Option<&str>, seconds: f64| {
        let figure = Figure { value: seconds * S, calls_count: None };
        figures.insert(Key::of(metric, part, name), figure);
    };
    let whole = || parts.iter().filter(|part| part.1.is_none());
    let calls = whole().filter(|part| part.0 == "launch");
    add(WALL, None, None, whole().map(|part| part.2 + part.3).sum());
    add(START_UP, None, None, whole().map(|part| part.2).sum());
    add(CALLS, None, None, calls.map(|part| part.3).sum());
    for (part, name, start_up, running) in parts {
        add(PART_START_UP, Some(*part), *name, *start_up);
        add(PART_RUNNING, Some(*part), *name, *running);
    }
    RunFigures { name: name.to_owned(), facts: Facts::default(), figures }
}

fn quiet(name: &str, more: f64) -> RunFigures {
    run(name, &[("host", None, 2.0, 5.0 + more), ("launch", None, 0.0, 1.0)])
}

/// A run in which the process waited for a CPU that a hog had, for some seconds.
fn hogged(name: &str, waited: f64) -> RunFigures {
    run(
        name,
        &[
            ("host", None, 2.5, 5.0),
            ("launch", None, 0.0, 1.2),
            ("waiting_for_cpu", None, 0.0, waited),
            ("waiting_for_cpu", Some("cpu-hog"), 0.0, waited - 0.5),
            ("waiting_for_cpu", Some("other"), 0.0, 0.5),
        ],
    )
}

fn compared(base: Vec<RunFigures>, new: Vec<RunFigures>) -> Comparison {
    let rules = Rules::new(&["process_wall_ns < +5%".to_owned()], None, None).unwrap();
    compare(&Runs::new(base).unwrap(), &Runs::new(new).unwrap(), &rules, &[]).unwrap()
}

fn divided(base: Vec<RunFigures>, new: Vec<RunFigures>) -> RunTime {
    compared(base, new).run_time.unwrap()
}

/// Removes what only the scheduler tells.
fn without_schedule(run: RunFigures) -> RunFigures {
    let is_whole = |key: &Key| key.subject.is_none();
    RunFigures { figures: run.figures.into_iter().filter(|(key, _)| is_whole(key)).collect(), ..run }
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1.0
}

#[test]
fn parts_sum_to_the_difference_of_several_runs() {
    let base = vec![quiet("a", 0.0), quiet("b", 0.3), quiet("c", 0.1)];
    let new = vec![hogged("d", 9.0), hogged("e", 11.0), hogged("f", 12.5), quiet("g", 0.0)];
    let found = divided(base, new);
    let sum = |parts: &[Part]| {
        parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.base_ns, sum.1 + part.new_ns))
    };
    let (old, now) = sum(&found.parts);
    assert!(is_near(old, found.base.mean_ns) && is_near(now, found.new.mean_ns), "{found:?}");
    let delta: f64 = found.outermost().iter().map(|part| part.delta_ns).sum();
    assert!(is_near(delta, found.delta_ns), "{found:?}");
    assert!(is_near(found.delta_ns, found.new.mean_ns - found.base.mean_ns));
    let shares: f64 = found.outermost().iter().map(|part| part.share_ratio).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let spread = [(found.base.median_ns, 8.1), (found.base.least_ns, 8.0), (found.base.most_ns, 8.3)];
    assert!(spread.into_iter().all(|(ns, seconds)| is_near(ns, seconds * S)), "{found:?}");
}

#[test]
fn what_was_planted_is_the_first_part() {
    let one = divided(vec![quiet("a", 0.0)], vec![hogged("b", 10.0)]);
    let first = &one.parts[0];
    assert_eq!((first.part.as_str(), first.q), ("waiting_for_cpu", None));
    assert!(is_near(first.delta_ns, 10.0 * S), "{first:?}");
    assert_eq!(first.names[0].name, "cpu-hog");
    assert!(is_near(first.names[0].new_ns, 9.5 * S), "{first:?}");
    assert_eq!(
        one.sentence(),
        "The process took 18.7 s instead of 8.00 s: +10.7 s. For +10.0 s of it (93.5 %), it waited for a CPU that another task had – cpu-hog."
    );
    let base = (0..5).map(|at| quiet(&format!("a{at}"), 0.01 * f64::from(at))).collect();
    let new = (0..5).map(|at| hogged(&format!("b{at}"), 10.0 + 0.01 * f64::from(at))).collect();
    let several = divided(base, new);
    assert_eq!(several.parts[0].part, "waiting_for_cpu");
    assert!(several.q.unwrap() <= LISTED_Q && !several.parts[0].may_be_chance(), "{several:?}");
    assert!(several.sentence().contains("it waited for a CPU that another task had – cpu-hog"));
}

#[test]
fn a_slower_start_is_no_slower_loop() {
    let slow = run("b", &[("host", None, 12.0, 5.0), ("launch", None, 0.0, 1.0)]);
    let found = divided(vec![quiet("a", 0.0)], vec![slow]);
    let outermost = found.outermost();
    assert!(outermost[0].stage == Stage::StartUp && is_near(outermost[0].delta_ns, 10.0 * S));
    assert!(outermost[1..].iter().all(|part| is_near(part.delta_ns, 0.0)), "{outermost:?}");
    assert!(found.sentence().ends_with("For +10.0 s of it (100.0 %), it had not launched anything yet."));
    // A run that does not tell its first launch leaves all of it together.
    let mut untold = hogged("c", 1.0);
    untold.figures.remove(&Key::of(START_UP, None, None));
    let found = divided(vec![quiet("a", 0.0)], vec![untold]);
    assert!(found.start_up.is_none() && found.parts.iter().all(|part| part.stage == Stage::All));
    let delta: f64 = found.parts.iter().map(|part| part.delta_ns).sum();
    assert!(is_near(delta, found.delta_ns), "{found:?}");
}

#[test]
fn what_the_scheduler_would_tell_is_unknown_without_it() {
    assert!(is_recorded(&hogged("b", 10.0).figures));
    assert!(!is_recorded(&without_schedule(hogged("b", 10.0)).figures));
    for new in [hogged("b", 10.0), without_schedule(hogged("b", 10.0))] {
        let found = divided(vec![without_schedule(quiet("a", 0.0))], vec![new]);
        assert!(!found.is_recorded);
        let mut names: Vec<&str> = found.outermost().iter().map(|part| part.part.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["calls", "start_up", "unknown"]);
        let delta: f64 = found.outermost().iter().map(|part| part.delta_ns).sum();
        assert!(is_near(delta, found.delta_ns), "{found:?}");
        let text = found.sentence();
        assert!(text.contains("it did what is not on record") && !text.contains("another task"), "{text}");
        assert!(text.contains("The scheduler is not on record in every run"), "{text}");
    }
}

#[test]
fn runs_without_an_account_have_none() {
    let mut without = quiet("b", 0.0);
    without.figures.remove(&Key::of(WALL, None, None));
    assert!(compared(vec![quiet("a", 0.0)], vec![without]).run_time.is_none());
}
