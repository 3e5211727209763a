//! One sweep for several readers of calls, each of which would otherwise read all rows by itself.
//!
//! ```text
//! parts     ├──────────── a table of calls ───────┐
//!           ├───────── launch gaps ───────────┐   │ the readers wait, and the last one begins the sweep
//!           ├── verdicts ────┐                │   │
//! sweep                                           ├── rows ─► every sink ──┤
//! ```
//! Whoever wants to share a sweep opens a [`Part`] for each reader that may come. The sweep begins when each open part has brought
//! a reader; a part that closes is not waited for. A reader that comes later sweeps by itself, so that no reader waits for one
//! that comes when it has ended. A reader must not wait for another one of the same sweep before it takes its own calls.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    call::Sink,
    fault::Faults,
    measure_pipeline::Measuring,
    schedule::Schedule,
    sinks::Sinks,
    sweep::Sweep,
    sweep_input::{Covering, Input},
};
use analyze_run::{coverage::Coverage, error::AnalyzeError, reading::Names};

/// What makes a sink from the names that are known already, and the coverage of the runs.
pub(super) type Make<S> = Box<dyn FnOnce(&mut Names, Coverage) -> S + Send>;

/// What a reader gets in the end.
pub(super) type Done<T> = oneshot::Receiver<Result<T, AnalyzeError>>;

/// What a sweep that measures calls yields.
pub(super) struct Measured {
    pub(super) schedule: Schedule,
    pub(super) faults: Faults,
    pub(super) measuring: Measuring,
}

/// A reader that waits for the sweep.
struct Waiting<S, T> {
    make: Make<S>,
    done: oneshot::Sender<Result<T, AnalyzeError>>,
}

/// The readers so far.
#[derive(Default)]
struct Readers {
    /// Columns to read in addition to the key columns.
    columns: Vec<&'static str>,
    hands_extra: bool,
    measuring: Option<Waiting<Measuring, Measured>>,
    others: Vec<Waiting<Box<dyn Sink>, ()>>,
}

impl Readers {
    fn want(&mut self, columns: &[&'static str], hands_extra: bool) {
        for column in columns {
            if !self.columns.contains(column) {
                self.columns.push(*column);
            }
        }
        self.hands_extra |= hands_extra;
    }

    /// Sweeps the rows of `input` for all readers. `shared` is what they belong to.
    async fn sweep(self, input: Arc<Input>, shared: Weak<SharedSweep>) {
        let (measuring, measured) = self.measuring.map(|waiting| (waiting.make, waiting.done)).unzip();
        let (makes, done): (Vec<_>, Vec<_>) =
            self.others.into_iter().map(|waiting| (waiting.make, waiting.done)).unzip();
        let sinks = move |names: &mut Names, covering: &Covering<'_>| {
            // It is made first, so that names have the numbers that they have in a sweep of its own.
            let measuring = measuring.map(|make: Make<Measuring>| {
                let coverage = covering.coverage(names);
                make(names, coverage)
            });
            let mut sinks = Sinks::new(measuring, move || shared.strong_count() > 0);
            for (reader, make) in makes.into_iter().enumerate() {
                let coverage = covering.coverage(names);
                sinks.add(reader, make(names, coverage));
            }
            sinks
        };
        // A reader that does not wait any more is no error.
        match input.sweep(&self.columns, self.hands_extra, sinks).await {
            Ok(Sweep { schedule, faults, sink, .. }) => {
                let (measuring, results) = sink.results(done.len());
                for (done, result) in done.into_iter().zip(results) {
                    let _ = done.send(result);
                }
                if let (Some(done), Some(measuring)) = (measured, measuring) {
                    let _ = done.send(Ok(Measured { schedule, faults, measuring }));
                }
            }
            Err(error) => {
                for done in done {
                    let _ = done.send(Err(error.again()));
                }
                if let Some(done) = measured {
                    let _ = done.send(Err(error));
                }
            }
        }
    }
}

#[derive(Default)]
struct State {
    /// The number of parts that are open.
    parts_count: usize,
    /// The number of parts that have brought a reader, or need not be waited for.
    arrived_count: usize,
    /// Whether a reader computes the verdicts, for which others may wait.
    is_deriving: bool,
    has_begun: bool,
    readers: Readers,
}

/// See the module documentation.
pub struct SharedSweep {
    input: Arc<Input>,
    state: Mutex<State>,
}

/// A part of what shares a sweep; it ends when it is dropped.
pub struct Part(Arc<SharedSweep>);

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.parts_count = state.parts_count.saturating_sub(1);
        self.0.begin(state);
    }
}

impl SharedSweep {
    pub(super) fn new(input: Arc<Input>) -> Self {
        Self { input, state: Mutex::new(State::default()) }
    }

    /// Opens a part. All parts are opened before the first of them asks for calls.
    pub fn part(self: &Arc<Self>) -> Part {
        self.state.lock().parts_count += 1;
        Part(Arc::clone(self))
    }

    /// Begins the sweep if nobody is to be waited for any more.
    fn begin(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let is_asked = state.readers.measuring.is_some() || !state.readers.others.is_empty();
        if state.has_begun || !is_asked || state.arrived_count < state.parts_count {
            return;
        }
        // Where there is no runtime any more, nobody waits.
        let Ok(runtime) = Handle::try_current() else { return };
        state.has_begun = true;
        let readers = std::mem::take(&mut state.readers);
        runtime.spawn(readers.sweep(Arc::clone(&self.input), Arc::downgrade(self)));
    }

    /// Notes that somebody asks for the verdicts, which one reader computes and all others wait for.
    pub(super) fn derive(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.is_deriving {
            state.arrived_count += 1;
            self.begin(state);
        } else {
            state.is_deriving = true;
        }
    }

    /// Adds a reader. Returns `make` if the sweep has begun already.
    pub(super) fn join(
        self: &Arc<Self>,
        columns: &[&'static str],
        hands_extra: bool,
        make: Make<Box<dyn Sink>>,
    ) -> Result<Done<()>, Make<Box<dyn Sink>>> {
        let mut state = self.state.lock();
        if state.has_begun {
            return Err(make);
        }
        let (done, is_done) = oneshot::channel();
        state.readers.want(columns, hands_extra);
        state.readers.others.push(Waiting { make, done });
        state.arrived_count += 1;
        self.begin(state);
        Ok(is_done)
    }

    /// Adds the reader that measures calls. Returns `make` if there is one, or if the sweep has begun already.
    pub(super) fn join_measuring(
        self: &Arc<Self>,
        columns: &[&'static str],
        make: Make<Measuring>,
    ) -> Result<Done<Measured>, Make<Measuring>> {
        let mut state = self.state.lock();
        if state.has_begun {
            return Err(make);
        }
        state.arrived_count += 1;
        if state.readers.measuring.is_some() {
            self.begin(state);
            return Err(make);
        }
        let (done, is_done) = oneshot::channel();
        state.readers.want(columns, false);
        state.readers.measuring = Some(Waiting { make, done });
        self.begin(state);
        Ok(is_done)
    }
}
