//! Figures of a run: single numbers, read from the views `metrics_…`.
//!
//! The columns `subject` and `stratum` say what a row is about. Every other numeric column is a metric, named
//! by the column; `calls_count` is also the number of calls (or ranges) on which the row's quantiles rest.
//!
//! Users add metrics of their own as files `metrics_….sql` in `--queries DIR`.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use trace_schema::{Bytes, Nanos};

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
    /// Name of the metric, which ends with its unit (`_ns`, `_bytes`, `_count`, `_ratio`, …).
    pub metric: String,
    /// Function, thread state, phase, … that the figure is about; `None` for the whole run.
    pub subject: Option<String>,
    /// Group within the subject (size class, direction, first call); `None` for the whole subject.
    pub stratum: Option<String>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.subject, &self.stratum) {
            (None, _) => write!(f, "{}", self.metric),
            (Some(subject), None) => write!(f, "{}({subject})", self.metric),
            (Some(subject), Some(stratum)) => write!(f, "{}({subject}; {stratum})", self.metric),
        }
    }
}

/// Parts of names that mark quantile metrics, and the number of calls that a run needs for each: more than a
/// handful of calls must lie beyond a quantile.
const QUANTILES: [(&str, i64); 4] = [("p50_", 10), ("p90_", 50), ("p99_", 500), ("p999_", 5000)];

impl Key {
    /// Creates the key of a metric.
    pub fn of(metric: &str, subject: Option<&str>, stratum: Option<&str>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { metric: metric.to_owned(), subject: owned(subject), stratum: owned(stratum) }
    }

    /// Unit of the metric: the last part of its name.
    pub fn unit(&self) -> &str {
        self.metric.rsplit('_').next().unwrap_or_default()
    }

    /// Number of calls that a run needs for this quantile; `None` if the metric is not a quantile.
    pub fn min_calls(&self) -> Option<i64> {
        QUANTILES.iter().find(|(name, _)| self.metric.contains(name)).map(|(_, calls)| *calls)
    }

    /// Returns whether a missing value means zero rather than unknown: this holds for counts and for sums of
    /// times and bytes.
    pub fn is_sum(&self) -> bool {
        let one_per_call = self.min_calls().is_some() || self.metric.contains("_per_");
        let over_time = self.metric.contains("_mean_") || self.is_better_high();
        matches!(self.unit(), "ns" | "count" | "bytes") && !one_per_call && !over_time
    }

    /// Returns whether higher values are better, which holds for rates.
    pub fn is_better_high(&self) -> bool {
        self.metric.contains("rate_")
    }

    /// Absolute difference, in the metric's unit, up to which a change is of no interest, whatever its
    /// relative size.
    pub fn floor(&self) -> f64 {
        match self.unit() {
            // A quantile concerns a single call; any other time is a sum over a run.
            "ns" if self.min_calls().is_some() => 200.0,
            "ns" => 1e6,
            "bytes" if !self.is_better_high() => 1_048_576.0,
            "count" => 1.0,
            "ratio" => 0.01,
            _ => 0.0,
        }
    }

    /// Formats a value of this metric with its unit.
    pub fn show(&self, value: f64) -> String {
        match self.unit() {
            "ns" => Nanos(value.round() as i64).to_string(),
            "bytes" if self.is_better_high() => format!("{}/s", Bytes(value.round() as i64)),
            "bytes" => Bytes(value.round() as i64).to_string(),
            "count" if value.fract() == 0.0 => format!("{value:.0}"),
            "ratio" => format!("{:.1} %", 100.0 * value),
            _ => format!("{value:.1}"),
        }
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
        let metrics: Vec<&str> =
            names.filter(|name| !matches!(*name, "run" | "subject" | "stratum")).collect();
        if metrics.is_empty() {
            return Err(AnalyzeError::Query(format!("{}: a view of metrics has no number", query.path)));
        }
        for batch in trace.batches(&format!("SELECT * FROM {}", query.name)).await? {
            let text = |name| batch.column_by_name(name).map(|_| strings(&batch, name)).transpose();
            let (subjects, strata) = (text("subject")?, text("stratum")?);
            let counts = batch.column_by_name(COUNT).map(|_| integers(&batch, COUNT)).transpose()?;
            for metric in &metrics {
                let values = floats(&batch, metric)?;
                for row in 0..batch.num_rows() {
                    let Some(value) = values.at(row) else { continue };
                    if !value.is_finite() {
                        let path = &query.path;
                        return Err(AnalyzeError::Query(format!("{path}: a {metric} is {value}")));
                    }
                    let subject = subjects.as_ref().and_then(|subjects| subjects.at(row));
                    let stratum = strata.as_ref().and_then(|strata| strata.at(row));
                    let calls_count = counts.as_ref().and_then(|counts| counts.at(row));
                    let key = Key::of(metric, subject, stratum);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_a_metric_is() {
        let key = |metric: &str| Key::of(metric, Some("f"), None);
        assert_eq!(key("p99_ns").min_calls(), Some(500));
        assert_eq!(key("p999_ns").min_calls(), Some(5000));
        assert_eq!(key("phase_p50_ns").min_calls(), Some(10));
        for sum in ["calls_ns", "calls_count", "copied_bytes", "leaked_bytes"] {
            assert!(key(sum).is_sum() && key(sum).min_calls().is_none(), "{sum}");
        }
        for other in [
            "p50_ns",
            "reserved_mean_bytes",
            "copy_rate_bytes",
            "leaked_per_epoch_bytes",
            "gpu_busy_mean_ratio",
        ] {
            assert!(!key(other).is_sum(), "{other}");
        }
        assert_eq!(Key::of("p50_ns", Some("cudaMemcpy"), Some("h2d")).to_string(), "p50_ns(cudaMemcpy; h2d)");
        assert_eq!(key("copy_rate_bytes").show(2.0 * 1024.0 * 1024.0), "2.00 MiB/s");
    }
}
