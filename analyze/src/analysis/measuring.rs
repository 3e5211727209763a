//! [`Measure`] on a thread of its own, so that the thread that reads rows in the order of time does not wait for it.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use super::{
    call::{Call, Sink},
    measure::{Batch, Measure},
    schedule::Schedule,
    time_split::Parts,
};
use crate::error::AnalyzeError;

/// Calls that are handed over at once, and how often that may be before the other side has taken any.
const BATCH_CALLS: usize = 1 << 12;
const WAITING: usize = 8;

/// The sink.
pub(crate) struct Measuring {
    batch: Batch,
    to: SyncSender<Batch>,
    /// Batches that were measured, to be filled again.
    back: Receiver<Batch>,
    thread: JoinHandle<Measure>,
}

fn gone<T>(_: T) -> AnalyzeError {
    AnalyzeError::Internal("the thread that measures calls ended".to_owned())
}

impl Measuring {
    /// Hands every call to `measure`.
    pub(crate) fn new(mut measure: Measure) -> Self {
        let (to, from) = sync_channel::<Batch>(WAITING);
        // As many as there can be: giving one back never waits.
        let (empty, back) = sync_channel(WAITING + 2);
        let thread = thread::spawn(move || {
            for mut batch in from {
                measure.add(&batch);
                batch.clear();
                drop(empty.try_send(batch));
            }
            measure
        });
        Self { batch: Batch::with_capacity(BATCH_CALLS), to, back, thread }
    }

    fn hand_over(&mut self) -> Result<(), AnalyzeError> {
        let next = self.back.try_recv().unwrap_or_else(|_| Batch::with_capacity(BATCH_CALLS));
        self.to.send(std::mem::replace(&mut self.batch, next)).map_err(gone)
    }

    /// After the last call.
    ///
    /// # Errors
    /// If the thread is gone.
    pub(crate) fn finish(mut self) -> Result<Measure, AnalyzeError> {
        self.hand_over()?;
        drop(self.to);
        self.thread.join().map_err(gone)
    }
}

impl Sink for Measuring {
    #[inline]
    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError> {
        self.batch.add(call, parts, schedule);
        if self.batch.len() < BATCH_CALLS {
            return Ok(());
        }
        self.hand_over()
    }
}
