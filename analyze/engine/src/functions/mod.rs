//! Functions that DataFusion lacks, one a file, and four of its own with other accumulators: `count`, `median`, `percentile_cont`
//! and `sum`.

mod count;
mod demangle;
mod document;
mod fmt;
mod histogram;
mod interval_set;
mod median;
pub(crate) mod percentile_cont;
pub(crate) mod quantiles;
pub mod reference;
mod sum;
mod time_bucket;

use datafusion::{
    logical_expr::{AggregateUDF, ScalarUDF},
    prelude::SessionContext,
};

/// Returns the functions of values.
fn scalars() -> Vec<ScalarUDF> {
    let mut functions = vec![demangle::function(), time_bucket::function()];
    functions.extend(fmt::functions());
    functions.extend(interval_set::functions());
    functions
}

/// Returns the functions of groups.
fn aggregates() -> Vec<AggregateUDF> {
    vec![histogram::function(), interval_set::aggregate()]
}

/// Registers all of them, a `count` that is quick with few groups, a `median` and a `percentile_cont` in bounded memory, and a
/// `sum` of whole numbers that does not wrap around.
pub fn register(context: &SessionContext) {
    for function in scalars() {
        context.register_udf(function);
    }
    for function in aggregates() {
        context.register_udaf(function);
    }
    context.register_udaf(count::function());
    context.register_udaf(median::function());
    context.register_udaf(percentile_cont::function());
    context.register_udaf(sum::function());
}
