//! Turns phases that the workload names, through NVTX or the socket of `--marks`, into rows.

use std::collections::HashMap;

use capture_wire::Name;
use trace_schema::{Kind, Row, Text};

use super::MarkKind;

/// Longest name that is kept, in bytes.
const NAME_BYTES: usize = 200;

/// A range that has begun.
struct Open {
    ts_ns: i64,
    name: Text,
}

/// Ranges that have begun and not ended.
#[derive(Default)]
pub(crate) struct Marks {
    /// Ranges of NVTX: a stack per thread.
    pushed: HashMap<(u32, u32), Vec<Open>>,
    /// Ranges of the socket, by process and name.
    begun: HashMap<(u32, Text), Vec<i64>>,
}

fn row(ts_ns: i64, end_ns: Option<i64>, op: &'static str, pid: u32, tid: u32, name: Text) -> Row {
    Row {
        dur: end_ns.map(|end_ns| end_ns - ts_ns),
        detail: Some(name),
        ..Row::new(ts_ns, Kind::Mark, op.into(), pid, tid)
    }
}

/// The text of an event, up to its NUL.
pub(crate) fn text(name: &Name) -> Text {
    let length = (name.length as usize).saturating_sub(1).min(name.text.len());
    String::from_utf8_lossy(&name.text[..length]).into_owned().into()
}

impl Marks {
    /// Handles one NVTX call; returns the row that it completes, if any.
    pub(crate) fn nvtx(&mut self, kind: MarkKind, event: &Name) -> Option<Row> {
        let (ts_ns, pid, tid) = (event.ts as i64, event.pid, event.tid);
        match kind {
            MarkKind::Point => Some(row(ts_ns, None, "point", pid, tid, text(event))),
            MarkKind::Push => {
                let open = Open { ts_ns, name: text(event) };
                self.pushed.entry((pid, tid)).or_default().push(open);
                None
            }
            // A pop without a push began before the recording did.
            MarkKind::Pop => {
                let open = self.pushed.get_mut(&(pid, tid))?.pop()?;
                Some(row(open.ts_ns, Some(ts_ns), "range", pid, tid, open.name))
            }
        }
    }

    /// Handles one line from the socket, `begin NAME`, `end NAME`, or `NAME` for a point in time; returns the row that
    /// it completes, if any.
    pub(crate) fn line(&mut self, ts_ns: i64, pid: u32, line: &str) -> Option<Row> {
        let line = line.trim();
        let cut = |name: &str| {
            let mut end = name.len().min(NAME_BYTES);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            Text::new(&name[..end])
        };
        match line.split_once(' ').map(|(word, name)| (word, name.trim())) {
            Some(("begin", name)) => {
                self.begun.entry((pid, cut(name))).or_default().push(ts_ns);
                None
            }
            Some(("end", name)) => {
                let name = cut(name);
                let key = (pid, name.clone());
                let starts = self.begun.get_mut(&key)?;
                let start = starts.pop()?;
                if starts.is_empty() {
                    self.begun.remove(&key);
                }
                Some(row(start, Some(ts_ns), "range", pid, pid, name))
            }
            _ if line.is_empty() => None,
            _ => Some(row(ts_ns, None, "point", pid, pid, cut(line))),
        }
    }

    /// Ranges that a process left open when it ended, as censored rows.
    pub(crate) fn end(&mut self, pid: u32) -> Vec<Row> {
        let theirs = Self {
            pushed: self.pushed.extract_if(|(owner, _), _| *owner == pid).collect(),
            begun: self.begun.extract_if(|(owner, _), _| *owner == pid).collect(),
        };
        theirs.open()
    }

    /// Ranges that are still open, as censored rows.
    pub(crate) fn open(self) -> Vec<Row> {
        let pushed = self.pushed.into_iter().flat_map(|((pid, tid), stack)| {
            stack.into_iter().map(move |open| row(open.ts_ns, None, "range", pid, tid, open.name))
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
        let open = marks.open();
        assert_eq!((open.len(), open[0].ts, open[0].dur), (1, 60, None));
    }
}
