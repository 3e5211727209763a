//! Figures of a run: single numbers, read from the views `metrics_…`.
//!
//! The columns `subject` and `stratum` say what a row is about. Every other numeric column is a metric, named
//! by the column; `calls_count` is also the number of calls (or ranges) on which the row's quantiles rest.
//!
//! What a metric means (which values are better, its floor, its unit) is declared in the header of its query: see
//! [`super::metric`]. Users add metrics of their own as files `metrics_….sql` in `--queries DIR`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{LazyLock, Mutex, PoisonError},
};

use analyze_engine::catalog::Query;
use arrow::array::RecordBatch;
use futures::future::try_join_all;
use serde::Serialize;

use super::metric::Metric;
use crate::trace::{Together, Trace};
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// Prefix of the names of views that consist of metrics.
pub const VIEWS: &str = "metrics_";

/// Column with what a row is about.
const SUBJECT: &str = "subject";
/// Column with the number of calls on which a row's quantiles rest.
const COUNT: &str = "calls_count";

/// Identity of a figure: what is measured, and about what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// The metric, by whose name alone keys are compared.
    pub metric: Metric,
    /// Function, thread state, phase, … that the figure is about; `None` for the whole run.
    pub subject: Option<String>,
    /// Group within the subject (size class, direction, first call); `None` for the whole subject.
    pub stratum: Option<String>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.subject, &self.stratum) {
            (None, _) => write!(f, "{}", self.metric.name()),
            (Some(subject), None) => write!(f, "{}({subject})", self.metric.name()),
            (Some(subject), Some(stratum)) => write!(f, "{}({subject}; {stratum})", self.metric.name()),
        }
    }
}

impl Key {
    /// Creates the key of a metric of the library.
    pub fn of(metric: &str, subject: Option<&str>, stratum: Option<&str>) -> Self {
        Self::with(Metric::of(metric), subject, stratum)
    }

    /// Creates the key of a metric that need not be the library's.
    pub fn with(metric: Metric, subject: Option<&str>, stratum: Option<&str>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { metric, subject: owned(subject), stratum: owned(stratum) }
    }

    /// Formats a value of this metric with its unit.
    pub fn show(&self, value: f64) -> String {
        self.metric.show(value)
    }
}

/// Value of a figure in one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The value, in the unit of its metric.
    pub value: f64,
    /// Number of calls on which a quantile rests; `None` if unknown.
    pub calls_count: Option<i64>,
}

/// All figures of a run.
pub type Figures = BTreeMap<Key, Figure>;

/// Which metrics of a run are read; by default all.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Option<Vec<(String, bool)>>);

impl Wanted {
    /// Selects metrics by name, as gates name them, each with whether only the figure of the whole run is wanted.
    pub fn named(metrics: impl IntoIterator<Item = (String, bool)>) -> Self {
        Self(Some(metrics.into_iter().collect()))
    }

    /// Returns whether all metrics are wanted.
    pub(super) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns those of some views that have figures of the wanted metrics, or of metrics that show whether a run measures them.
    fn views<'a>(&self, views: Vec<View<'a>>) -> Vec<View<'a>> {
        let Some(names) = &self.0 else { return views };
        let wanted = Self::wanted(names, &views);
        views.into_iter().zip(wanted).filter_map(|(view, is_wanted)| is_wanted.then_some(view)).collect()
    }

    /// Returns for each of some views whether it is needed for the metrics of these names.
    fn wanted(names: &[(String, bool)], views: &[View<'_>]) -> Vec<bool> {
        let is_of_runs =
            |metric: &Metric| views.iter().any(|view| !view.has_subject() && view.metrics.contains(metric));
        let is_named = |view: &View<'_>, metric: &Metric| {
            names.iter().any(|(name, is_whole)| {
                metric.is_named(name) && !(*is_whole && view.has_subject() && is_of_runs(metric))
            })
        };
        let metrics =
            views.iter().flat_map(|view| view.metrics.iter().filter(|metric| is_named(view, metric)));
        let measured_with: BTreeSet<&str> =
            metrics.filter_map(|metric| metric.declaration().measured_with.as_deref()).collect();
        let is_wanted = |view: &View<'_>, metric: &Metric| {
            is_named(view, metric) || measured_with.contains(metric.name())
        };
        views.iter().map(|view| view.metrics.iter().any(|metric| is_wanted(view, metric))).collect()
    }
}

/// A view of metrics.
struct View<'a> {
    query: &'a Query,
    metrics: Vec<Metric>,
}

impl<'a> View<'a> {
    /// Returns the views of metrics among the queries of a trace.
    fn all(trace: &'a Trace) -> Result<Vec<Self>, AnalyzeError> {
        let mut views = Vec::new();
        for query in trace.queries() {
            if !query.name.starts_with(VIEWS) || !query.params.is_empty() {
                continue;
            }
            let names = query.columns.iter().map(|column| column.name.as_str());
            let metrics: Vec<Metric> = names
                .filter(|name| !matches!(*name, "run" | SUBJECT | "stratum"))
                .map(|name| Metric::declared_in(query, name))
                .collect::<Result<_, _>>()?;
            if metrics.is_empty() {
                return Err(AnalyzeError::Query(format!("{}: a view of metrics has no number", query.path)));
            }
            views.push(Self { query, metrics });
        }
        Ok(views)
    }

    /// Returns whether the figures are of functions, phases, … rather than of whole runs.
    fn has_subject(&self) -> bool {
        self.query.columns.iter().any(|column| column.name == SUBJECT)
    }

    fn select(&self) -> String {
        format!("SELECT * FROM {}", self.query.name)
    }

    /// Returns whether the view reads calls so that it may share a sweep. Each view is planned for that once, because planning
    /// it takes longer than reading a small run.
    async fn shares_sweep(&self, trace: &Trace) -> Result<bool, AnalyzeError> {
        static KNOWN: LazyLock<Mutex<HashMap<String, bool>>> = LazyLock::new(Mutex::default);
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shares) = known().get(&self.query.sql) {
            return Ok(*shares);
        }
        let shares = trace.shares_sweep(&self.select()).await?;
        known().insert(self.query.sql.clone(), shares);
        Ok(shares)
    }

    async fn rows(&self, trace: &Trace) -> Result<Vec<RecordBatch>, AnalyzeError> {
        trace.batches(&self.select()).await
    }

    /// Adds the figures in rows of the view.
    fn add(&self, batches: &[RecordBatch], figures: &mut Figures) -> Result<(), AnalyzeError> {
        let path = &self.query.path;
        for batch in batches {
            let text = |name| batch.column_by_name(name).map(|_| strings(batch, name)).transpose();
            let (subjects, strata) = (text(SUBJECT)?, text("stratum")?);
            let counts = batch.column_by_name(COUNT).map(|_| integers(batch, COUNT)).transpose()?;
            for metric in &self.metrics {
                let values = floats(batch, metric.name())?;
                for row in 0..batch.num_rows() {
                    let Some(value) = values.at(row) else { continue };
                    if !value.is_finite() {
                        return Err(AnalyzeError::Query(format!("{path}: a {} is {value}", metric.name())));
                    }
                    let subject = subjects.as_ref().and_then(|subjects| subjects.at(row));
                    let stratum = strata.as_ref().and_then(|strata| strata.at(row));
                    let calls_count = counts.as_ref().and_then(|counts| counts.at(row));
                    let key = Key::with(metric.clone(), subject, stratum);
                    if figures.insert(key.clone(), Figure { value, calls_count }).is_some() {
                        return Err(AnalyzeError::Query(format!("{path}: {key} is there twice")));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is asked of a run to read its figures.
pub(super) struct Asked<'a> {
    /// The views of the wanted metrics.
    views: Vec<View<'a>>,
    /// The rows of the views that read no calls, by the number of the view.
    rows: BTreeMap<usize, Vec<RecordBatch>>,
    /// The numbers of the views that read calls.
    sharing: Vec<usize>,
}

impl<'a> Asked<'a> {
    /// Chooses the views of the wanted metrics. Those that read no calls are queried one after the other, so that the memory of
    /// one query is released before the next begins.
    ///
    /// # Errors
    /// Returns an error if the run's data cannot be read, or if a user's view has no metric.
    pub(super) async fn of(trace: &'a Trace, wanted: &Wanted) -> Result<Self, AnalyzeError> {
        let views = wanted.views(View::all(trace)?);
        let mut rows = BTreeMap::new();
        let mut sharing = Vec::new();
        for (number, view) in views.iter().enumerate() {
            match view.shares_sweep(trace).await? {
                true => sharing.push(number),
                false => drop(rows.insert(number, view.rows(trace).await?)),
            }
        }
        Ok(Self { views, rows, sharing })
    }

    /// Returns the future of the figures. The views that read calls are parts of `together`.
    ///
    /// # Errors
    /// Returns an error if the run's data cannot be read, or if a user's view has a non-finite value or two rows with the same
    /// key.
    pub(super) fn read<'b>(
        &'b self,
        together: &'b Together,
    ) -> impl Future<Output = Result<Figures, AnalyzeError>> + Send + 'b {
        let calls = together.trace();
        let part = |number: &usize| together.part(self.views[*number].rows(calls));
        let asked: Vec<_> = self.sharing.iter().map(part).collect();
        async move {
            let mut rows = self.rows.clone();
            rows.extend(self.sharing.iter().copied().zip(try_join_all(asked).await?));
            let mut figures = Figures::new();
            for (number, batches) in rows {
                self.views[number].add(&batches, &mut figures)?;
            }
            Ok(figures)
        }
    }
}

/// Reads all figures of a run. Views that read calls share one sweep of the rows.
///
/// # Errors
/// Returns an error if the run's data cannot be read, or if a user's view has no metric, a non-finite value,
/// or two rows with the same key.
pub async fn of(trace: &Trace) -> Result<Figures, AnalyzeError> {
    let asked = Asked::of(trace, &Wanted::default()).await?;
    let together = trace.together();
    asked.read(&together).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_views_of_what_is_wanted_are_read() {
        let trace = Trace::literal().await.unwrap();
        let all = || View::all(&trace).unwrap();
        let names = |wanted: &Wanted| {
            let views = wanted.views(all());
            let mut names: Vec<&str> = views.iter().map(|view| view.query.name.as_str()).collect();
            names.sort_unstable();
            names.join(" ")
        };
        let of = |name: &str, is_whole| names(&Wanted::named([(name.to_owned(), is_whole)]));
        assert_eq!(of("wall_ns", true), "metrics_run");
        assert_eq!(of("calls_ns", true), "metrics_run", "of the whole run, and not of functions");
        assert_eq!(of("calls_ns", false), "metrics_calls metrics_run metrics_strata");
        assert_eq!(of("p99", true), "metrics_calls", "no other view has it");
        assert_eq!(
            of("excess_ns", false),
            "metrics_causes metrics_run",
            "wall_ns tells whether a run measures it"
        );
        assert_eq!(names(&Wanted::default()).split(' ').count(), all().len());
    }

    #[tokio::test]
    async fn views_of_calls_share_a_sweep() {
        let trace = Trace::literal().await.unwrap();
        let mut sharing = Vec::new();
        for view in View::all(&trace).unwrap() {
            if view.shares_sweep(&trace).await.unwrap() {
                sharing.push(view.query.name.clone());
            }
        }
        sharing.sort_unstable();
        let of_calls = "calls causes copies gaps nccl run run_time strata time";
        assert_eq!(sharing.join(" ").replace("metrics_", ""), of_calls);
    }
}
