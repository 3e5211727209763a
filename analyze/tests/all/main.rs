//! Integration tests: the real program on recorded runs and on bad input, and its library against what recorded it.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod align;
mod allocator_recorded;
mod causes;
mod cli;
mod compare;
mod counts;
mod crashes;
mod diagnostics;
mod exports;
mod failures;
mod faults;
mod functions;
mod hostile_files;
mod imports;
mod imports_hostile;
mod join;
mod leaks;
mod ledger_recorded;
mod library;
mod lies;
mod mcp;
mod memory;
mod memory_findings;
mod outputs;
mod quantiles;
mod report;
mod rewrite;
mod sched;
mod slt;
mod snapshots;
mod sources;
mod sql;
mod support;
mod together;
mod what_if;
