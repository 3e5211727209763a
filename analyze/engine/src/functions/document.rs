//! A short way to build the [`Documentation`] of a function.

use datafusion::logical_expr::{DocSection, Documentation};

/// The section of functions that format values or compute one number from another.
pub(super) const VALUES: &str = "Values";
/// The section of functions on sets of time.
pub(super) const INTERVALS: &str = "Sets of time";
/// The section of functions that describe distributions.
pub(super) const DISTRIBUTIONS: &str = "Distributions";

/// Builds the documentation of a function. `example` is one SELECT that needs no table; `arguments` are
/// (name, meaning).
pub(super) fn document(
    section: &'static str,
    description: &str,
    syntax: &str,
    example: &str,
    arguments: &[(&str, &str)],
) -> Documentation {
    let section = DocSection { include: true, label: section, description: None };
    let builder = Documentation::builder(section, description, syntax).with_sql_example(example);
    let documented =
        arguments.iter().fold(builder, |builder, (name, meaning)| builder.with_argument(*name, *meaning));
    documented.build()
}
