//! Metrics, as the headers of their queries declare them.
//!
//! ```sql
//! -- measured with: wall_ns
//! -- metrics:
//! --   calls_ns         lower   1ms    ns, 0 if absent
//! --   p99_ns           lower   200ns  ns, from 500 calls
//! --   copy_rate_bytes  higher  0      bytes/s
//! ```
//! A line names a column, whether lower or higher values are better, the difference up to which a change is of
//! no interest, and the unit. `0 if absent` says that a run which measures the metric, but not for this
//! subject, has the value 0 there; else the value is unknown. `from N calls` says that a run with fewer calls
//! has no such value. `measured with` names a metric of another view: a run that has it measures this view's
//! metrics, too, even if the view has no row of it.
//!
//! The name of a metric says nothing about it. One that no header declares has the unit of its column, lower
//! values are better, its floor is 0 and an absent value is unknown; comparisons carry a note that says so.

use std::{cmp::Ordering, collections::BTreeMap, hash, sync::Arc, sync::LazyLock};

use analyze_engine::catalog::Query;
use analyze_run::error::AnalyzeError;
use serde::{Deserialize, Serialize, Serializer};
use trace_schema::{Bytes, Nanos};

use super::quantity::quantity;
use crate::library::LIBRARY;

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Lower values are better.
    #[default]
    Lower,
    /// Higher values are better.
    Higher,
}

/// What is known about a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    /// Name of the metric, which is that of its column.
    pub name: String,
    /// Which values are better.
    pub direction: Direction,
    /// Absolute difference, in the metric's unit, up to which a change is of no interest, whatever its
    /// relative size.
    pub floor: f64,
    /// Unit of the values: `ns`, `bytes`, `bytes/s`, `count`, `ratio`, or any other text; empty if unknown.
    pub unit: String,
    /// True if a missing value means 0 rather than unknown, as for counts and sums.
    pub is_zero_if_absent: bool,
    /// Number of calls that a run needs for the value, as quantiles do; `None` if any number will do.
    pub min_calls: Option<i64>,
    /// Metric whose presence in a run shows that the run measures this one, too.
    pub measured_with: Option<String>,
    /// True if a header declares the metric; else the values above are the defaults.
    pub is_declared: bool,
}

impl Declaration {
    /// Returns whether a value that rests on this number of calls counts; an unknown number is enough.
    pub fn has_enough_calls(&self, calls_count: Option<i64>) -> bool {
        self.min_calls.zip(calls_count).is_none_or(|(least, calls)| calls >= least)
    }
}

/// A metric. Metrics are equal, and ordered, by their names.
#[derive(Clone, Debug)]
pub struct Metric(Arc<Declaration>);

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Metric {}

impl PartialOrd for Metric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Metric {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

impl hash::Hash for Metric {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.name)
    }
}

impl From<Declaration> for Metric {
    fn from(declaration: Declaration) -> Self {
        Self(Arc::new(declaration))
    }
}

/// Metrics of the embedded library, by name. Views that share a metric declare it alike.
static EMBEDDED: LazyLock<BTreeMap<String, Metric>> = LazyLock::new(|| {
    let queries = LIBRARY.queries(None).unwrap_or_default();
    let declared = queries.iter().flat_map(|query| query.metrics.iter().map(move |metric| (query, metric)));
    declared
        .filter_map(|(query, metric)| {
            Some((metric.name.clone(), Metric::declared_in(query, &metric.name).ok()?))
        })
        .collect()
});

impl Metric {
    /// Returns the metric of the embedded library that has this name; if there is none, the defaults.
    pub fn of(name: &str) -> Self {
        let unknown = || Declaration { name: name.to_owned(), ..Declaration::default() }.into();
        EMBEDDED.get(name).cloned().unwrap_or_else(unknown)
    }

    /// Returns the metric that is a column of a query, as the query's header declares it.
    ///
    /// # Errors
    /// Returns an error if the declaration cannot be understood.
    pub fn declared_in(query: &Query, name: &str) -> Result<Self, AnalyzeError> {
        let mut found = Declaration {
            name: name.to_owned(),
            measured_with: query.measured_with.clone(),
            ..Declaration::default()
        };
        let Some(metric) = query.metrics.iter().find(|metric| metric.name == name) else {
            let column = query.columns.iter().find(|column| column.name == name);
            found.unit = column.map(|column| column.unit.clone()).unwrap_or_default();
            return Ok(found.into());
        };
        let wrong = |why: String| AnalyzeError::Query(format!("{}: the metric {name}: {why}", query.path));
        found.is_declared = true;
        found.direction = match metric.direction.as_str() {
            "lower" => Direction::Lower,
            "higher" => Direction::Higher,
            other => return Err(wrong(format!("{other:?} is neither lower nor higher"))),
        };
        found.floor = quantity(&metric.floor)
            .ok_or_else(|| wrong(format!("{:?} is no floor such as 0, 1ms or 1MiB", metric.floor)))?;
        let mut parts = metric.unit.split(',').map(str::trim);
        found.unit = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let calls = part.strip_prefix("from ").and_then(|rest| rest.strip_suffix(" calls"));
            match calls.map(str::parse) {
                Some(Ok(calls)) => found.min_calls = Some(calls),
                None if part == "0 if absent" => found.is_zero_if_absent = true,
                _ => return Err(wrong(format!("{part:?} is neither \"0 if absent\" nor \"from N calls\""))),
            }
        }
        Ok(found.into())
    }

    /// Name of the metric.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What is known about the metric.
    pub fn declaration(&self) -> &Declaration {
        &self.0
    }

    /// Returns whether values of the metric are times.
    pub fn is_time(&self) -> bool {
        self.0.unit == "ns"
    }

    /// Returns whether a gate may name the metric so: by its name, or by its name without the last part, which
    /// is the unit's suffix.
    pub fn is_named(&self, name: &str) -> bool {
        self.name() == name || self.name().rsplit_once('_').is_some_and(|(short, _)| short == name)
    }

    /// Formats a value with its unit.
    pub fn show(&self, value: f64) -> String {
        match self.0.unit.as_str() {
            "ns" => Nanos(value.round() as i64).to_string(),
            "bytes/s" => format!("{}/s", Bytes(value.round() as i64)),
            "bytes" => Bytes(value.round() as i64).to_string(),
            "count" if value.fract() == 0.0 => format!("{value:.0}"),
            "ratio" => format!("{:.1} %", 100.0 * value),
            _ => format!("{value:.1}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::figure::VIEWS;

    #[test]
    fn every_metric_of_the_library_is_declared_once() {
        for query in LIBRARY.queries(None).unwrap().iter().filter(|query| query.name.starts_with(VIEWS)) {
            for column in &query.columns {
                if matches!(column.name.as_str(), "run" | "subject" | "stratum") {
                    continue;
                }
                let metric = Metric::declared_in(query, &column.name).unwrap();
                assert!(metric.0.is_declared, "{}: {}", query.path, column.name);
                assert_eq!(metric.0, Metric::of(&column.name).0, "{}", query.path);
                assert_eq!(metric.0.unit.trim_end_matches("/s"), column.unit, "{}", query.path);
            }
        }
    }

    #[test]
    fn declarations_say_what_a_metric_is() {
        let of = |name: &str| Metric::of(name).0;
        assert_eq!((of("p99_ns").min_calls, of("p99_ns").floor), (Some(500), 200.0));
        assert_eq!(of("phase_p50_ns").min_calls, Some(10));
        assert!(of("leaked_bytes").is_zero_if_absent && !of("leaked_per_epoch_bytes").is_zero_if_absent);
        assert_eq!(of("excess_ns").measured_with.as_deref(), Some("wall_ns"));
        assert_eq!(of("copy_rate_bytes").direction, Direction::Higher);
        assert_eq!(Metric::of("copy_rate_bytes").show(2.0 * 1024.0 * 1024.0), "2.00 MiB/s");
        let unknown = of("p99_steps_ns");
        assert!(!unknown.is_declared && unknown.floor == 0.0 && unknown.min_calls.is_none());
    }
}
