//! Compares the policy with PyTorch's real allocator: `testdata/oracle/pairs` holds the same random workload
//! under two settings (made by `run.py --pairs`; `INQUEST_PAIRS=DIR` compares another folder), and
//! `testdata/oracle/addresses` some in which segments have other addresses in each run. From the events of
//! either run the policy must predict both, and the range of all replays must have what was reserved.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{
    super::{
        allocator::Allocator,
        decode::Key,
        event::{Action, Event},
        input::Listener,
        knowledge::Knowledge,
        oracle::Workload,
        settings::Settings,
    },
    changes::{Alternative, Changes},
    limits,
    policy::{Policy, Use},
    record::{Case, Cases},
    served::Served,
};

/// The bytes of the oracle's device.
const DEVICE_BYTES: u64 = 80 << 30;

const KEY: Key = Key { run: 0, pid: 1, device: 0 };

/// One run of a pair.
struct Side {
    workload: Workload,
    /// What the allocator reported at each snapshot: segments without their addresses, and totals.
    said: Vec<(Vec<String>, String)>,
    /// The snapshots that an `empty_cache()` follows.
    emptied: Vec<usize>,
    capacity_bytes: u64,
    device_bytes: Option<u64>,
}

/// Reduces a segment's text to the size and state of each block: the policy does not keep requested sizes.
fn without_requested(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.split(':').collect::<Vec<_>>()[..] {
        [size, _, state] => format!("{size}:{state}"),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn side(path: &Path) -> Side {
    let text = fs::read_to_string(path).expect("a result");
    let mut said = Vec::new();
    let mut segments = Vec::new();
    let (mut emptied, mut capacity_bytes, mut device_bytes) = (Vec::new(), u64::MAX, None);
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("S", segment)) => {
                let (addr, rest) = segment.split_once(' ').expect("an address");
                segments.push((u64::from_str_radix(addr, 16).expect("an address"), without_requested(rest)));
            }
            Some(("T", totals)) => {
                let totals = totals.split(" req=").next().unwrap_or(totals).to_owned();
                segments.sort();
                said.push((segments.drain(..).map(|(_, text)| text).collect(), totals));
            }
            Some(("X", place)) => emptied.push(place.parse().expect("a number")),
            Some(("M", bytes)) => capacity_bytes = bytes.parse().expect("a number"),
            Some(("D", bytes)) => device_bytes = Some(bytes.parse().expect("a number")),
            _ => (),
        }
    }
    Side { workload: Workload::read(&text), said, emptied, capacity_bytes, device_bytes }
}

/// Returns what the policy says, in the same form.
fn listed(policy: &Policy) -> (Vec<String>, String) {
    let mut segments: Vec<String> = Vec::new();
    let mut open = None;
    let mut current = (0, 0, String::new());
    let finish = |(space, bytes, blocks): (usize, u64, String), segments: &mut Vec<String>| {
        let space = &policy.spaces[space];
        let flags = (i32::from(!space.class.1), i32::from(space.page_bytes.is_some()));
        segments.push(format!("{bytes} {} {} {}{blocks}", space.stream as i64, flags.0, flags.1));
    };
    for (addr, block) in &policy.blocks {
        let continues = open == Some((block.space, *addr)) && block.is != Use::Unmapped;
        if open.is_some() && !continues {
            finish(std::mem::take(&mut current), &mut segments);
            open = None;
        }
        let letter = match block.is {
            Use::Unmapped => continue,
            Use::Active => 'A',
            Use::Pending => 'P',
            Use::Free => 'i',
        };
        current.0 = block.space;
        current.1 += block.size_bytes;
        current.2 += &format!(" {}:{letter}", block.size_bytes);
        open = Some((block.space, addr + block.size_bytes));
    }
    if open.is_some() {
        finish(current, &mut segments);
    }
    let counts = policy.counts;
    let totals =
        format!("res={} alloc={} act={}", counts.reserved_bytes, counts.allocated_bytes, counts.active_bytes);
    (segments, totals)
}

/// Replays the events of `from` under other settings; returns the number of snapshots of `expected` that
/// match. Nothing is compared after a request whose outcome differs from the record.
fn compare(from: &Side, settings: Settings, expected: &Side) -> Result<usize, String> {
    let mut served = Served::new(settings, Some(from.capacity_bytes), from.device_bytes);
    let mut at = 0;
    for (number, said) in expected.said.iter().enumerate() {
        let place = from.workload.place(number);
        // The addresses of segments are withheld: the real order is that in which they are reserved.
        let events = &from.workload.events[at..place];
        events
            .iter()
            .filter(|event| event.action != Action::SegmentAlloc)
            .for_each(|event| served.event(event));
        if served.ended.is_some() {
            return Ok(number);
        }
        at = place;
        let found = listed(&served.policy);
        if found != *said {
            return Err(format!("snapshot {number}:\n{found:#?}\nand not\n{said:#?}"));
        }
        if from.emptied.contains(&number) {
            served.policy.empty_cache();
        }
    }
    Ok(expected.said.len())
}

/// Returns folders of `testdata/oracle`, or the one that is compared instead.
fn folders(names: &[&str]) -> Vec<PathBuf> {
    let ours = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle");
    let other = std::env::var_os("INQUEST_PAIRS").map(|folder| vec![PathBuf::from(folder)]);
    other.unwrap_or_else(|| names.iter().map(|name| ours.join(name)).collect())
}

/// Reads the pairs of a folder, each with its name.
fn pairs(folder: PathBuf) -> Vec<(String, [Side; 2])> {
    let paths =
        fs::read_dir(folder).expect("the folder of pairs").map(|entry| entry.expect("an entry").path());
    let names = paths.map(|path| path.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with("-a.txt")).collect();
    names.sort();
    let sides = |name: &String| [side(Path::new(name)), side(Path::new(&name.replace("-a.txt", "-b.txt")))];
    names.iter().map(|name| (name.clone(), sides(name))).collect()
}

#[test]
fn the_policy_is_that_of_the_real_allocator() {
    let (mut count, mut same, mut other, mut ended) = (0, 0, 0, 0);
    let mut different = Vec::new();
    for (name, sides) in folders(&["pairs"]).into_iter().flat_map(pairs) {
        for (from, to) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
            match compare(&sides[from], sides[to].workload.settings.clone(), &sides[to]) {
                Ok(count) => {
                    *if from == to { &mut same } else { &mut other } += count;
                    ended += usize::from(count < sides[to].said.len());
                }
                Err(error) => {
                    different.push(format!("{name} {from} {to} {:?}: {error}", sides[to].workload.settings))
                }
            }
        }
        count += 1;
    }
    println!(
        "{count} pairs; snapshots as they were: {same} with the same settings, {other} with others; {ended} ended early"
    );
    assert!(different.is_empty(), "{} differ; the first: {}", different.len(), different[0]);
    assert!(count >= 3 && other > 0, "{count} {other}");
}

/// Returns the largest number of reserved bytes, and whether a request failed.
fn truth(side: &Side) -> (u64, usize) {
    let (mut reserved, mut peak) = (0_u64, 0);
    for event in &side.workload.events {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => reserved += event.size_bytes,
            Action::SegmentFree | Action::SegmentUnmap => reserved -= event.size_bytes,
            _ => (),
        }
        peak = peak.max(reserved);
    }
    (peak, side.workload.events.iter().filter(|event| event.action == Action::Oom).count())
}

/// Returns the time of the first request that was served in one of two runs only.
fn first_difference(from: &Side, to: &Side) -> Option<i64> {
    let requests = |side: &Side| -> Vec<(i64, bool)> {
        let requests = side.workload.events.iter().filter(|event| limits::is_request(event));
        requests.map(|event| (event.ts, event.action == Action::Oom)).collect()
    };
    let (from, to) = (requests(from), requests(to));
    from.iter().zip(&to).find(|((_, one), (_, other))| one != other).map(|((ts, _), _)| *ts)
}

/// Replays the events of a run as those of a snapshot: nothing tells of the calls of `empty_cache()`.
fn as_of_snapshot(from: &Side, to: &Side) -> Case {
    let mut allocators = [Allocator::new(from.workload.settings.clone(), Knowledge::default())];
    let mut limits = BTreeMap::new();
    feed(&from.workload.events, &mut allocators[0], &mut limits);
    let changes = Changes { no_empty_cache: to.emptied.is_empty(), ..Changes::default() };
    let alternative = Alternative { settings: Some(to.workload.settings.clone()), changes };
    let mut cases = Cases { default: vec![alternative], limits, ..Cases::default() };
    // Who asks knows the device.
    cases.capacity_bytes = (from.capacity_bytes < DEVICE_BYTES).then_some(from.capacity_bytes);
    cases.device_bytes.extend(from.device_bytes.map(|bytes| (KEY.run, bytes)));
    allocators = [Allocator::new(from.workload.settings.clone(), Knowledge::default())];
    feed(&from.workload.events, &mut allocators[0], &mut cases);
    cases.cases.remove(&KEY).expect("a case")
}

fn feed(events: &[Event], allocator: &mut Allocator, listener: &mut impl Listener) {
    for event in events {
        listener.before(KEY, allocator, event);
        allocator.apply(event, &mut ());
        listener.after(KEY, allocator, event);
    }
    listener.end();
}

#[test]
fn the_range_of_replays_has_what_the_real_allocator_reserved() {
    let (mut single, mut ranges, mut ended, mut inconclusive, mut first) = (0, 0, 0, 0, 0);
    let (mut widths, mut outside) = (Vec::new(), Vec::new());
    for (name, sides) in folders(&["pairs", "addresses"]).into_iter().flat_map(pairs) {
        for (from, to) in [(0, 1), (1, 0)] {
            // Calls that are added are not known by their number alone.
            if sides[from].emptied.is_empty() && !sides[to].emptied.is_empty() {
                continue;
            }
            let case = as_of_snapshot(&sides[from], &sides[to]);
            let replays = &case.asked[0].replays;
            let (peak, failed_count) = truth(&sides[to]);
            let end = |served: &Served| served.ended.map_or(i64::MAX, |ended| ended.ts);
            let ends = replays.range(end);
            let difference = first_difference(&sides[from], &sides[to]).unwrap_or(i64::MAX);
            let is_inconclusive =
                case.difference_bytes > 0 || case.waits_in_calls && sides[to].emptied.is_empty();
            if !is_inconclusive && !(ends.min..=ends.max).contains(&difference) {
                outside.push(format!(
                    "{name} {from} {to}: the outcome first differs at {difference}, not {ends:?}"
                ));
            }
            if replays.all().any(|served| served.ended.is_some()) || failed_count > 0 {
                ended += 1;
                continue;
            }
            if is_inconclusive {
                inconclusive += 1;
                continue;
            }
            let found = replays.range(|served| served.counts().peak_reserved_bytes);
            first +=
                usize::from(replays.all().next().expect("a replay").counts().peak_reserved_bytes == peak);
            match found.single() {
                Some(_) => single += 1,
                None => ranges += 1,
            }
            widths.push((found.max - found.min) as f64 / peak as f64);
            if !(found.min..=found.max).contains(&peak) {
                outside.push(format!("{name} {from} {to}: {peak} is not in {found:?} {:?}", case.calls));
            }
        }
    }
    widths.sort_by(f64::total_cmp);
    assert!(!widths.is_empty(), "nothing was compared");
    println!(
        "{single} single numbers, {ranges} ranges, median width {:.3}, 90 % {:.3}; {ended} with another outcome; \
         {inconclusive} inconclusive; the first replay was right in {first}; {} outside",
        widths[widths.len() / 2],
        widths[widths.len() * 9 / 10],
        outside.len()
    );
    assert!(outside.is_empty(), "{} outside: {outside:#?}", outside.len());
    assert!(single > ranges, "{single} single numbers, {ranges} ranges");
}
