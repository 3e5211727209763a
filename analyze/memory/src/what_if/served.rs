//! Serves the requests of a recorded process as they come, under one set of settings.

use std::collections::HashMap;

use analyze_run::random::Random;

use super::{
    policy::{Counts, Policy},
    private_pools::Scope,
};
use crate::{
    event::{Action, Event},
    settings::Settings,
};

/// The recorded requests, served under one set of settings.
#[derive(Clone, Debug)]
pub struct Served {
    pub(super) policy: Policy,
    /// The policy's addresses of blocks, by their recorded addresses.
    blocks: HashMap<u64, u64>,
    peak_ts: Option<i64>,
    /// Where the outcome of a request differed from the record. From then on the program would have behaved
    /// differently, so no further event is replayed.
    pub ended: Option<Ended>,
}

/// The first request whose outcome differed from the record.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The time of the request (ns, trace clock).
    pub ts: i64,
    /// The requested size in bytes.
    pub requested_bytes: u64,
    /// Whether the policy served the request although it had failed; otherwise it failed although it had been
    /// served.
    pub is_served: bool,
}

impl Served {
    pub(super) fn new(settings: Settings, capacity_bytes: Option<u64>, device_bytes: Option<u64>) -> Self {
        let policy = Policy::new(settings, capacity_bytes, device_bytes);
        Self { policy, blocks: HashMap::new(), peak_ts: None, ended: None }
    }

    /// Returns the policy's counts.
    pub fn counts(&self) -> Counts {
        self.policy.counts
    }

    /// Returns how many bytes the process may reserve at most; `None` means no limit.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.policy.limit_bytes()
    }

    /// Returns when the most memory was reserved (ns, trace clock); `None` if nothing was reserved.
    pub fn peak_ts(&self) -> Option<i64> {
        self.peak_ts
    }

    /// Gives every segment a random address, also those that are reserved later.
    pub(super) fn shuffle(&mut self, random: Random) {
        let moved = self.policy.shuffle(random);
        self.blocks.values_mut().for_each(|addr| *addr = moved.get(addr).copied().unwrap_or(*addr));
    }

    /// Replays the next event.
    pub(super) fn event(&mut self, event: &Event) {
        match event.action {
            Action::Alloc | Action::UsageAlloc | Action::Oom => {
                let peak = self.policy.counts.peak_reserved_bytes;
                let found = self.policy.alloc(event.size_bytes, event.stream, event.pool);
                if self.policy.counts.peak_reserved_bytes > peak {
                    self.peak_ts = Some(event.ts);
                }
                if found.is_some() == (event.action == Action::Oom) {
                    let is_served = found.is_some();
                    let requested_bytes = event.size_bytes;
                    self.ended = Some(Ended { ts: event.ts, requested_bytes, is_served });
                }
                self.blocks.extend(found.map(|found| (event.addr, found)));
            }
            Action::SegmentAlloc => self.policy.see(event.addr, event.size_bytes),
            Action::FreeRequested => {
                self.blocks.get(&event.addr).into_iter().for_each(|addr| self.policy.free_requested(*addr));
            }
            Action::FreeCompleted | Action::UsageFree => {
                let addr = self.blocks.remove(&event.addr);
                addr.into_iter().for_each(|addr| self.policy.free_completed(addr));
            }
            _ => (),
        }
    }

    /// Releases what is unused.
    pub(super) fn release(&mut self, scope: Scope) {
        self.policy.release_scope(scope);
    }
}
