//! Reads the rows of `events` in the order of time, with memory that does not grow with their number.
//!
//! ```text
//! row groups  ├──────── 1 ────────┤              each sorted by ts; they overlap by the longest call
//!                         ├──────── 2 ────────┤
//! decoders       one thread each, ahead of the reader: groups are opened in the order of their first ts
//! reader      one thread: the rows of the open groups, merged by ts
//! ```
//! A file that declares its row groups sorted by `ts`, as those of our writer do, is read like that. Any
//! other source of `events` is sorted by a query that may spill to disk.

pub mod columns;
mod group;
mod merge;
mod ordered;
pub mod plain;
mod rows;
#[cfg(test)]
mod tests;
mod window;

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::SchemaRef;

use columns::KEY_COLUMNS;
pub use columns::TASK_COLUMNS;
pub use rows::{Kind, Names, Rows};

use crate::{error::AnalyzeError, events::Events, run_file::RunFile};

/// Does a small part of some other work if there is any to do now. Returns whether there was.
pub type Helper = Arc<dyn Fn() -> bool + Send + Sync>;

/// Consumes the rows of one run after another, each run in the order of time.
pub trait Consumer: Send {
    /// Returns the table in which strings get their numbers.
    fn names(&mut self) -> &mut Names;

    /// Returns work of the consumer that the reading threads may do while they would otherwise wait.
    fn helper(&self) -> Option<Helper> {
        None
    }

    /// Announces that the rows that follow belong to the run `name`.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Consumer::rows`].
    fn run(&mut self, name: &str) -> Result<(), AnalyzeError>;

    /// Consumes the rows in `range`, none of which is earlier than those consumed before from the same run.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be consumed; this ends the reading.
    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError>;

    /// Announces that there are no more rows.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Consumer::rows`].
    fn finish(&mut self) -> Result<(), AnalyzeError>;
}

/// The source of the rows.
#[derive(Clone)]
pub enum Origin {
    /// Runs as (name, files). All row groups of the files are sorted by `ts`.
    Files(Vec<(String, Vec<PathBuf>)>),
    /// The table `events` of the session.
    Events(Arc<dyn Events>),
}

impl Origin {
    /// Returns the files if there are any and all of them declare to be sorted by `ts`, and else the table.
    pub fn of(files: &[RunFile], events: Arc<dyn Events>) -> Self {
        let sorted = |path: &PathBuf| group::is_sorted(path);
        match !files.is_empty() && files.iter().all(|file| file.paths.iter().all(sorted)) {
            true => Self::Files(files.iter().map(|file| (file.name.clone(), file.paths.clone())).collect()),
            false => Self::Events(events),
        }
    }
}

/// Returns the schema of a file as it is stored.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn schema(path: &Path) -> Result<SchemaRef, AnalyzeError> {
    group::schema(path)
}

/// Checks that the rows of a file are in the order that their row groups declare.
///
/// # Errors
/// Returns an error if they are not, if a row group declares no order, or if the file cannot be decoded.
pub fn check_order(path: &Path) -> Result<(), AnalyzeError> {
    if !group::is_sorted(path) {
        return Err(AnalyzeError::Damaged(format!(
            "{}: not every row group is sorted by ts",
            path.display()
        )));
    }
    for place in group::places(path)? {
        let mut decoder = group::Decoder::open(place, &["ts"])?;
        while decoder.next()?.is_some() {}
    }
    Ok(())
}

/// Passes all rows, with the key columns and the `wanted` ones, to `consumer`, and returns it. The consumer
/// runs on a thread that may block.
///
/// # Errors
/// Returns an error if the data cannot be read or the consumer fails.
pub async fn read<C: Consumer + 'static>(
    origin: Origin,
    wanted: &[&'static str],
    mut consumer: C,
) -> Result<C, AnalyzeError> {
    let columns: Vec<&'static str> = KEY_COLUMNS.iter().chain(wanted).copied().collect();
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        match origin {
            Origin::Events(events) => ordered::read(&runtime, &*events, &columns, &mut consumer)?,
            Origin::Files(runs) => {
                for (name, paths) in &runs {
                    consumer.run(name)?;
                    merge::read(paths, &columns, &mut consumer)?;
                }
            }
        }
        consumer.finish()?;
        Ok(consumer)
    };
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| AnalyzeError::Internal(format!("a reading was cut off: {error}")))?
}
