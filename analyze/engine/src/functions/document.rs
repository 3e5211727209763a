//! How functions document themselves: [`Documentation`] in short.

use datafusion::logical_expr::{DocSection, Documentation};

/// What makes text, or one number of another.
pub(super) const VALUES: &str = "Values";
/// What computes with sets of time.
pub(super) const INTERVALS: &str = "Sets of time";
/// What tells how values are spread.
pub(super) const DISTRIBUTIONS: &str = "Distributions";

/// The documentation of a function. `example`: one SELECT, which needs no table; `arguments`: each with its meaning.
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
