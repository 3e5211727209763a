//! Turns phases that the workload names, through NVTX or the socket of `--marks`, into rows.

use std::{
    collections::{HashMap, HashSet, hash_map::RandomState},
    hash::BuildHasher,
};

use capture_wire::Name;
use trace_schema::{Kind, Row, Text};

use super::MarkKind;

/// Longest name that is kept, in bytes.
const NAME_BYTES: usize = 200;
/// Number of lines of one process that are recorded within a second of the process's own time.
const LINES_PER_S: u32 = 100_000;
/// Number of ranges that one process may have open at a time, and that all processes may.
const OPEN_PER_PROCESS: usize = 1 << 14;
const OPEN_COUNT: usize = 1 << 17;
/// Number of distinct names that a run keeps.
const NAMES_COUNT: usize = 1 << 18;

/// A range that has begun.
struct Open {
    ts_ns: i64,
    name: Text,
}

/// The open ranges of a thread that uses NVTX, the innermost last. There is at least one.
#[derive(Default)]
struct Pushed {
    open: Vec<Open>,
    /// Number of ranges within the last one that were dropped: their ends must not end another range.
    dropped_count: u64,
}

/// What one process has used of its limits.
#[derive(Default)]
struct Sender {
    /// When the second began in which its lines are counted, and how many came since.
    second_ns: i64,
    lines_count: u32,
    open_count: usize,
}

/// Ranges that have begun and not ended, and what was dropped: traced processes choose names and rate, so that both
/// are bounded.
#[derive(Default)]
pub(crate) struct Marks {
    /// Ranges of NVTX, by process and thread.
    pushed: HashMap<(u32, u32), Pushed>,
    /// Ranges of the socket, by process and name.
    begun: HashMap<(u32, Text), Vec<i64>>,
    senders: HashMap<u32, Sender>,
    open_count: usize,
    /// Hashes of the names that the run has, with a key that nobody can guess.
    names: HashSet<u64>,
    hasher: RandomState,
    lost_count: u64,
}

fn row(ts_ns: i64, end_ns: Option<i64>, op: &'static str, pid: u32, tid: u32, name: Text) -> Row {
    Row {
        // The time of a datagram comes from the wall clock: where it was set back meanwhile, the length is not known.
        dur: end_ns.and_then(|end_ns| end_ns.checked_sub(ts_ns)).filter(|dur| *dur >= 0),
        detail: Some(name),
        ..Row::new(ts_ns, Kind::Mark, op.into(), pid, tid)
    }
}

/// The text of an event, up to its NUL.
pub(crate) fn text(name: &Name) -> Text {
    let length = (name.length as usize).saturating_sub(1).min(name.text.len());
    String::from_utf8_lossy(&name.text[..length]).into_owned().into()
}

/// The first bytes of a name.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

impl Marks {
    /// Handles one NVTX call; returns the row that it completes, if any.
    pub(crate) fn nvtx(&mut self, kind: MarkKind, event: &Name) -> Option<Row> {
        let (ts_ns, pid, tid) = (event.ts as i64, event.pid, event.tid);
        match kind {
            MarkKind::Point => {
                let name = text(event);
                self.admit(&name).then(|| row(ts_ns, None, "point", pid, tid, name))
            }
            MarkKind::Push => {
                let name = text(event);
                let is_dropped = self.pushed.get(&(pid, tid)).is_some_and(|pushed| pushed.dropped_count > 0);
                if is_dropped {
                    self.lost_count += 1;
                }
                let is_kept = !is_dropped && self.admit(&name) && self.open_one(pid);
                if is_kept {
                    self.pushed.entry((pid, tid)).or_default().open.push(Open { ts_ns, name });
                } else if let Some(pushed) = self.pushed.get_mut(&(pid, tid)) {
                    pushed.dropped_count += 1;
                }
                None
            }
            // A pop without a push began before the recording did.
            MarkKind::Pop => {
                let pushed = self.pushed.get_mut(&(pid, tid))?;
                let ended = if pushed.dropped_count > 0 {
                    pushed.dropped_count -= 1;
                    None
                } else {
                    pushed.open.pop()
                };
                if pushed.open.is_empty() {
                    self.pushed.remove(&(pid, tid));
                }
                let open = ended?;
                self.close_one(pid);
                Some(row(open.ts_ns, Some(ts_ns), "range", pid, tid, open.name))
            }
        }
    }

    /// Handles one line from the socket, `begin NAME`, `end NAME`, or `NAME` for a point in time; returns the row that
    /// it completes, if any.
    pub(crate) fn line(&mut self, ts_ns: i64, pid: u32, line: &str) -> Option<Row> {
        let line = line.trim();
        if line.is_empty() || !self.in_time(ts_ns, pid) {
            return None;
        }
        match line.split_once(' ').map(|(word, name)| (word, cut(name.trim()))) {
            Some(("begin", name)) => {
                if self.admit(name) && self.open_one(pid) {
                    self.begun.entry((pid, Text::new(name))).or_default().push(ts_ns);
                }
                None
            }
            Some(("end", name)) => {
                let key = (pid, Text::new(name));
                let starts = self.begun.get_mut(&key)?;
                let start = starts.pop()?;
                if starts.is_empty() {
                    self.begun.remove(&key);
                }
                self.close_one(pid);
                Some(row(start, Some(ts_ns), "range", pid, pid, key.1))
            }
            _ => {
                let name = cut(line);
                self.admit(name).then(|| row(ts_ns, None, "point", pid, pid, Text::new(name)))
            }
        }
    }

    /// Counts marks that were dropped before they came here.
    pub(crate) fn lose(&mut self, count: u64) {
        self.lost_count += count;
    }

    /// Number of marks that were dropped because of a limit.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_count
    }

    /// Whether a process may send one more line now; counts the line, as lost if it may not.
    fn in_time(&mut self, ts_ns: i64, pid: u32) -> bool {
        const SECOND_NS: u64 = 1_000_000_000;
        let sender = self.senders.entry(pid).or_default();
        if ts_ns.abs_diff(sender.second_ns) >= SECOND_NS {
            (sender.second_ns, sender.lines_count) = (ts_ns, 0);
        }
        let may = sender.lines_count < LINES_PER_S;
        if may {
            sender.lines_count += 1;
        } else {
            self.lost_count += 1;
        }
        may
    }

    /// Whether the run has room for a name; counts the mark as lost if it has not.
    fn admit(&mut self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        let has_room = self.names.len() < NAMES_COUNT;
        let may = self.names.contains(&hash) || has_room && self.names.insert(hash);
        self.lost_count += u64::from(!may);
        may
    }

    /// Whether a process may open one more range; counts the range, as lost if it may not.
    fn open_one(&mut self, pid: u32) -> bool {
        let sender = self.senders.entry(pid).or_default();
        let may = sender.open_count < OPEN_PER_PROCESS && self.open_count < OPEN_COUNT;
        if may {
            sender.open_count += 1;
            self.open_count += 1;
        } else {
            self.lost_count += 1;
        }
        may
    }

    fn close_one(&mut self, pid: u32) {
        if let Some(sender) = self.senders.get_mut(&pid) {
            sender.open_count = sender.open_count.saturating_sub(1);
        }
        self.open_count = self.open_count.saturating_sub(1);
    }

    /// Processes that have sent marks and have not been ended.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.senders.keys().copied()
    }

    /// Forgets a process that ended; returns the ranges that it left open, as censored rows.
    pub(crate) fn end(&mut self, pid: u32) -> Vec<Row> {
        let theirs = Self {
            pushed: self.pushed.extract_if(|(owner, _), _| *owner == pid).collect(),
            begun: self.begun.extract_if(|(owner, _), _| *owner == pid).collect(),
            ..Self::default()
        };
        let open_count = self.senders.remove(&pid).map_or(0, |sender| sender.open_count);
        self.open_count = self.open_count.saturating_sub(open_count);
        theirs.open()
    }

    /// Ranges that are still open, as censored rows.
    pub(crate) fn open(self) -> Vec<Row> {
        let pushed = self.pushed.into_iter().flat_map(|((pid, tid), pushed)| {
            pushed.open.into_iter().map(move |open| row(open.ts_ns, None, "range", pid, tid, open.name))
        });
        let begun = self.begun.into_iter().flat_map(|((pid, name), starts)| {
            starts.into_iter().map(move |start| row(start, None, "range", pid, pid, name.clone()))
        });
        pushed.chain(begun).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_ranges_and_points() {
        let mut marks = Marks::default();
        assert!(marks.line(10, 1, "begin epoch 1\n").is_none());
        assert!(marks.line(11, 2, "end epoch 1").is_none(), "another process's range");
        let range = marks.line(30, 1, "end epoch 1").expect("a range");
        assert_eq!((range.ts, range.dur, range.detail.as_deref()), (10, Some(20), Some("epoch 1")));
        let point = marks.line(40, 1, "beginning").expect("a point");
        assert_eq!((&*point.op, point.dur, point.detail.as_deref()), ("point", None, Some("beginning")));
        assert!(marks.line(50, 1, "  ").is_none());
        assert!(marks.line(60, 1, "begin never ends").is_none());
        let long = marks.line(70, 1, &"ä".repeat(300)).expect("a point");
        assert_eq!(long.detail.map(|name| name.len()), Some(NAME_BYTES));
        assert!(marks.line(90, 1, "begin back in time").is_none());
        let backwards = marks.line(80, 1, "end back in time").expect("a range");
        assert_eq!((backwards.ts, backwards.dur), (90, None));
        let open = marks.open();
        assert_eq!((open.len(), open[0].ts, open[0].dur), (1, 60, None));
    }

    #[test]
    fn a_process_that_sends_too_fast_loses_its_own_lines_and_they_are_counted() {
        let mut marks = Marks::default();
        let sent = u64::from(LINES_PER_S) + 1_000;
        let recorded = (0..sent).filter(|at| marks.line(1 + *at as i64, 1, "step").is_some()).count() as u64;
        assert_eq!((recorded, marks.lost_count()), (u64::from(LINES_PER_S), 1_000));
        assert!(marks.line(1, 2, "step").is_some(), "another process is not slowed down");
        assert!(marks.line(1_000_000_001, 1, "step").is_some(), "the next second is new");
        // Eight lines a step, ten thousand steps a second, for three seconds: all of them are recorded.
        let mut marks = Marks::default();
        let completed = (0..240_000i64)
            .filter(|line| {
                let word = if line % 2 == 0 { "begin" } else { "end" };
                marks.line(line * 12_500, 1, &format!("{word} phase {}", line % 8 / 2)).is_some()
            })
            .count();
        assert_eq!((completed, marks.lost_count()), (120_000, 0));
    }

    #[test]
    fn open_ranges_are_bounded_and_those_dropped_end_no_other() {
        let mut marks = Marks::default();
        for depth in 0..OPEN_PER_PROCESS as i64 + 5 {
            assert!(marks.line(depth * 100_000, 1, "begin deeper").is_none());
        }
        assert_eq!(marks.lost_count(), 5);
        assert!(marks.line(0, 2, "begin mine").is_none());
        assert!(marks.line(7, 2, "end mine").is_some(), "another process has room");
        assert_eq!(marks.end(1).len(), OPEN_PER_PROCESS);
        assert_eq!((marks.open_count, marks.pids().collect::<Vec<_>>()), (0, vec![2]));

        let mut marks = Marks::default();
        let event = |ts: i64| Name { ts: ts as u64, pid: 1, tid: 1, ..bytemuck::Zeroable::zeroed() };
        for depth in 0..OPEN_PER_PROCESS as i64 + 2 {
            assert!(marks.nvtx(MarkKind::Push, &event(depth)).is_none());
        }
        assert_eq!(marks.lost_count(), 2);
        let end = |marks: &mut Marks| marks.nvtx(MarkKind::Pop, &event(1 << 20)).map(|row| row.ts);
        assert_eq!([end(&mut marks), end(&mut marks)], [None, None], "the two that were dropped");
        assert_eq!(end(&mut marks), Some(OPEN_PER_PROCESS as i64 - 1));
    }

    #[test]
    fn distinct_names_are_bounded() {
        let mut marks = Marks::default();
        let recorded = |marks: &mut Marks, from: usize, to: usize| {
            let line = |number: usize| (number as i64 * 100_000, number.to_string());
            (from..to).map(line).filter(|(ts_ns, name)| marks.line(*ts_ns, 1, name).is_some()).count()
        };
        assert_eq!(recorded(&mut marks, 0, NAMES_COUNT + 10), NAMES_COUNT);
        assert_eq!(marks.lost_count(), 10);
        assert_eq!(recorded(&mut marks, 0, 10), 10, "names that the run has are not new");
    }
}
