//! What every function says of itself, for `\\df` and for queries/FUNCTIONS.md.

use datafusion::logical_expr::Documentation;

/// One function.
pub struct Function {
    /// Name in SQL.
    pub name: String,
    /// Description, syntax and arguments.
    pub documentation: Documentation,
}

/// All of them, by section and name.
pub fn functions() -> Vec<Function> {
    let scalars = super::scalars();
    let aggregates = super::aggregates();
    let scalars = scalars.iter().map(|function| (function.name(), function.documentation()));
    let aggregates = aggregates.iter().map(|function| (function.name(), function.documentation()));
    let documented = scalars.chain(aggregates).filter_map(|(name, documentation)| {
        Some(Function { name: name.to_owned(), documentation: documentation?.clone() })
    });
    let mut functions: Vec<Function> = documented.collect();
    functions.sort_by(|a, b| {
        let key = |function: &Function| (function.documentation.doc_section.label, function.name.clone());
        key(a).cmp(&key(b))
    });
    functions
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_function_is_documented() {
        let functions = super::super::scalars().len() + super::super::aggregates().len();
        assert_eq!(super::functions().len(), functions);
    }
}
