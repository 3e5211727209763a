//! What a query of the library answers about a run: which columns have values, and the reason if there are no rows.

use std::collections::BTreeSet;

use analyze::{questions::explain_empty, trace::Trace};
use analyze_engine::catalog::Query;
use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::{cast, sum},
    datatypes::{DataType, Float64Type},
};

/// Parts of the names of columns that hold what could not be attributed.
const OPEN: [&str; 2] = ["unknown", "inconclusive"];

/// What a query answered about the samples of a source.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Whether there were rows.
    pub(super) has_rows: bool,
    /// The columns with a value in at least one row.
    pub(super) filled: BTreeSet<String>,
    /// The columns of what could not be attributed whose sum is not 0.
    pub(super) open: BTreeSet<String>,
    /// The reasons that the program gave for having no rows, of the first sample.
    pub(super) reasons: Vec<String>,
    /// Number of samples in a row that filled no further column.
    idle_count: usize,
}

fn is_open(column: &ArrayRef) -> bool {
    column.data_type().is_numeric()
        && cast(column, &DataType::Float64)
            .is_ok_and(|numbers| sum(numbers.as_primitive::<Float64Type>()).is_some_and(|sum| sum != 0.0))
}

impl Observed {
    /// Runs a query.
    pub(super) async fn of(trace: &Trace, query: &Query) -> Self {
        let frame = trace.query(query, &[]).await.unwrap();
        let plan = frame.logical_plan().clone();
        let mut observed = Self::default();
        for batch in frame.collect().await.unwrap() {
            observed.has_rows |= batch.num_rows() > 0;
            for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                if column.logical_null_count() < column.len() {
                    observed.filled.insert(field.name().clone());
                }
                if OPEN.iter().any(|part| field.name().contains(part)) && is_open(column) {
                    observed.open.insert(field.name().clone());
                }
            }
        }
        if !observed.has_rows {
            let run = format!("{}: ", trace.files()[0].name);
            let notes = explain_empty::notes(trace, &plan).await.unwrap();
            observed.reasons = notes.iter().map(|note| note.replace(&run, "")).collect();
        }
        observed
    }

    /// Adds what the query answered about another sample.
    pub(super) fn add(&mut self, other: Self) {
        let filled_count = self.filled.len();
        self.has_rows |= other.has_rows;
        self.filled.extend(other.filled);
        self.open.extend(other.open);
        self.idle_count = if self.filled.len() > filled_count { 0 } else { self.idle_count + 1 };
    }

    /// Returns whether another sample is not worth its time: every column is filled, or two samples filled no further one.
    pub(super) fn is_complete(&self, query: &Query) -> bool {
        let is_filled = query.columns.iter().all(|column| self.filled.contains(&column.name));
        is_filled || self.has_rows && self.idle_count >= 2
    }
}
