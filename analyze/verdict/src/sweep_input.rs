//! The rows of some runs as every sweep reads them, and what they cover.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{call::Sink, sweep::Sweep};
use analyze_run::{
    coverage::{Coverage, Watched},
    error::AnalyzeError,
    events::Events,
    reading::{self, Names, Origin},
    run_file::RunFile,
};

/// What the coverage of the runs is made from.
pub(super) struct Covering<'a> {
    files: &'a [RunFile],
    watched: &'a Watched,
}

impl Covering<'_> {
    /// Returns the coverage of the runs; runs and functions are numbered in `names`.
    pub(super) fn coverage(&self, names: &mut Names) -> Coverage {
        Coverage::of_files(self.files, self.watched, names)
    }
}

/// See the module documentation.
pub(super) struct Input {
    // The reference is weak because the session owns the tables.
    pub(super) events: Arc<dyn Events>,
    pub(super) files: Vec<RunFile>,
    /// The processes of which the scheduler has rows; `None` if `events` may change.
    watched: Option<OnceCell<Watched>>,
}

impl Input {
    /// Makes the input of sweeps over the `events` of a session. If `immutable`, the events do not change.
    pub(super) fn new(events: Arc<dyn Events>, files: &[RunFile], immutable: bool) -> Self {
        Self { events, files: files.to_vec(), watched: immutable.then(OnceCell::new) }
    }

    async fn watched(&self) -> Result<Watched, AnalyzeError> {
        match &self.watched {
            Some(cell) => cell.get_or_try_init(|| Watched::read(&*self.events, &self.files)).await.cloned(),
            None => Watched::read(&*self.events, &self.files).await,
        }
    }

    /// Reads all rows in order of time, and passes the calls in them to a sink. `wanted` are the columns to read in addition to
    /// the key columns. If `hands_extra`, each call has its `Extra` columns.
    ///
    /// # Errors
    /// Returns an error if `events` cannot be read or the sink fails.
    pub(super) async fn sweep<S: Sink>(
        &self,
        wanted: &[&'static str],
        hands_extra: bool,
        sink: impl FnOnce(&mut Names, &Covering<'_>) -> S,
    ) -> Result<Sweep<S>, AnalyzeError> {
        let watched = self.watched().await?;
        let origin = Origin::of(&self.files, Arc::clone(&self.events));
        let covering = Covering { files: &self.files, watched: &watched };
        let sweep = Sweep::new(|names: &mut Names| sink(names, &covering), hands_extra);
        reading::read(origin, wanted, sweep).await
    }
}
