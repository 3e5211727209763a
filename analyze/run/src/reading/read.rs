//! Chooses how the rows of some runs are read, and reads them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::SchemaRef;

use super::{columns::KEY_COLUMNS, consumer::Consumer, group, merge, ordered};
use crate::{error::AnalyzeError, events::Events, panics, run_file::RunFile};

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

/// Passes all rows, with the key columns and the `wanted` ones, to `consumer` until it is done, and returns it. The
/// consumer runs on a thread that may block.
///
/// # Errors
/// Returns an error if the data cannot be read or the consumer fails.
pub async fn read<C: Consumer + 'static>(
    origin: Origin,
    wanted: &[&'static str],
    consumer: C,
) -> Result<C, AnalyzeError> {
    read_columns(origin, KEY_COLUMNS.iter().chain(wanted).copied().collect(), consumer).await
}

/// Passes all rows to `consumer` as [`read`] does, with exactly these columns, of which `ts` and `kind` are two.
///
/// # Errors
/// Returns an error in the same cases as [`read`].
pub async fn read_columns<C: Consumer + 'static>(
    origin: Origin,
    columns: Vec<&'static str>,
    mut consumer: C,
) -> Result<C, AnalyzeError> {
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        match origin {
            Origin::Events(events) => ordered::read(&runtime, &*events, &columns, &mut consumer)?,
            Origin::Files(runs) => {
                for (name, paths) in &runs {
                    if consumer.is_done() {
                        break;
                    }
                    consumer.run(name)?;
                    merge::read(paths, &columns, &mut consumer)?;
                }
            }
        }
        consumer.finish()?;
        Ok(consumer)
    };
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(panics::joined)?
}
