//! The library of queries: every file of `queries/`, embedded by the build script.

use analyze_engine::catalog::Library;

use crate::tables::{FACTS, TABLES};

/// The number of tables that a query may need.
const TABLES_COUNT: usize = 1 + FACTS.len() + TABLES.len();

/// The tables that a query may need: the events, what the files say about themselves, and what Rust derives.
const NAMES: [&str; TABLES_COUNT] = {
    let mut names = ["events"; TABLES_COUNT];
    let mut at = 0;
    while at < FACTS.len() {
        names[1 + at] = FACTS[at].name;
        at += 1;
    }
    at = 0;
    while at < TABLES.len() {
        names[1 + FACTS.len() + at] = TABLES[at].name;
        at += 1;
    }
    names
};

/// The library.
pub const LIBRARY: Library<'static> =
    Library { files: include!(concat!(env!("OUT_DIR"), "/queries.rs")), tables: &NAMES };
