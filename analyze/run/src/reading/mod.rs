//! The rows of `events` in the order of time, with memory that does not grow with them.
//!
//! ```text
//! row groups  ├──────── 1 ────────┤              each sorted by ts; they overlap by the longest call
//!                         ├──────── 2 ────────┤
//! decoders       one thread each, ahead of the reader: groups are opened in the order of their first ts
//! reader      one thread: the rows of the open groups, merged by ts
//! ```
//! A file that declares its row groups sorted by `ts`, as those of our writer do, is read like that. Any other source of
//! `events` is sorted by a query that may spill to disk.

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

/// Does a little of some other work, if there is any to do now; whether there was.
pub type Helper = Arc<dyn Fn() -> bool + Send + Sync>;

/// Takes rows in the order of time; of one run after the other.
pub trait Consumer: Send {
    /// Where strings get their numbers.
    fn names(&mut self) -> &mut Names;

    /// Work of its own that those who read may do while they wait.
    fn helper(&self) -> Option<Helper> {
        None
    }

    /// The rows after these calls are of this run.
    ///
    /// # Errors
    /// As [`Consumer::rows`].
    fn run(&mut self, name: &str) -> Result<(), AnalyzeError>;

    /// Rows none of which is earlier than those before.
    ///
    /// # Errors
    /// If they cannot be taken: ends the reading.
    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError>;

    /// There are no more.
    ///
    /// # Errors
    /// As [`Consumer::rows`].
    fn finish(&mut self) -> Result<(), AnalyzeError>;
}

/// Where the rows are.
#[derive(Clone)]
pub enum Origin {
    /// Runs by name, each with its files, all of which are sorted within their row groups.
    Files(Vec<(String, Vec<PathBuf>)>),
    /// The table `events` of a session.
    Events(Arc<dyn Events>),
}

impl Origin {
    /// Returns the files if all of them can be read in order, and else the table.
    pub fn of(files: &[RunFile], events: Arc<dyn Events>) -> Self {
        let sorted = |path: &PathBuf| group::is_sorted(path);
        match !files.is_empty() && files.iter().all(|file| file.paths.iter().all(sorted)) {
            true => Self::Files(files.iter().map(|file| (file.name.clone(), file.paths.clone())).collect()),
            false => Self::Events(events),
        }
    }
}

/// Columns of a file, as it has them.
///
/// # Errors
/// If it cannot be read.
pub fn schema(path: &Path) -> Result<SchemaRef, AnalyzeError> {
    group::schema(path)
}

/// Checks that rows are in the order that their row group declares.
///
/// # Errors
/// If they are not, or cannot be decoded.
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

/// Hands all rows to `consumer`, with the `wanted` columns, and gives it back. It works on a thread that may block.
///
/// # Errors
/// If the data cannot be read, or the consumer fails.
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
