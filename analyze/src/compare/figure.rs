//! Figures of a run: one number each, as the views `metrics_…` have them. Their columns `subject` and `stratum` say what a
//! row is about; every other number is a metric, named by its column. `calls_count` also says how many calls (or ranges)
//! the row's quantiles rest on.
//!
//! A user's own metrics are files `metrics_….sql` of `--queries DIR`.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use trace_schema::{Bytes, Nanos};

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// Views whose names begin so are made of metrics.
pub const VIEWS: &str = "metrics_";

/// How many a row's quantiles rest on.
const COUNT: &str = "calls_count";

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// Its unit ends the name.
    pub metric: String,
    /// Function, state, phase, …; `None`: the whole run.
    pub subject: Option<String>,
    /// Part of the subject; `None`: all of it.
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

/// Quantiles, and how many calls a run must have for one: what lies beyond a quantile must be more than a handful.
const QUANTILES: [(&str, i64); 4] = [("p50_", 10), ("p90_", 50), ("p99_", 500), ("p999_", 5000)];

impl Key {
    /// The same of another metric.
    pub fn of(metric: &str, subject: Option<&str>, stratum: Option<&str>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { metric: metric.to_owned(), subject: owned(subject), stratum: owned(stratum) }
    }

    /// The unit that ends its name.
    pub fn unit(&self) -> &str {
        self.metric.rsplit('_').next().unwrap_or_default()
    }

    /// Calls that a run must have for it; `None`: it is no quantile.
    pub fn min_calls(&self) -> Option<i64> {
        QUANTILES.iter().find(|(name, _)| self.metric.contains(name)).map(|(_, calls)| *calls)
    }

    /// Where nothing of the kind happened it is zero, not unknown: counts, and sums of times and bytes.
    pub fn is_sum(&self) -> bool {
        let one_per_call = self.min_calls().is_some() || self.metric.contains("_per_");
        let over_time = self.metric.contains("_mean_") || self.is_better_high();
        matches!(self.unit(), "ns" | "count" | "bytes") && !one_per_call && !over_time
    }

    /// More of it is better: rates.
    pub fn is_better_high(&self) -> bool {
        self.metric.contains("rate_")
    }

    /// Differences up to this are of no interest, whatever their share.
    pub fn floor(&self) -> f64 {
        match self.unit() {
            // One call, or a sum over a run.
            "ns" if self.min_calls().is_some() => 200.0,
            "ns" => 1e6,
            "bytes" if !self.is_better_high() => 1_048_576.0,
            "count" => 1.0,
            "ratio" => 0.01,
            _ => 0.0,
        }
    }

    /// A value of it, for reading.
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

/// One number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub value: f64,
    /// What a quantile rests on.
    pub calls_count: Option<i64>,
}

/// All of a run.
pub type Figures = BTreeMap<Key, Figure>;

/// Asks every view of metrics, one after the other: what one takes of memory is given back before the next.
///
/// # Errors
/// If the run's data cannot be read, or a user's view has no number or one that is none.
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
