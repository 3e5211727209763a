//! Runs [`Measure`] on whichever thread has time: on decoders that are far enough ahead, on the reader when
//! it waits for them or has queued more than is measured, and, if there are CPUs enough, on a thread of its
//! own. Calls are measured in the order in which they were queued, whichever thread does it.

use std::{
    collections::VecDeque,
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};

use super::{
    call::{Call, Sink},
    measure::{Batch, Measure},
    missing::Missing,
    schedule::{Schedule, ThreadKey},
    time_split::Parts,
};
use analyze_run::{coverage::Coverage, error::AnalyzeError, reading::Helper};

/// Number of calls in a batch.
const BATCH_CALLS: usize = 1 << 12;
/// Number of batches that may be queued before the reader itself measures one.
const WAITING: usize = 8;
/// Number of CPUs that a reader and a decoder keep busy.
const BUSY_CPUS: usize = 2;

/// The batches between the reader and the threads that measure.
#[derive(Default)]
struct Queue {
    /// Batches to be measured, oldest first.
    waiting: VecDeque<Batch>,
    /// Batches that have been measured, to be filled again.
    empty: Vec<Batch>,
    /// True if no batch will be added any more.
    ended: bool,
}

/// What the threads share. A thread that needs both locks takes that of `measure` first.
struct Shared {
    measure: Mutex<Measure>,
    queue: Mutex<Queue>,
    news: Condvar,
}

impl Shared {
    /// Measures the next batch, and returns whether there was one.
    fn next(&self, measure: &mut Measure) -> bool {
        let Some(mut batch) = self.queue.lock().waiting.pop_front() else { return false };
        measure.add(&batch);
        batch.clear();
        self.queue.lock().empty.push(batch);
        true
    }

    /// Measures the next batch unless another thread is measuring, and returns whether it did.
    fn help(&self) -> bool {
        self.measure.try_lock().is_some_and(|mut measure| self.next(&mut measure))
    }

    /// Measures batches until the queue has ended.
    fn run(&self) {
        loop {
            let mut queue = self.queue.lock();
            while queue.waiting.is_empty() {
                if queue.ended {
                    return;
                }
                self.news.wait(&mut queue);
            }
            drop(queue);
            self.next(&mut self.measure.lock());
        }
    }
}

/// A sink that queues every call for measurement.
pub struct Measuring {
    batch: Batch,
    coverage: Arc<Coverage>,
    /// The process of the last call, and whether rows of it may be missing.
    recent: Option<((u32, u32), bool)>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Measuring {
    /// Makes a sink that passes every call to `measure`.
    pub fn new(measure: Measure) -> Self {
        let coverage = Arc::clone(&measure.coverage);
        let shared = Arc::new(Shared {
            measure: Mutex::new(measure),
            queue: Mutex::new(Queue::default()),
            news: Condvar::new(),
        });
        let has_room = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > BUSY_CPUS);
        let thread = has_room.then(|| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.run())
        });
        Self { batch: Batch::with_capacity(BATCH_CALLS), coverage, recent: None, shared, thread }
    }

    /// Determines what the record may lack of a call that ended.
    #[inline]
    fn missing(&mut self, call: &Call, thread: ThreadKey, schedule: &Schedule) -> Missing {
        let process = (thread.0, thread.1);
        let is_partial = match self.recent {
            Some((of, is_partial)) if of == process => is_partial,
            _ => self.coverage.is_partial(process),
        };
        self.recent = Some((process, is_partial));
        match is_partial {
            true => Missing::of(&self.coverage, &schedule.names, thread, call.op, (call.ts, call.end())),
            false => Missing::default(),
        }
    }

    /// Queues the current batch, and measures one if too many are queued.
    fn hand_over(&mut self) {
        let mut queue = self.shared.queue.lock();
        let next = queue.empty.pop().unwrap_or_else(|| Batch::with_capacity(BATCH_CALLS));
        queue.waiting.push_back(std::mem::replace(&mut self.batch, next));
        let is_too_much = queue.waiting.len() > WAITING;
        drop(queue);
        self.shared.news.notify_one();
        if is_too_much {
            self.shared.next(&mut self.shared.measure.lock());
        }
    }

    /// Measures what is still queued, after the last call, and returns the measurements.
    ///
    /// # Errors
    /// Returns an error if a measuring thread panicked.
    pub fn finish(mut self) -> Result<Measure, AnalyzeError> {
        let gone = || AnalyzeError::Internal("a thread that measures calls ended".to_owned());
        self.hand_over();
        let (thread, shared) = (self.thread.take(), Arc::clone(&self.shared));
        drop(self);
        if let Some(thread) = thread {
            thread.join().map_err(|_| gone())?;
        }
        while shared.help() {}
        let shared = Arc::into_inner(shared).ok_or_else(gone)?;
        Ok(shared.measure.into_inner())
    }
}

/// Ends the queue, so that the measuring thread exits even if the reading failed.
impl Drop for Measuring {
    fn drop(&mut self) {
        self.shared.queue.lock().ended = true;
        self.shared.news.notify_all();
    }
}

impl Sink for Measuring {
    fn helper(&self) -> Option<Helper> {
        let shared = Arc::clone(&self.shared);
        Some(Arc::new(move || shared.help()))
    }

    #[inline]
    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let thread = schedule.key(call.slot);
        if !self.batch.takes(thread.0) {
            self.hand_over();
            self.batch.takes(thread.0);
        }
        // Calls that the error of the clock touches count as if they had been running all the time.
        let parts = parts.filter(|_| !self.coverage.blur().touches(thread, call.ts, call.end()));
        let missing = self.missing(call, thread, schedule);
        self.batch.add(call, parts, missing, schedule);
        if self.batch.len() == BATCH_CALLS {
            self.hand_over();
        }
        Ok(())
    }
}
