//! The list of the tables, and their registration in a session.

use std::sync::Arc;

use analyze_engine::{derived_table, error::query_error, session::Session};
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use analyze_verdict::derived::Source;
use trace_schema::{Class, Kind};

use super::{
    calls, chain_links, critical_path, data_quality,
    def::{FactDef, TableDef},
    facts, launch_gaps, leaks, mark_samples, memory, run_time, slow_calls, steps, sync_overlap,
};

/// Every table of what files say about themselves.
pub const FACTS: &[FactDef] = &[
    facts::lost::TABLE,
    facts::ops::TABLE,
    facts::processes::TABLE,
    facts::runs::TABLE,
    facts::threads::TABLE,
];

/// Every derived table.
pub const TABLES: &[TableDef] = &[
    calls::TABLE,
    slow_calls::TABLE,
    chain_links::TABLE,
    launch_gaps::TABLE,
    mark_samples::TABLE,
    critical_path::TABLE,
    run_time::TABLE,
    steps::TABLE,
    sync_overlap::TABLE,
    data_quality::TABLE,
    leaks::allocators::TABLE,
    leaks::sites::TABLE,
    leaks::epochs::TABLE,
    memory::blocks::TABLE,
    memory::segments::TABLE,
    memory::curve::TABLE,
    memory::faults::TABLE,
    memory::pools::TABLE,
    memory::requests::TABLE,
    memory::releases::TABLE,
    memory::ooms::TABLE,
    memory::ledger::TABLE,
    memory::driver::TABLE,
    memory::pauses::TABLE,
];

/// The tables that are made of calls, so that their scans may share a sweep.
const OF_CALLS: [&str; 8] = [
    calls::TABLE.name,
    slow_calls::TABLE.name,
    chain_links::TABLE.name,
    launch_gaps::TABLE.name,
    critical_path::TABLE.name,
    run_time::TABLE.name,
    steps::TABLE.name,
    sync_overlap::TABLE.name,
];

/// Returns whether a query that scans these tables, one for every scan, may share a sweep with others: it scans one table of
/// calls and no other derived table, for which that scan might have to wait.
pub fn shares_sweep(scanned: &[String]) -> bool {
    let mut derived = scanned.iter().filter(|name| kinds_of(name).is_some());
    derived.next().is_some_and(|name| OF_CALLS.contains(&name.as_str())) && derived.next().is_none()
}

/// Returns the kinds of events without which a derived table has no rows; `None`: there is no such table.
pub fn kinds_of(table: &str) -> Option<&'static [Kind]> {
    TABLES.iter().find(|def| def.name == table).map(|def| def.needs)
}

/// Returns the class of calls without which a derived table has no rows; `None`: its rows do not depend on one class.
pub fn class_of(table: &str) -> Option<Class> {
    match table {
        name if name == launch_gaps::TABLE.name => Some(Class::Launch),
        // Copies to the host are waits, too, but a program that makes them synchronizes.
        name if name == sync_overlap::TABLE.name => Some(Class::Sync),
        _ => None,
    }
}

/// Registers every table. `immutable`: `events` does not change, so that calls are classified once.
///
/// # Errors
/// Returns an error if two tables have one name, which is an internal error.
pub fn register(session: &Session, files: &[RunFile], immutable: bool) -> Result<Arc<Source>, AnalyzeError> {
    for FactDef { name, rows } in FACTS {
        session.context().register_batch(*name, rows(files)?).map_err(query_error)?;
    }
    let source = Arc::new(Source::new(session.events(), files, immutable));
    derived_table::register(session.context(), &source, TABLES)?;
    Ok(source)
}
