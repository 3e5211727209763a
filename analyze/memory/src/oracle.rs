//! Compares the replay with PyTorch's real allocator: `testdata/oracle` holds what it reported and did in
//! random workloads and in worked examples. `INQUEST_ORACLE=DIR` compares another folder (made by
//! `testdata/oracle/run.py`).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    allocator::Allocator,
    event::{Action, Event},
    knowledge::{Knowledge, SplitPolicy},
    pool_split::SplitInference,
    settings::Settings,
    span::State,
    totals::DEFAULT_POOL,
};

/// What the allocator reported at one snapshot.
#[derive(Default)]
struct Snapshot {
    /// Segments as printed, by address.
    segments: BTreeMap<u64, String>,
    totals: String,
}

fn event(ts: i64, words: &[&str]) -> Option<Event> {
    let number = |word: &str| word.parse::<i64>().expect("a number");
    Some(Event {
        ts,
        action: Action::from_op(words[0])?,
        addr: u64::from_str_radix(words[1], 16).expect("an address"),
        size_bytes: number(words[2]) as u64,
        stream: number(words[3]) as u64,
        pool: match words.get(4..6) {
            Some(pool) => (number(pool[0]) as u64, number(pool[1]) as u64),
            None => DEFAULT_POOL,
        },
        tid: 0,
        stack: None,
        is_of_empty_cache: false,
    })
}

/// Returns what the replay says, in the same form. The requested bytes of free blocks and the pools of
/// segments are left out of the comparison.
fn replayed(allocator: &Allocator) -> Snapshot {
    let mut segments = BTreeMap::new();
    for segment in allocator.segments() {
        let mut text = format!(
            "{:x} {} {} {} {}",
            segment.addr,
            segment.size_bytes,
            segment.stream as i64,
            i32::from(!segment.is_small),
            i32::from(segment.is_expandable)
        );
        for block in allocator.blocks_in(segment) {
            let letter = match block.state {
                State::Active => 'A',
                State::PendingFree => 'P',
                State::Inactive => 'i',
                State::Unknown => '?',
            };
            text += &format!(" {}:{}:{letter}", block.size_bytes, block.requested_bytes.unwrap_or_default());
        }
        segments.insert(segment.addr, text);
    }
    let totals = allocator.totals();
    let totals = format!(
        "res={} alloc={} act={} req={} isb={} seg={}",
        totals.reserved_bytes,
        totals.allocated_bytes,
        totals.active_bytes,
        totals.requested_bytes,
        totals.inactive_split_bytes,
        totals.segments_count
    );
    Snapshot { segments, totals }
}

/// One result file.
pub(super) struct Workload {
    pub(super) settings: Settings,
    pub(super) events: Vec<Event>,
    /// What the allocator reported, each with the number of events before it.
    snapshots: Vec<(usize, Snapshot)>,
}

impl Workload {
    pub(super) fn read(text: &str) -> Self {
        let mut settings = Settings::default();
        let mut said: Vec<Snapshot> = Vec::new();
        let mut current = Snapshot::default();
        let mut events = Vec::new();
        let mut places = Vec::new();
        let mut pool = DEFAULT_POOL;
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("C", line)) => {
                    let (version, conf) = line.split_once(' ').expect("a version and settings");
                    settings = Settings::parse(conf, version);
                }
                Some(("P", line)) => {
                    let (owner, id) = line.split_once(' ').expect("a pool");
                    pool = (owner.parse().expect("a number"), id.parse().expect("a number"));
                }
                Some(("S", segment)) => {
                    let addr = segment.split(' ').next().expect("an address");
                    let addr = u64::from_str_radix(addr, 16).expect("an address");
                    current.segments.insert(addr, segment.to_owned());
                }
                Some(("T", totals)) => {
                    current.totals = totals.split(" retr=").next().unwrap_or(totals).to_owned();
                    said.push(std::mem::take(&mut current));
                }
                Some(("E", line)) => {
                    let words: Vec<&str> = line.split(' ').collect();
                    if words[0] == "snapshot" {
                        places.push(events.len());
                    }
                    events.extend(event(events.len() as i64, &words));
                }
                _ => (),
            }
        }
        assert!(settings.refused.is_empty(), "{:?}", settings.refused);
        // There may be one more: the oracle's own, for the events.
        assert!(places.len() >= said.len(), "{} of {}", places.len(), said.len());
        if pool != DEFAULT_POOL {
            events.iter_mut().for_each(|event: &mut Event| event.pool = pool);
        }
        Self { settings, events, snapshots: places.into_iter().zip(said).collect() }
    }
}

impl Workload {
    /// Returns the number of events before a snapshot.
    pub(super) fn place(&self, number: usize) -> usize {
        self.snapshots[number].0
    }
}

/// Reads all results of a folder.
pub(super) fn workloads(folder: &Path) -> Vec<(PathBuf, Workload)> {
    let paths =
        fs::read_dir(folder).expect("the folder of results").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "txt")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no results");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a result");
        (path, Workload::read(&text))
    };
    paths.into_iter().map(read).collect()
}

/// Compares one result; returns the reserved bytes at each snapshot.
fn compare(workload: &Workload, knowledge: Knowledge) -> Vec<i64> {
    let mut allocator = Allocator::new(workload.settings.clone(), knowledge);
    let mut reserved = Vec::new();
    let mut at = 0;
    for (place, said) in &workload.snapshots {
        workload.events[at..*place].iter().for_each(|event| allocator.apply(event, &mut ()));
        at = *place;
        let found = replayed(&allocator);
        assert_eq!(found.segments, said.segments, "at event {at}");
        assert_eq!(found.totals, said.totals, "at event {at}");
        reserved.push(allocator.totals().reserved_bytes);
    }
    assert!(allocator.faults().is_empty(), "{:?}", allocator.faults());
    reserved
}

pub(super) fn folder() -> PathBuf {
    let ours = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle");
    std::env::var_os("INQUEST_ORACLE").map_or(ours, PathBuf::from)
}

#[test]
fn the_replay_equals_the_real_allocator() {
    let (mut files, mut events, mut snapshots) = (0, 0, 0);
    let mut different = Vec::new();
    for (path, workload) in workloads(&folder()) {
        match std::panic::catch_unwind(|| compare(&workload, Knowledge::default())) {
            Ok(of_snapshots) => snapshots += of_snapshots.len(),
            Err(_) => different.push(path),
        }
        events += workload.events.len();
        files += 1;
    }
    println!("{files} workloads, {events} events, {snapshots} snapshots; {} differ", different.len());
    assert!(different.is_empty(), "{different:?}");
}

/// Reserved MiB at each snapshot, as the devlog has them.
const EXAMPLES: [(&str, &[i64]); 9] = [
    ("t1", &[32, 32, 32, 32, 32]),
    ("t2", &[128, 128, 256]),
    ("t3", &[128, 128, 128]),
    ("t4", &[20, 40, 60, 80, 80, 100, 120, 140]),
    ("t5", &[140, 140, 140]),
    ("t6", &[80, 100, 100, 100]),
    ("t7", &[22]),
    ("t7-expandable", &[22]),
    ("t8", &[20]),
];

#[test]
fn worked_examples_reserve_what_their_author_says() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle");
    for (name, expected) in EXAMPLES {
        let text = fs::read_to_string(folder.join(name).with_extension("txt")).expect("an example");
        let mebibytes: Vec<i64> = compare(&Workload::read(&text), Knowledge::default())
            .into_iter()
            .map(|bytes| bytes >> 20)
            .collect();
        assert_eq!(mebibytes, expected, "{name}");
    }
}

/// Compares `testdata/oracle/pools`, whose requests all use one pool made by the program; in the files
/// `whole*` it was made with `no_split`.
#[test]
fn pools_that_do_not_split_are_recognised() {
    let folder = folder().join("pools");
    let (mut snapshots, mut known) = (0, 0);
    let mut different = Vec::new();
    for (path, workload) in workloads(&folder) {
        let mut study = SplitInference::new(workload.settings.clone());
        workload.events.iter().for_each(|event| study.event(event));
        let split_policies = study.finish();
        let is_whole = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("whole"));
        let expected = if is_whole { SplitPolicy::Kept } else { SplitPolicy::Split };
        match split_policies.get(&(0, 5)) {
            Some(SplitPolicy::NotKnown) => continue,
            found => assert_eq!(found, Some(&expected), "{}", path.display()),
        }
        known += 1;
        match std::panic::catch_unwind(|| {
            compare(&workload, Knowledge { split_policies, ..Knowledge::default() })
        }) {
            Ok(of_snapshots) => snapshots += of_snapshots.len(),
            Err(_) => different.push(path),
        }
    }
    println!("{known} known, {snapshots} snapshots; {} differ", different.len());
    assert!(different.is_empty(), "{different:?}");
    assert!(known >= 6, "{known}");
}

#[test]
fn a_pool_that_shows_nothing_is_not_known() {
    let event = |action, size_bytes| Event {
        ts: 1,
        action,
        addr: 0x4000_0000,
        size_bytes,
        stream: 0,
        pool: (0, 5),
        tid: 0,
        stack: None,
        is_of_empty_cache: false,
    };
    let events = [
        event(Action::SegmentAlloc, 20 << 20),
        event(Action::Alloc, 3 << 20),
        event(Action::FreeRequested, 3 << 20),
    ];
    let mut study = SplitInference::new(Settings::default());
    events.iter().for_each(|event| study.event(event));
    let split_policies = study.finish();
    assert_eq!(split_policies.get(&(0, 5)), Some(&SplitPolicy::NotKnown));
    let mut allocator =
        Allocator::new(Settings::default(), Knowledge { split_policies, ..Knowledge::default() });
    events.iter().for_each(|event| allocator.apply(event, &mut ()));
    assert_eq!((allocator.totals().active_bytes, allocator.totals().unknown_bytes), (3 << 20, 17 << 20));
    allocator.apply(&event(Action::FreeCompleted, 3 << 20), &mut ());
    assert_eq!(
        (allocator.totals().unknown_bytes, allocator.totals().private_releasable_bytes),
        (0, 20 << 20)
    );
}
