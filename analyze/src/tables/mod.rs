//! Tables whose rows Rust derives from `events`, for SQL: one file a table, one list of them ([`TABLES`]).

pub mod calls;
pub mod critical_path;
mod data_quality;
mod facts;
mod launch_gaps;
mod leaks;
mod memory;
pub mod slow_calls;

use std::sync::Arc;

use analyze_engine::{derived_table, session::Session};
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use analyze_verdict::derived::Source;
use trace_schema::Kind;

pub use facts::FACTS;

/// A table that is derived from the events of some runs.
pub type TableDef = derived_table::TableDef<Source>;

/// Every derived table.
pub const TABLES: &[TableDef] = &[
    calls::TABLE,
    slow_calls::CALLS,
    slow_calls::LINKS,
    launch_gaps::TABLE,
    critical_path::TABLE,
    data_quality::TABLE,
    leaks::LEAKS,
    leaks::SITES,
    leaks::EPOCHS,
    memory::BLOCKS,
    memory::SEGMENTS,
    memory::CURVE,
    memory::FAULTS,
    memory::history::POOLS,
    memory::history::REQUESTS,
    memory::history::RELEASES,
    memory::history::OOMS,
    memory::device::LEDGER,
    memory::device::DRIVER,
    memory::device::PAUSES,
];

/// Returns the kinds of events without which a derived table has no rows; `None`: there is no such table.
pub fn kinds_of(table: &str) -> Option<&'static [Kind]> {
    TABLES.iter().find(|def| def.name == table).map(|def| def.needs)
}

/// Registers the derived tables, and those of what the files say about themselves. `immutable`: `events` does not change, so
/// that calls are classified once.
///
/// # Errors
/// Returns an error if two tables have one name, which is an internal error.
pub fn register(session: &Session, files: &[RunFile], immutable: bool) -> Result<Arc<Source>, AnalyzeError> {
    facts::register(session.context(), files)?;
    let source = Arc::new(Source::new(session.events(), files, immutable));
    derived_table::register(session.context(), &source, TABLES)?;
    Ok(source)
}
