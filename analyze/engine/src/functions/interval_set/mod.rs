//! Sets of time in SQL: the aggregate `interval_union` makes a set from a group's spans, and scalar functions
//! compute with sets.
//!
//! A set is a sorted list of `{ts, dur}` whose intervals `[ts, ts + dur)` neither overlap nor touch. Because
//! a set is a value and not the argument of a table function, one can be made per group (a run, a thread, a
//! device), within which spans are compared; DataFusion's table functions accept only literals. A null `dur`
//! is a span that was still open: its end is not on record, so it continues after every other time.

mod algebra;
mod list;
mod operations;
mod union;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

/// Returns the scalar functions on sets.
pub(super) fn functions() -> Vec<ScalarUDF> {
    operations::functions()
}

/// Returns the aggregate that makes a set from a group's spans.
pub(super) fn aggregate() -> AggregateUDF {
    union::function()
}
