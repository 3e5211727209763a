//! The counters of lost events, read twice a second: how many each probe lost, and when.

use std::collections::BTreeMap;

use capture_wire::probe;
use trace_schema::Lost;

use crate::{error::CaptureError, kernel::Kernel, probes};

/// Name under which marks are counted that were dropped because their process went beyond a limit.
const MARK: &str = "mark";

/// The counters at the last reading, and the losses between readings.
pub(crate) struct LostCounters {
    last: BTreeMap<u32, u64>,
    marks_count: u64,
    read_ns: i64,
    lost: Vec<Lost>,
}

impl LostCounters {
    /// Starts counting at `now_ns`.
    pub(crate) fn new(now_ns: i64) -> Self {
        Self { last: BTreeMap::new(), marks_count: 0, read_ns: now_ns, lost: Vec::new() }
    }

    /// Reads every counter of the kernel and takes `marks_count`, the number of marks dropped so far; `now_ns` ends the
    /// interval since the last reading.
    ///
    /// # Errors
    /// If the map of counters cannot be read.
    pub(crate) fn read(
        &mut self,
        kernel: &Kernel,
        marks_count: u64,
        now_ns: i64,
    ) -> Result<(), CaptureError> {
        let functions = probes::FUNCTIONS.iter().map(|list| list.len() as u32).sum::<u32>();
        let numbers = [probe::OFF_CPU, probe::RUN, probe::PROCESS, probe::FAULT, probe::STACK]
            .into_iter()
            .chain((0..functions).map(|n| probe::FIRST_CALL + n));
        for number in numbers {
            let total = kernel.lost(number)?;
            let before = self.last.insert(number, total).unwrap_or(0);
            self.note(probes::name(number), total.saturating_sub(before), now_ns);
        }
        let before = std::mem::replace(&mut self.marks_count, marks_count);
        self.note(MARK, marks_count.saturating_sub(before), now_ns);
        self.read_ns = now_ns;
        Ok(())
    }

    fn note(&mut self, probe: &str, count: u64, now_ns: i64) {
        if count > 0 {
            self.lost.push(Lost { probe: probe.to_owned(), from_ns: self.read_ns, to_ns: now_ns, count });
        }
    }

    /// Number of events lost since the recording began.
    pub(crate) fn total(&self) -> u64 {
        self.last.values().sum::<u64>() + self.marks_count
    }

    /// Forgets the intervals, which a finished part has; the total is kept.
    pub(crate) fn start_over(&mut self) {
        self.lost.clear();
    }

    /// Losses by probe and interval since the last [`LostCounters::start_over`].
    pub(crate) fn lost(&self) -> &[Lost] {
        &self.lost
    }
}
