//! Texts that people write for `analyze`, and names that a trace has.

use analyze::{compare::gate::Rules, library::LIBRARY};
use analyze_engine::catalog::Library;
use analyze_memory::what_if::requests as lists;
use analyze_run::symbols as names;

use super::check::blames_the_input;
use crate::{scratch, target::Outcome};

/// A gate file.
pub fn gates(bytes: &[u8]) -> Outcome {
    let path = scratch::write("gates.toml", bytes);
    let rules = Rules::new(&[path.display().to_string()], None, None);
    Outcome::of(rules.inspect_err(blames_the_input).is_ok())
}

/// The header of a query file, which may need what there is before any view.
pub fn queries(bytes: &[u8]) -> Outcome {
    let folder = scratch::path("queries");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("own.sql"), bytes).expect("a file");
    let own = Library { files: &[], tables: LIBRARY.tables };
    let found = own.queries(Some(&folder)).inspect_err(blames_the_input);
    for query in found.iter().flatten() {
        assert!(query.sql.trim_end().ends_with(query.select()), "{query:?}");
        assert!(!query.name.is_empty() && !query.package().is_empty(), "{query:?}");
    }
    Outcome::of(found.is_ok())
}

/// A list of requests for `analyze what-if`.
pub fn requests(bytes: &[u8]) -> Outcome {
    let path = scratch::write("requests.csv", bytes);
    Outcome::of(lists::read(&path).inspect_err(blames_the_input).is_ok())
}

/// Symbols and call stacks, one a line.
pub fn symbols(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    let readable = text.lines().filter(|line| names::demangle(line) != **line);
    let readable_count = readable.count();
    let stacks = text.lines().map(|line| names::innermost(line, 8)).filter(|stack| !stack.is_empty());
    Outcome::of(readable_count + stacks.count() > 0)
}
