//! Data that Rust code derives from `events`: classified calls and the schedule behind them, computed once
//! per session; and the rows of tables (`tables`), computed by a new sweep each time that a table is
//! scanned. Readers that are known to come together share a sweep ([`Source::sharing`]).

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
    shared_sweep::{Make, Measured, SharedSweep},
    sweep::Sweep,
    sweep_input::{Covering, Input},
};
use analyze_run::{
    coverage::Coverage,
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
    reading::{Names, TASK_COLUMNS},
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
    input: Arc<Input>,
    /// The data for the default parameters; `None` if `events` may change.
    derived: Option<Arc<OnceCell<Arc<Derived>>>>,
    /// The sweep that the readers of this source share, if they do.
    shared: Option<Arc<SharedSweep>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// Returns the names of the threads of some runs, by run and thread ID; runs and names are numbered in `names`.
pub fn thread_names(files: &[RunFile], names: &mut Names) -> HashMap<(u32, u32), u32> {
    let mut found = HashMap::default();
    for file in files {
        let run = names.number(&file.name);
        found.extend(file.run.threads.iter().map(|thread| ((run, thread.tid), names.number(&thread.comm))));
    }
    found
}

/// Returns the error of a reader whose sweep has ended without a word.
fn ended<E>(_: E) -> AnalyzeError {
    AnalyzeError::Internal("a shared sweep ended".to_owned())
}

impl Source {
    /// Makes a source over the `events` of a session. If `immutable`, the events do not change, and calls are
    /// classified only once.
    pub fn new(events: Arc<dyn Events>, files: &[RunFile], immutable: bool) -> Self {
        let input = Arc::new(Input::new(events, files, immutable));
        Self { input, derived: immutable.then(Arc::default), shared: None }
    }

    /// Returns a source of the same rows whose readers share one sweep, and that sweep.
    pub fn sharing(&self) -> (Self, Arc<SharedSweep>) {
        let shared = Arc::new(SharedSweep::new(Arc::clone(&self.input)));
        let (input, derived) = (Arc::clone(&self.input), self.derived.clone());
        (Self { input, derived, shared: Some(Arc::clone(&shared)) }, shared)
    }

    /// Returns the verdicts for `params`. Those for the default parameters are kept if the events are
    /// immutable.
    pub async fn get(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        match &self.derived {
            Some(cell) if params == Params::default() => {
                if let Some(shared) = &self.shared {
                    shared.derive();
                }
                cell.get_or_try_init(|| self.derive(params)).await.cloned()
            }
            _ => self.derive(params).await,
        }
    }

    /// Returns the table `events` of the session.
    pub fn events(&self) -> &Arc<dyn Events> {
        &self.input.events
    }

    /// Returns the files of the runs.
    pub fn files(&self) -> &[RunFile] {
        &self.input.files
    }

    /// Returns the metadata of the runs, by run name.
    fn runs(&self) -> Vec<(String, Run)> {
        self.files().iter().map(|file| (file.name.clone(), file.run.clone())).collect()
    }

    /// Reads all rows in order of time, and passes the calls in them to a sink, which is made with the coverage of the
    /// runs: no figure may be made without asking it. `wanted` are the columns to read in addition to the key columns. If
    /// `hands_extra`, each call has its `Extra` columns.
    ///
    /// # Errors
    /// Returns an error if `events` cannot be read or the sink fails.
    pub async fn sweep<S: Sink>(
        &self,
        wanted: &[&'static str],
        hands_extra: bool,
        sink: impl FnOnce(&mut Names, Coverage) -> S + Send + 'static,
    ) -> Result<(), AnalyzeError> {
        let Some(shared) = &self.shared else {
            let covered = |names: &mut Names, covering: &Covering<'_>| {
                let coverage = covering.coverage(names);
                sink(names, coverage)
            };
            return self.input.sweep(wanted, hands_extra, covered).await.map(drop);
        };
        let make: Make<Box<dyn Sink>> = Box::new(move |names, coverage| Box::new(sink(names, coverage)));
        match shared.join(wanted, hands_extra, make) {
            Ok(done) => done.await.map_err(ended)?,
            Err(make) => self.late(wanted, hands_extra, make).await,
        }
    }

    /// Sweeps for a reader that came after the shared sweep had begun.
    async fn late(
        &self,
        wanted: &[&'static str],
        hands_extra: bool,
        make: Make<Box<dyn Sink>>,
    ) -> Result<(), AnalyzeError> {
        // It is the only reader of a sweep of its own, which goes on for as long as this is here.
        let shared = Arc::new(SharedSweep::new(Arc::clone(&self.input)));
        let done = shared.join(wanted, hands_extra, make).map_err(ended)?;
        done.await.map_err(ended)?
    }

    /// Measures all calls.
    async fn measure(&self, mut make: Make<Measuring>) -> Result<Measured, AnalyzeError> {
        if let Some(shared) = &self.shared {
            make = match shared.join_measuring(TASK_COLUMNS, make) {
                Ok(done) => return done.await.map_err(ended)?,
                Err(make) => make,
            };
        }
        let covered = |names: &mut Names, covering: &Covering<'_>| {
            let coverage = covering.coverage(names);
            make(names, coverage)
        };
        let Sweep { schedule, faults, sink, .. } = self.input.sweep(TASK_COLUMNS, false, covered).await?;
        Ok(Measured { schedule, faults, measuring: sink })
    }

    /// Classifies all calls. If a call that was not kept as a candidate turns out to be slow, it reads once
    /// more with the limits that are known by then.
    async fn derive(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        let runs = self.runs();
        let mut known: Option<HashMap<Kind, f64>> = None;
        loop {
            let limits = known.take();
            let input = Arc::clone(&self.input);
            let make: Make<Measuring> = Box::new(move |names, coverage| {
                // The first launch on record need not be the first one.
                let is_launch = |op: &str| Op::from_name(op).is_some_and(|op| op.class() == Class::Launch);
                let is_cut =
                    |run: &Run| run.joined_running || run.is_partial(trace_schema::Kind::Call, is_launch);
                let joined = input.files.iter().filter(|file| is_cut(&file.run));
                let joined = joined.map(|file| names.number(&file.name)).collect();
                let thread_names = thread_names(&input.files, names);
                Measuring::new(Measure::new(params, joined, thread_names, limits, coverage))
            });
            let Measured { schedule, faults, measuring } = self.measure(make).await?;
            match classify::classify(measuring.finish()?, &schedule, params) {
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
