//! [`Measure`] by whoever has time: decoders that are far enough ahead, the reader when it waits for them or hands over
//! more than is measured, and, where there are CPUs enough, a thread that does nothing else. Calls are measured in the order
//! in which they come, whoever does it.

use std::{
    collections::VecDeque,
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};

use super::{
    call::{Call, Sink},
    measure::{Batch, Measure},
    schedule::Schedule,
    time_split::Parts,
};
use analyze_run::{error::AnalyzeError, reading::Helper};

/// Calls that are handed over at once, and how often that may be before any is measured.
const BATCH_CALLS: usize = 1 << 12;
const WAITING: usize = 8;
/// A reader and a decoder keep as many CPUs busy.
const BUSY_CPUS: usize = 2;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Batch>,
    /// Batches that were measured, to be filled again.
    empty: Vec<Batch>,
    ended: bool,
}

/// Who needs both locks takes that of `measure` first.
struct Shared {
    measure: Mutex<Measure>,
    queue: Mutex<Queue>,
    news: Condvar,
}

impl Shared {
    /// Measures the next calls; whether there were any.
    fn next(&self, measure: &mut Measure) -> bool {
        let Some(mut batch) = self.queue.lock().waiting.pop_front() else { return false };
        measure.add(&batch);
        batch.clear();
        self.queue.lock().empty.push(batch);
        true
    }

    /// The same, unless somebody else is at it.
    fn help(&self) -> bool {
        self.measure.try_lock().is_some_and(|mut measure| self.next(&mut measure))
    }

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

/// The sink.
pub struct Measuring {
    batch: Batch,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Measuring {
    /// Hands every call to `measure`.
    pub fn new(measure: Measure) -> Self {
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
        Self { batch: Batch::with_capacity(BATCH_CALLS), shared, thread }
    }

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

    /// After the last call.
    ///
    /// # Errors
    /// If a thread is gone.
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

/// There is no more: of a reading that failed, too.
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
        if !self.batch.takes(schedule.key(call.slot).0) {
            self.hand_over();
            self.batch.takes(schedule.key(call.slot).0);
        }
        self.batch.add(call, parts, schedule);
        if self.batch.len() == BATCH_CALLS {
            self.hand_over();
        }
        Ok(())
    }
}
