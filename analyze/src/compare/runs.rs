//! Runs with their figures, which all of them share as one frame: some 20 bytes a figure, so that thousands of runs fit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use analyze_frame::{Entry, Frame};

use super::{
    facts::Facts,
    figure::{Figure, Figures, Key},
};
use analyze_run::error::AnalyzeError;

/// A run together with everything that is compared about it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFigures {
    /// Name of the run, unique within a comparison.
    pub name: String,
    /// Circumstances of the recording.
    pub facts: Facts,
    /// All figures of the run.
    pub figures: Figures,
}

/// What is known of a run besides its figures.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the run, unique within a comparison.
    pub name: String,
    /// Circumstances of the recording.
    pub facts: Facts,
    /// Number of the run's figures.
    pub figures_count: usize,
}

/// Collects runs and their figures.
#[derive(Debug, Default)]
pub struct Builder {
    runs: Vec<About>,
    keys: HashMap<Key, u32>,
    entries: Vec<Entry>,
}

impl Builder {
    /// Adds a run, and returns its place.
    pub fn run(&mut self, name: String, facts: Facts) -> usize {
        self.runs.push(About { name, facts, figures_count: 0 });
        self.runs.len() - 1
    }

    /// Adds a figure of the run at a place.
    pub fn figure(&mut self, run: usize, key: Key, figure: Figure) {
        let count = self.keys.len() as u32;
        let number = *self.keys.entry(key).or_insert(count);
        self.runs[run].figures_count += 1;
        let Figure { value, calls_count } = figure;
        self.entries.push(Entry { figure: number, run: run as u32, value, calls_count });
    }

    /// Adds the runs of another set.
    pub fn append(&mut self, other: &Runs) {
        let first = self.runs.len();
        for about in &other.runs {
            self.run(about.name.clone(), about.facts.clone());
        }
        for (key, run, figure) in other.all() {
            self.figure(first + run, key.clone(), figure);
        }
    }

    /// Returns the runs.
    ///
    /// # Errors
    /// Returns an error if a run has two values of one figure.
    pub fn finish(self) -> Result<Runs, AnalyzeError> {
        let mut keys: Vec<(Key, u32)> = self.keys.into_iter().collect();
        keys.sort_unstable();
        let mut numbers = vec![0; keys.len()];
        for (number, (_, old)) in keys.iter().enumerate() {
            numbers[*old as usize] = number as u32;
        }
        let mut entries = self.entries;
        entries.iter_mut().for_each(|entry| entry.figure = numbers[entry.figure as usize]);
        let keys: Vec<Key> = keys.into_iter().map(|(key, _)| key).collect();
        entries.sort_unstable_by_key(|entry| (entry.figure, entry.run));
        let of = |entry: &Entry| (entry.figure, entry.run);
        if let Some(twice) = entries.windows(2).find(|pair| of(&pair[0]) == of(&pair[1])) {
            let (key, run) = (&keys[twice[0].figure as usize], &self.runs[twice[0].run as usize].name);
            return Err(AnalyzeError::Damaged(format!("the figure {key} of the run {run} is there twice")));
        }
        let mut measured: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        for entry in &entries {
            let metric = keys[entry.figure as usize].metric.name();
            if !measured.contains_key(metric) {
                measured.insert(metric.to_owned(), vec![false; self.runs.len()]);
            }
            if let Some(runs) = measured.get_mut(metric) {
                runs[entry.run as usize] = true;
            }
        }
        Ok(Runs { runs: self.runs, keys, measured, frame: Frame::new(&entries)? })
    }
}

/// Runs in an order, and their figures.
#[derive(Clone, Debug)]
pub struct Runs {
    runs: Vec<About>,
    /// The figures that at least one run has, in the order of keys; a figure's number in the frame is its place here.
    keys: Vec<Key>,
    /// Which runs have any figure of a metric.
    measured: BTreeMap<String, Vec<bool>>,
    frame: Frame,
}

impl Runs {
    /// Collects runs.
    ///
    /// # Errors
    /// Returns an internal error if the frame cannot be made.
    pub fn new(runs: impl IntoIterator<Item = RunFigures>) -> Result<Self, AnalyzeError> {
        let mut builder = Builder::default();
        for RunFigures { name, facts, figures } in runs {
            let run = builder.run(name, facts);
            figures.into_iter().for_each(|(key, figure)| builder.figure(run, key, figure));
        }
        builder.finish()
    }

    /// Returns what is known of each run, in order.
    pub fn each(&self) -> &[About] {
        &self.runs
    }

    /// Gives access to the names of the runs.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.runs.iter_mut().map(|run| &mut run.name)
    }

    /// Returns the figures that at least one run has, in order.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn number(&self, key: &Key) -> Option<u32> {
        self.keys.binary_search(key).ok().map(|place| place as u32)
    }

    /// Returns a figure in the runs that have it, each with the run's place.
    pub fn figure(&self, key: &Key) -> impl Iterator<Item = (usize, Figure)> {
        let entries = self.number(key).into_iter().flat_map(|number| self.frame.of_figure(number));
        entries.map(|Entry { run, value, calls_count, .. }| (run as usize, Figure { value, calls_count }))
    }

    /// Returns a figure of the run at a place.
    pub fn get(&self, run: usize, key: &Key) -> Option<Figure> {
        let Entry { value, calls_count, .. } = self.frame.get(self.number(key)?, run as u32)?;
        Some(Figure { value, calls_count })
    }

    /// Returns all figures of all runs, in the order of keys and then of runs.
    pub fn all(&self) -> impl Iterator<Item = (&Key, usize, Figure)> {
        let figure = |Entry { figure, run, value, calls_count }| {
            (&self.keys[figure as usize], run as usize, Figure { value, calls_count })
        };
        self.frame.entries().map(figure)
    }

    /// Returns the figures of the run at a place, in the order of keys.
    pub fn of_run(&self, run: usize) -> impl Iterator<Item = (&Key, Figure)> {
        self.keys.iter().filter_map(move |key| Some((key, self.get(run, key)?)))
    }

    /// Takes the runs apart, with those of their figures that are wanted.
    pub fn apart(&self, wanted: impl Fn(&Key) -> bool) -> Vec<RunFigures> {
        let run = |About { name, facts, .. }: &About| RunFigures {
            name: name.clone(),
            facts: facts.clone(),
            figures: Figures::new(),
        };
        let mut runs: Vec<RunFigures> = self.runs.iter().map(run).collect();
        for (key, run, figure) in self.all().filter(|(key, ..)| wanted(key)) {
            runs[run].figures.insert(key.clone(), figure);
        }
        runs
    }

    /// Returns the names of the metrics of which a run has a figure that no query declares.
    pub fn undeclared(&self) -> BTreeSet<&str> {
        let undeclared = self.keys.iter().filter(|key| !key.metric.declaration().is_declared);
        undeclared.map(|key| key.metric.name()).collect()
    }

    /// Returns whether a run measures a metric at all: it has a figure of it, or one of the metric that the declaration
    /// names as measured together with it.
    pub fn measures(&self, run: usize, key: &Key) -> bool {
        let has = |metric: &str| self.measured.get(metric).is_some_and(|runs| runs[run]);
        has(key.metric.name()) || key.metric.declaration().measured_with.as_deref().is_some_and(has)
    }

    /// Returns each figure's value in every run, in the order of keys; `None` where a run lacks it.
    ///
    /// # Errors
    /// Returns an internal error if the frame cannot be pivoted.
    pub fn wide(&self) -> Result<Vec<Vec<Option<f64>>>, AnalyzeError> {
        self.frame.wide(self.runs.len() as u32)
    }

    /// Puts the runs in the order of a key of theirs; runs of one key stay in their order.
    ///
    /// # Errors
    /// Returns an internal error if the frame cannot be made.
    pub fn sorted_by_key<K: Ord>(self, of: impl Fn(&Facts) -> K) -> Result<Self, AnalyzeError> {
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|run| of(&self.runs[*run].facts));
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, run)| places[*run] = place);
        let mut builder = Builder::default();
        for run in order {
            builder.run(self.runs[run].name.clone(), self.runs[run].facts.clone());
        }
        self.all().for_each(|(key, run, figure)| builder.figure(places[run], key.clone(), figure));
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, start: i64, metrics: &[(&str, f64)]) -> RunFigures {
        let figure = |(metric, value): &(&str, f64)| {
            (Key::of(metric, None, None), Figure { value: *value, calls_count: None })
        };
        RunFigures {
            name: name.to_owned(),
            facts: Facts { start_wall_ns: Some(start), ..Facts::default() },
            figures: metrics.iter().map(figure).collect(),
        }
    }

    #[test]
    fn a_run_without_a_slow_call_has_none_rather_than_no_figure() {
        let key = |metric: &str| Key::of(metric, None, None);
        let runs =
            Runs::new([run("a", 0, &[("wall_ns", 1.0)]), run("b", 1, &[("off_cpu_ns", 1.0)])]).unwrap();
        assert!(runs.measures(0, &key("excess_ns")));
        assert!(!runs.measures(1, &key("excess_ns")), "no calls are on record");
        assert!(!runs.measures(0, &key("behind_ns")));
    }

    #[test]
    fn runs_are_taken_apart_appended_and_sorted() {
        let three = [
            run("a", 3, &[("wall_ns", 1.0), ("calls_ns", 5.0)]),
            run("b", 1, &[]),
            run("c", 2, &[("wall_ns", 2.0)]),
        ];
        let runs = Runs::new(three.clone()).unwrap();
        assert_eq!(runs.apart(|_| true), three);
        let wall = Key::of("wall_ns", None, None);
        assert_eq!(
            runs.figure(&wall).map(|(run, figure)| (run, figure.value)).collect::<Vec<_>>(),
            [(0, 1.0), (2, 2.0)]
        );
        let mut both = Builder::default();
        both.append(&runs);
        both.append(&runs);
        let sorted = both.finish().unwrap().sorted_by_key(|facts| facts.start_wall_ns).unwrap();
        let names: Vec<&str> = sorted.each().iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["b", "b", "c", "c", "a", "a"]);
        assert_eq!(sorted.of_run(5).map(|(_, figure)| figure.value).collect::<Vec<_>>(), [5.0, 1.0]);
        assert_eq!((sorted.get(0, &wall), sorted.each()[5].figures_count), (None, 2));
    }
}
