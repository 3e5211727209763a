//! Compares the policy with PyTorch's real allocator: `testdata/oracle/pairs` holds the same random workload
//! under two settings (made by `run.py --pairs`; `INQUEST_PAIRS=DIR` compares another folder). From the
//! events of either run the policy must predict both.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    super::{event::Action, oracle::Workload, settings::Settings},
    policy::{Policy, Use},
    record::Served,
};

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

#[test]
fn the_policy_is_that_of_the_real_allocator() {
    let ours = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/oracle/pairs");
    let folder = std::env::var_os("INQUEST_PAIRS").map_or(ours, PathBuf::from);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of pairs")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let (mut pairs, mut same, mut other, mut ended) = (0, 0, 0, 0);
    let mut different = Vec::new();
    for path in paths.iter().filter(|path| path.to_string_lossy().ends_with("-a.txt")) {
        let name = path.to_string_lossy();
        let sides = [side(path), side(Path::new(&name.replace("-a.txt", "-b.txt")))];
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
        pairs += 1;
    }
    println!(
        "{pairs} pairs; snapshots as they were: {same} with the same settings, {other} with others; {ended} ended early"
    );
    assert!(different.is_empty(), "{} differ; the first: {}", different.len(), different[0]);
    assert!(pairs >= 3 && other > 0, "{pairs} {other}");
}
