//! Data that Rust code derives from `events`: classified calls and the schedule behind them, computed once
//! per session; and the rows of tables (`tables`), computed by a new reading each time that a table is
//! scanned.

use std::{collections::HashSet, fmt, sync::Arc};

use tokio::sync::OnceCell;
use trace_schema::{Class, Op, Run};

use crate::{
    call::Sink,
    classify::{self, Judgement},
    fault::Faults,
    groups::Kind,
    measure::Measure,
    measure_pipeline::Measuring,
    off_cpu_totals::Totals,
    params::Params,
    schedule::Schedule,
    sweep::Sweep,
};
use analyze_run::{
    coverage::{Coverage, Watched},
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
    reading::{self, Names, Origin, TASK_COLUMNS},
    run_file::RunFile,
};

/// The verdicts on all calls, and the data that they are based on.
#[derive(Debug)]
pub struct Derived {
    /// The states of every thread.
    pub schedule: Schedule,
    /// Contradictions in the input, by run and kind.
    pub faults: Faults,
    /// Metadata of the runs, by run name.
    pub runs: Vec<(String, Run)>,
    /// Names of the runs' own threads: run and thread ID to the number of the name in [`Names`].
    pub thread_names: HashMap<(u32, u32), u32>,
    /// The verdict on every call and function.
    pub judgement: Judgement,
    /// What the top-level calls of each run waited for.
    pub totals: HashMap<u32, Totals>,
    /// Runs with off-CPU time for which the source records no reason.
    pub with_unknown: HashSet<u32>,
    /// Runs in which the first launch of a kernel was seen.
    pub with_first: HashSet<u32>,
}

impl Derived {
    /// Returns the metadata of a run by the run's number.
    pub fn run(&self, number: u32) -> Option<&Run> {
        let name = self.schedule.names.name(number);
        self.runs.iter().find(|(of, _)| of == name).map(|(_, run)| run)
    }
}

/// Computes derived data from the `events` of a session.
pub struct Source {
    // The reference is weak because the session owns the tables.
    events: Arc<dyn Events>,
    files: Vec<RunFile>,
    /// The data for the default parameters, and the processes of which the scheduler has rows; `None` if `events` may
    /// change.
    cell: Option<(OnceCell<Arc<Derived>>, OnceCell<Watched>)>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Source {
    /// Makes a source over the `events` of a session. If `immutable`, the events do not change, and calls are
    /// classified only once.
    pub fn new(events: Arc<dyn Events>, files: &[RunFile], immutable: bool) -> Self {
        Self { events, files: files.to_vec(), cell: immutable.then(Default::default) }
    }

    /// Returns the verdicts for `params`. Those for the default parameters are kept if the events are
    /// immutable.
    pub async fn get(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        match &self.cell {
            Some((cell, _)) if params == Params::default() => {
                cell.get_or_try_init(|| self.derive(params)).await.cloned()
            }
            _ => self.derive(params).await,
        }
    }

    /// Returns the table `events` of the session.
    pub fn events(&self) -> &Arc<dyn Events> {
        &self.events
    }

    /// Returns the files of the runs.
    pub fn files(&self) -> &[RunFile] {
        &self.files
    }

    /// Returns the metadata of the runs, by run name.
    fn runs(&self) -> Vec<(String, Run)> {
        self.files.iter().map(|file| (file.name.clone(), file.run.clone())).collect()
    }

    /// Returns the names of the runs' threads, by run and thread ID; runs and names are numbered in `names`.
    pub fn thread_names(&self, names: &mut Names) -> HashMap<(u32, u32), u32> {
        let mut found = HashMap::default();
        for file in &self.files {
            let run = names.number(&file.name);
            found.extend(
                file.run.threads.iter().map(|thread| ((run, thread.tid), names.number(&thread.comm))),
            );
        }
        found
    }

    async fn watched(&self) -> Result<Watched, AnalyzeError> {
        match &self.cell {
            Some((_, cell)) => {
                cell.get_or_try_init(|| Watched::read(&*self.events, &self.files)).await.cloned()
            }
            None => Watched::read(&*self.events, &self.files).await,
        }
    }

    /// Reads all rows in order of time, and passes the calls in them to a sink, which is made with the coverage of the
    /// runs: no figure may be made without asking it. `wanted` are the columns to read in addition to the key columns. If
    /// `hands_extra`, each call has its `Extra` columns.
    ///
    /// # Errors
    /// Returns an error if `events` cannot be read or the sink fails.
    pub async fn sweep<S: Sink + 'static>(
        &self,
        wanted: &[&'static str],
        hands_extra: bool,
        sink: impl FnOnce(&mut Names, Coverage) -> S,
    ) -> Result<Sweep<S>, AnalyzeError> {
        let watched = self.watched().await?;
        let origin = Origin::of(&self.files, Arc::clone(&self.events));
        let covered = |names: &mut Names| {
            let coverage = Coverage::of_files(&self.files, &watched, names);
            sink(names, coverage)
        };
        let sweep = Sweep::new(covered, hands_extra);
        reading::read(origin, wanted, sweep).await
    }

    /// Classifies all calls. If a call that was not kept as a candidate turns out to be slow, it reads once
    /// more with the limits that are known by then.
    async fn derive(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        let runs = self.runs();
        let mut known: Option<HashMap<Kind, f64>> = None;
        loop {
            let limits = known.take();
            let measure = |names: &mut Names, coverage: Coverage| {
                // The first launch on record need not be the first one.
                let is_launch = |op: &str| Op::from_name(op).is_some_and(|op| op.class() == Class::Launch);
                let is_cut =
                    |run: &Run| run.joined_running || run.is_partial(trace_schema::Kind::Call, is_launch);
                let joined = runs.iter().filter(|(_, run)| is_cut(run));
                let joined = joined.map(|(name, _)| names.number(name)).collect();
                Measuring::new(Measure::new(params, joined, self.thread_names(names), limits, coverage))
            };
            let Sweep { schedule, faults, sink, .. } = self.sweep(TASK_COLUMNS, false, measure).await?;
            match classify::classify(sink.finish()?, &schedule, params) {
                Err(limits) => known = Some(limits),
                Ok((judgement, mut measure)) => {
                    let totals = measure.totals(&schedule);
                    let Measure { thread_names, with_unknown, with_first, .. } = measure;
                    return Ok(Arc::new(Derived {
                        schedule,
                        faults,
                        runs,
                        thread_names,
                        judgement,
                        totals,
                        with_unknown,
                        with_first,
                    }));
                }
            }
        }
    }
}
