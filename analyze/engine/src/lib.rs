//! The SQL engine: DataFusion with the rules, functions and views that traces need.
//!
//! ```text
//! files of runs ─► run_table (order, row groups) ─► events ─► planner rules, interval join ─► session ─► answers
//! queries/*.sql ─► catalog (headers) ─► lazy_views ┘                    functions ┘
//! ```
//! The engine knows what a run's file is, and nothing of verdicts: tables that another crate derives are registered with it.

pub mod catalog;
mod checked_scan;
pub mod derived_table;
pub mod diagnostics;
pub mod error;
pub mod events;
pub mod functions;
pub mod lazy_views;
pub mod planner;
pub mod rows;
pub mod run_table;
pub mod scan_progress;
pub mod session;
mod spill_pool;
mod stored_reader;
