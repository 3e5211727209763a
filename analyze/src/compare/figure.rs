//! Figures of a run: single numbers, read from the views `metrics_…`.
//!
//! The columns `subject` and `stratum` say what a row is about. Every other numeric column is a metric, named
//! by the column; `calls_count` is also the number of calls (or ranges) on which the row's quantiles rest.
//!
//! What a metric means (which values are better, its floor, its unit) is declared in the header of its query: see
//! [`super::metric`]. Users add metrics of their own as files `metrics_….sql` in `--queries DIR`.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::metric::Metric;
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// Prefix of the names of views that consist of metrics.
pub const VIEWS: &str = "metrics_";

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

/// Reads the figures of a run. The metrics views are queried one after the other, so that the memory of one
/// query is released before the next begins.
///
/// # Errors
/// Returns an error if the run's data cannot be read, or if a user's view has no metric, a non-finite value,
/// or two rows with the same key.
pub async fn of(trace: &Trace) -> Result<Figures, AnalyzeError> {
    let mut figures = Figures::new();
    for query in trace.queries() {
        if !query.name.starts_with(VIEWS) || !query.params.is_empty() {
            continue;
        }
        let names = query.columns.iter().map(|column| column.name.as_str());
        let metrics: Vec<Metric> = names
            .filter(|name| !matches!(*name, "run" | "subject" | "stratum"))
            .map(|name| Metric::declared_in(query, name))
            .collect::<Result<_, _>>()?;
        if metrics.is_empty() {
            return Err(AnalyzeError::Query(format!("{}: a view of metrics has no number", query.path)));
        }
        for batch in trace.batches(&format!("SELECT * FROM {}", query.name)).await? {
            let text = |name| batch.column_by_name(name).map(|_| strings(&batch, name)).transpose();
            let (subjects, strata) = (text("subject")?, text("stratum")?);
            let counts = batch.column_by_name(COUNT).map(|_| integers(&batch, COUNT)).transpose()?;
            for metric in &metrics {
                let values = floats(&batch, metric.name())?;
                for row in 0..batch.num_rows() {
                    let Some(value) = values.at(row) else { continue };
                    if !value.is_finite() {
                        let path = &query.path;
                        return Err(AnalyzeError::Query(format!("{path}: a {} is {value}", metric.name())));
                    }
                    let subject = subjects.as_ref().and_then(|subjects| subjects.at(row));
                    let stratum = strata.as_ref().and_then(|strata| strata.at(row));
                    let calls_count = counts.as_ref().and_then(|counts| counts.at(row));
                    let key = Key::with(metric.clone(), subject, stratum);
                    if figures.insert(key.clone(), Figure { value, calls_count }).is_some() {
                        let path = &query.path;
                        return Err(AnalyzeError::Query(format!("{path}: {key} is there twice")));
                    }
                }
            }
        }
    }
    Ok(figures)
}
