//! A memory pool in which sorts cannot take what their merges need.
//!
//! DataFusion's fair pool lets sorts fill all of it. What merges the files that they spilled can then take nothing, and the query
//! fails though nothing of it grows with the rows.
//!
//! ```text
//! ├── sorts and joins: a fair share each, then they spill ──┤── merges, and what else cannot spill ──┤
//! ```

use std::fmt;

use datafusion::{
    error::Result,
    execution::memory_pool::{
        FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
    },
};

/// What cannot spill has one of so many parts: merging what a sort holds takes up to as much as the sort.
const PARTS: usize = 2;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct SpillPool {
    size_bytes: usize,
    spilling: FairSpillPool,
    others: GreedyMemoryPool,
}

impl SpillPool {
    pub(crate) fn new(size_bytes: usize) -> Self {
        let others_bytes = size_bytes / PARTS;
        Self {
            size_bytes,
            spilling: FairSpillPool::new(size_bytes - others_bytes),
            others: GreedyMemoryPool::new(others_bytes),
        }
    }

    fn of(&self, consumer: &MemoryConsumer) -> &dyn MemoryPool {
        if consumer.can_spill() { &self.spilling } else { &self.others }
    }
}

impl fmt::Display for SpillPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spilling {}, others {}", self.spilling, self.others)
    }
}

impl MemoryPool for SpillPool {
    fn name(&self) -> &'static str {
        "spill"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.of(consumer).register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.of(consumer).unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.of(reservation.consumer()).grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.of(reservation.consumer()).shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.of(reservation.consumer()).try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.spilling.reserved() + self.others.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.size_bytes)
    }
}
