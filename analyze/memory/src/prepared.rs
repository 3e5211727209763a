//! What a first look at the rows of some runs tells, which every replay of them begins with: which kinds of rows a process has,
//! what an allocator held before its first event, and which pools split blocks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use crate::{
    decode::{Allocating, Decoder, Item, Key, RecordedKinds, recorded},
    event::PoolId,
    initial_state::{InitialState, Seed, SnapshotState},
    input::{Input, Replay},
    knowledge::SplitPolicy,
    pool_split::SplitInference,
};
use analyze_run::{
    error::AnalyzeError,
    reading::{Consumer, Names, Rows},
};

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Prepared {
    /// The names of the runs, by their numbers.
    pub(super) names: Vec<String>,
    /// Which kinds of rows a process has, by run and process.
    pub(super) recorded_kinds: HashMap<(u32, u32), RecordedKinds>,
    pub(super) allocating: Allocating,
    with_driver_calls: BTreeSet<u32>,
    pub(super) seeds: BTreeMap<Key, Seed>,
    pub(super) split_policies: BTreeMap<Key, BTreeMap<PoolId, SplitPolicy>>,
}

impl Input {
    /// Returns what every replay begins with. The rows are looked at once.
    pub(super) async fn prepared(&self) -> Result<Arc<Prepared>, AnalyzeError> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(Arc::clone(prepared));
        }
        let found = Arc::new(self.prepare().await?);
        Ok(Arc::clone(self.prepared.get_or_init(|| found)))
    }

    /// Returns the processes with calls of cudaMalloc by any library.
    ///
    /// # Errors
    /// Returns an error if the events cannot be read.
    pub async fn with_driver_calls(&self) -> Result<BTreeSet<u32>, AnalyzeError> {
        Ok(self.prepared().await?.with_driver_calls.clone())
    }

    async fn prepare(&self) -> Result<Prepared, AnalyzeError> {
        let mut replay = self.begin();
        let recorded = recorded(&**self.events()).await?;
        for ((run, pid), recorded_kinds) in recorded.kinds {
            let run = replay.number(&run);
            replay.recorded_kinds.insert((run, pid), recorded_kinds);
        }
        let mut prepared = Prepared {
            allocating: recorded.allocating,
            with_driver_calls: recorded.with_driver_calls,
            ..Prepared::default()
        };
        // A table without files has no metadata.
        let begins_late = self.files.is_empty() || self.files.iter().any(|file| file.run.joined_running);
        let wants = |recorded_kinds: &RecordedKinds| {
            (begins_late && recorded_kinds.state) || recorded_kinds.users_pools
        };
        if replay.recorded_kinds.values().any(wants) {
            let decoder = Decoder::new(replay.recorded_kinds.clone());
            let first = First {
                decoder,
                replay,
                begins_late,
                initial_states: BTreeMap::new(),
                inferences: BTreeMap::new(),
            };
            let First { replay: read, initial_states, inferences, .. } = self.read(first).await?;
            replay = read;
            let seeds = initial_states.into_iter();
            prepared.seeds = seeds.map(|(key, (state, snapshot))| (key, state.finish(&snapshot))).collect();
            prepared.split_policies =
                inferences.into_iter().map(|(key, study)| (key, study.finish())).collect();
        }
        (prepared.names, prepared.recorded_kinds) = (replay.names, replay.recorded_kinds);
        Ok(prepared)
    }
}

/// The first pass.
struct First {
    decoder: Decoder,
    replay: Replay,
    begins_late: bool,
    initial_states: BTreeMap<Key, (InitialState, SnapshotState)>,
    inferences: BTreeMap<Key, SplitInference>,
}

impl Consumer for First {
    fn names(&mut self) -> &mut Names {
        &mut self.decoder.names
    }

    fn run(&mut self, name: &str) -> Result<(), AnalyzeError> {
        self.replay.current = self.replay.number(name);
        Ok(())
    }

    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError> {
        for row in range {
            let Some((key, item)) = self.decoder.item(rows, row, self.replay.current) else { continue };
            let recorded_kinds = self.decoder.recorded_kinds(key.run, key.pid);
            let settings = || self.replay.settings(key);
            if let Item::Event(event) = &item
                && recorded_kinds.users_pools
            {
                self.inferences.entry(key).or_insert_with(|| SplitInference::new(settings())).event(event);
            }
            if !self.begins_late || !recorded_kinds.state {
                continue;
            }
            let (initial_state, snapshot) = self
                .initial_states
                .entry(key)
                .or_insert_with(|| (InitialState::new(settings()), SnapshotState::default()));
            match item {
                Item::Event(event) => initial_state.event(&event),
                Item::EmptyCache { .. }
                | Item::IpcCollect(_)
                | Item::HandleClosed { .. }
                | Item::Refused { .. } => (),
                Item::Segment(segment) => drop(snapshot.segments.insert(segment.addr, segment)),
                Item::Block(block) => drop(snapshot.blocks.insert(block.addr, block)),
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        Ok(())
    }
}
