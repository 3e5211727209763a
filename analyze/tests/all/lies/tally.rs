//! Counts of answers that are as definite as the whole run's, that are open or a bound, and that contradict it.

use std::collections::{BTreeMap, HashMap};

/// Rows by key; the values are null where they are open.
pub(super) type Rows = HashMap<String, Vec<Option<f64>>>;

/// The counts of one kind of answer.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) same: usize,
    pub(super) open: usize,
    pub(super) lies: Vec<String>,
}

/// Differences up to this much are rounding.
const ROUNDING: f64 = 1e-6;

impl Tally {
    /// Counts one answer; `is_said` if what differs is said to be open.
    pub(super) fn judge(&mut self, is_same: bool, is_said: bool, lie: impl FnOnce() -> String) {
        match (is_said, is_same) {
            (true, _) => self.open += 1,
            (false, true) => self.same += 1,
            (false, false) => self.lies.push(lie()),
        }
    }

    /// Compares values that must be the same, or null.
    pub(super) fn equal(&mut self, whole: &Rows, part: &Rows) {
        for (key, values) in part {
            let Some(expected) = whole.get(key) else {
                self.lies.push(format!("{key}: the whole run has no such row, the cut one has {values:?}"));
                continue;
            };
            for (value, expected) in values.iter().zip(expected) {
                let lie = || format!("{key}: {values:?}, not {expected:?} ({value:?})");
                self.judge(value == expected, value.is_none() && expected.is_some(), lie);
            }
        }
        self.open += whole.keys().filter(|key| !part.contains_key(*key)).count();
    }

    /// Compares counts and sums over rows: they must be the same, or, if rows are known to be missing, at most as much.
    pub(super) fn at_most_if(&mut self, is_partial: bool, whole: &Rows, part: &Rows) {
        for (key, values) in part {
            let expected = whole.get(key);
            for (place, value) in values.iter().enumerate() {
                let expected = expected.and_then(|expected| expected[place]);
                let is_less = value.unwrap_or(0.0) < expected.unwrap_or(0.0) - ROUNDING;
                let is_open = value.is_none() && expected.is_some();
                let same = value.zip(expected).is_some_and(|(value, of)| (value - of).abs() <= ROUNDING);
                let lie = || format!("{key}: value {place} of {values:?}, not {expected:?}");
                self.judge(same || *value == expected, is_open || is_partial && is_less, lie);
            }
        }
        for (key, values) in whole.iter().filter(|(key, _)| !part.contains_key(*key)) {
            self.judge(false, is_partial, || format!("{key}: absent, not {values:?}"));
        }
    }

    /// Compares causes: no call may be slow that is not slow in the whole run, and no cause may have more than there.
    pub(super) fn no_gain(&mut self, whole: &Rows, part: &Rows, names: &str) {
        for (key, values) in part {
            let Some(expected) = whole.get(key) else {
                self.lies.push(format!("{key}: not slow in the whole run, here {values:?}"));
                continue;
            };
            for ((value, expected), cause) in values.iter().zip(expected).zip(names.split(", ")) {
                let (value, expected) = (value.unwrap_or(0.0), expected.unwrap_or(0.0));
                let lie = || format!("{key}: {cause} is {value}, not {expected}");
                self.judge(value <= expected + 1.0, value + 1.0 < expected, lie);
            }
        }
        self.open += whole.keys().filter(|key| !part.contains_key(*key)).count();
    }
}

/// The counts by kind of answer.
#[derive(Default)]
pub(super) struct Tallies {
    kinds: BTreeMap<&'static str, Tally>,
}

impl Tallies {
    /// Counts answers of a kind by `judge`. `cut` says of which run, and what was taken out.
    pub(super) fn of(&mut self, kind: &'static str, cut: &str, judge: impl FnOnce(&mut Tally)) {
        let tally = self.kinds.entry(kind).or_default();
        let before = tally.lies.len();
        judge(tally);
        for lie in &mut tally.lies[before..] {
            *lie = format!("{cut}: {lie}");
        }
    }

    /// Prints the counts and the first contradictions of each kind. Fails if there are any, or if too little is definite.
    pub(super) fn finish(&self) {
        let (mut same, mut open, mut lies) = (0, 0, 0);
        for (kind, tally) in &self.kinds {
            let share = 100.0 * tally.same as f64 / (tally.same + tally.open).max(1) as f64;
            let contradictions = tally.lies.len();
            println!(
                "{kind}: {} definite ({share:.1} %), {} open, {contradictions} contradictions",
                tally.same, tally.open
            );
            for lie in tally.lies.iter().take(20) {
                println!("    {lie}");
            }
            (same, open, lies) = (same + tally.same, open + tally.open, lies + contradictions);
        }
        println!("{same} definite, {open} open, {lies} contradictions");
        assert_eq!(lies, 0, "contradictions, printed above");
        assert!(same * 2 > open, "silence is no way out: {same} definite, {open} open");
    }
}
