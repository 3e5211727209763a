//! What Rust derives from `events`: judged calls and the schedule behind them, once for a session; and rows of tables
//! ([`analyze::tables`]), each time that they are asked for, as a reading goes on.

use std::{collections::HashSet, fmt, sync::Arc};

use tokio::sync::OnceCell;
use trace_schema::Run;

use crate::{
    call::Sink,
    classify::{self, Judgement, Params},
    culprits::Totals,
    fault::Faults,
    groups::Kind,
    measure::Measure,
    measure_pipeline::Measuring,
    schedule::Schedule,
    sweep::Sweep,
};
use analyze_run::{
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
    reading::{self, Names, Origin, TASK_COLUMNS},
    run_file::RunFile,
};

/// All verdicts, and what they rest on.
#[derive(Debug)]
pub struct Derived {
    pub schedule: Schedule,
    pub faults: Faults,
    /// What the files say about themselves, by name.
    pub runs: Vec<(String, Run)>,
    /// Names of the threads of the runs themselves, by the run's number and the thread's.
    pub thread_names: HashMap<(u32, u32), u32>,
    pub judgement: Judgement,
    /// By run: what its outermost calls waited for.
    pub totals: HashMap<u32, Totals>,
    /// Runs in which the reason of some off-CPU time is not on record.
    pub with_unknown: HashSet<u32>,
    /// Runs in which a first launch was seen.
    pub with_first: HashSet<u32>,
}

impl Derived {
    /// What a run says about itself, by its number.
    pub fn run(&self, number: u32) -> Option<&Run> {
        let name = self.schedule.names.name(number);
        self.runs.iter().find(|(of, _)| of == name).map(|(_, run)| run)
    }
}

/// Where it comes from.
pub struct Source {
    events: Arc<dyn Events>,
    files: Vec<RunFile>,
    /// With the default parameters; `None`: `events` may change.
    cell: Option<OnceCell<Arc<Derived>>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Source {
    /// Over the `events` of a session. `immutable`: they do not change, so they are judged once.
    pub fn new(events: Arc<dyn Events>, files: &[RunFile], immutable: bool) -> Self {
        Self { events, files: files.to_vec(), cell: immutable.then(OnceCell::new) }
    }

    /// All of it.
    ///
    /// # Errors
    /// If `events` cannot be read.
    pub async fn get(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        match &self.cell {
            Some(cell) if params == Params::default() => {
                cell.get_or_try_init(|| self.derive(params)).await.cloned()
            }
            _ => self.derive(params).await,
        }
    }

    /// Returns the table `events` of the session.
    pub fn events(&self) -> &Arc<dyn Events> {
        &self.events
    }

    /// The files of the runs.
    pub fn files(&self) -> &[RunFile] {
        &self.files
    }

    /// What the files say about themselves, by name.
    fn runs(&self) -> Vec<(String, Run)> {
        self.files.iter().map(|file| (file.name.clone(), file.run.clone())).collect()
    }

    /// Names of the threads of the runs, with the numbers of runs and names.
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

    /// Reads all rows for a sink. `wanted`: columns beside the key ones.
    ///
    /// # Errors
    /// If `events` cannot be read, or the sink fails.
    pub async fn sweep<S: Sink + 'static>(
        &self,
        wanted: &[&'static str],
        hands_extra: bool,
        sink: impl FnOnce(&mut Names) -> S,
    ) -> Result<Sweep<S>, AnalyzeError> {
        let origin = Origin::of(&self.files, Arc::clone(&self.events));
        let sweep = Sweep::new(sink, hands_extra);
        reading::read(origin, wanted, sweep).await
    }

    async fn derive(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        let runs = self.runs();
        let mut known: Option<HashMap<Kind, f64>> = None;
        loop {
            let limits = known.take();
            let measure = |names: &mut Names| {
                let joined = runs.iter().filter(|(_, run)| run.joined_running);
                let joined = joined.map(|(name, _)| names.number(name)).collect();
                Measuring::new(Measure::new(params, joined, self.thread_names(names), limits))
            };
            let Sweep { schedule, faults, sink, .. } = self.sweep(TASK_COLUMNS, false, measure).await?;
            match classify::judge(sink.finish()?, &schedule, &runs, params) {
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
