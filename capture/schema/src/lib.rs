//! The only home of Inquest's trace format: the columns of the `events` table, the vocabulary of its
//! `kind` and `op` columns, the run's metadata, units, and the version that ties them together.
//!
//! A run is one Parquet file with one wide, sparse table. Times are nanoseconds on CLOCK_MONOTONIC,
//! intervals are half-open `[ts, ts + dur)`, and a span that was still open when recording ended has
//! no `dur`: it is *censored*, not zero. This crate does no I/O.

mod column;
mod direction;
mod error_code;
mod harmless;
mod kind;
mod op;
mod redact;
mod run;
mod stored;
mod text;
mod times;
mod unit;

pub use column::{COLUMNS, Column, ColumnType, Row, TIME_LIMIT_NS, arrow_schema};
pub use direction::Direction;
pub use error_code::ErrorCode;
pub use harmless::harmless;
pub use kind::Kind;
pub use op::{Class, Layer, Op};
pub use redact::{Redaction, Redactor};
pub use run::{
    Alignment, AttachedProbe, Clock, FORMAT_VERSION, Gpu, Host, Library, Lost, META_RUN, META_VERSION,
    ProcessInfo, Run, ScheduleSource, Thread,
};
pub use stored::Stored;
pub use text::Text;
pub use times::{metadata_fault, time_fault};
pub use unit::{Bytes, Counted, Nanos, UnitError, parse_share};
