//! From the rows of a run to its calls, why they were slow, and the chains behind them.
//!
//! ```text
//! rows ─► sweep (schedule, time_split) ─► measure (groups, walk) ─► classify (causes, copy_cost) ─► culprits
//!              └─► calls, marked ranges, gaps: any `call::Sink`
//! ```
//! [`derived::Source`] runs all of it over the files of some runs. Every call's time is divided exactly: the parts sum to the
//! call, and the causes of a slow one to its excess.

pub mod blocker;
pub mod call;
pub mod causes;
pub mod classify;
pub mod copy_cost;
pub mod culprits;
pub mod derived;
pub mod fault;
pub mod groups;
#[cfg(test)]
mod literal_events;
pub mod measure;
pub mod measure_pipeline;
pub mod missing;
pub mod off_cpu_totals;
pub mod params;
pub mod partial;
pub mod root_cause;
pub mod sample;
pub mod schedule;
pub mod shared_sweep;
mod sinks;
pub mod sweep;
mod sweep_input;
pub mod thread_state;
pub mod time_split;
pub mod walk;
