//! Names that may have been meant where a name is unknown.

use strsim::normalized_levenshtein;

/// The least similarity of a suggestion, from 0 to 1 (the same name).
const ALIKE: f64 = 0.5;
/// The number of names suggested at most.
const NAMES: usize = 3;

/// Those names that are most like another: first those that it begins, or that begin it.
pub fn alike<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let mut found: Vec<(f64, &str)> = names
        .map(|other| {
            let lower = other.to_lowercase();
            let begins = name.len() > 2 && (lower.starts_with(&name) || name.starts_with(&lower));
            (normalized_levenshtein(&name, &lower) + if begins { ALIKE } else { 0.0 }, other)
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    found.dedup_by_key(|(_, other)| *other);
    found.into_iter().take(NAMES).map(|(_, other)| other).collect()
}

/// Names that may have been meant, to go on with.
pub fn perhaps(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!("; perhaps {}", names.join(", ")) }
}
