//! Sets of time in SQL: `interval_union` makes one of a group's spans, scalar functions compute with them.
//!
//! A set is a list of `{ts, dur}`, sorted, whose intervals `[ts, ts + dur)` neither overlap nor touch. That a set is a
//! value, not a table function's argument, lets it be made per group (of a run, a thread, a device), which is what spans
//! are compared within; table functions of DataFusion take literals only. A null `dur` is a span that was still open: it
//! has no end on record, and so goes on after every other time.

mod algebra;
mod list;
mod operations;
mod union;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

/// Functions on sets.
pub(super) fn functions() -> Vec<ScalarUDF> {
    operations::functions()
}

/// What makes a set of a group's spans.
pub(super) fn aggregate() -> AggregateUDF {
    union::function()
}
