//! Writes the rows of a run: first into a recording that survives a kill, then into the Parquet file.
//!
//! While recording, rows are appended to `<run>.recording`, frames of Arrow IPC: it has no footer, so
//! whatever was flushed before a kill or a full disk can be read back ([`recover`]). [`Recorder::finish`]
//! turns it into the Parquet file: large row groups, each sorted by `ts`.
//!
//! ```text
//! push ─► builders ─► batch ─► run.parquet.recording ─► sort by ts ─► a file without a name ─► run.parquet
//!                     (flush)                           (per row group)                (link)
//! ```
//!
//! [`NewFile`] is how every file comes to its name, also those that are no runs.

mod copy;
mod error;
mod frame;
mod ipc_buffer;
mod leftover;
mod merge;
mod new_file;
mod owner;
mod parquet_file;
mod parts;
mod recording;
mod rows;
mod temporary;
mod times;

pub use copy::write;
pub use error::WriteError;
pub use frame::RECORDING_START;
pub use ipc_buffer::buffer_bytes;
pub use new_file::{Access, NewFile, check_run};
pub use owner::sudo_caller;
pub use parts::{Parts, part_path, parts_of};
pub use recording::{Finished, Recorder, recover};
pub use rows::{RowWriter, Rows};
