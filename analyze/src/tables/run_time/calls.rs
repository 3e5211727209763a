//! The top-level calls of one thread, at 16 bytes each: all of them stay in memory until the path is known.

/// A top-level call. `dur` is `u32::MAX` for one that is longer than that.
#[derive(Clone, Copy, Debug)]
struct Short {
    ts: i64,
    dur: u32,
    op: u32,
}

const _: () = assert!(size_of::<Short>() == 16);

/// The top-level calls of a thread, in the order of time. They do not overlap: one that begins before the last has ended
/// cuts it short.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Short>,
    /// Indices and ends in nanoseconds of those that are too long for their field.
    long: Vec<(usize, i64)>,
}

impl Calls {
    /// Adds a call over `[ts, end)`, in nanoseconds, that begins no earlier than the last one.
    pub(super) fn push(&mut self, ts: i64, end: i64, op: u32) {
        if let Some(last) = self.all.len().checked_sub(1)
            && self.end(last) > ts
        {
            self.set_end(last, ts);
        }
        self.all.push(Short { ts, dur: 0, op });
        self.set_end(self.all.len() - 1, end);
    }

    /// Number of calls.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Number of calls that begin before a time in nanoseconds.
    pub(super) fn before(&self, ts: i64) -> usize {
        self.all.partition_point(|call| call.ts < ts)
    }

    /// Start, end and function of each call. The end is `i64::MAX` if the recording has none.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64, u32)> {
        self.all.iter().enumerate().map(|(index, call)| (call.ts, self.end(index), call.op))
    }

    /// The time in nanoseconds from which on host code between two calls is a pause: ten times what 99 in 100 gaps between
    /// calls are shorter than, to a quarter of it, and at least 10 ms. `None` if the thread made too few calls to tell.
    pub(super) fn pause_ns(&self) -> Option<i64> {
        const LEAST_GAPS: usize = 500;
        const LEAST_NS: i64 = 10_000_000;
        // Gaps by their length: four classes for each power of two, so that no gap has to be kept.
        let mut classes = [0_usize; 256];
        let gaps =
            self.iter().zip(self.iter().skip(1)).map(|((_, end, _), (ts, ..))| ts.saturating_sub(end).max(0));
        let class = |ns: i64| match ns {
            0..4 => ns as usize,
            _ => (ns.ilog2() as usize) * 4 + ((ns >> (ns.ilog2() - 2)) & 3) as usize,
        };
        gaps.for_each(|ns| classes[class(ns).min(255)] += 1);
        let count: usize = classes.iter().sum();
        let mut shorter = 0;
        let usual = classes.iter().position(|gaps| {
            shorter += gaps;
            shorter * 100 >= count * 99
        })?;
        let (power, quarter) = (usual / 4, (usual % 4) as i64);
        let end_ns =
            if usual < 8 { 8 } else { (1_i64 << power).saturating_add((quarter + 1) << (power - 2)) };
        (count >= LEAST_GAPS).then(|| end_ns.saturating_mul(10).max(LEAST_NS))
    }

    /// Functions of the calls that begin in `[from, to)`, in nanoseconds.
    pub(super) fn begun(&self, from: i64, to: i64) -> impl Iterator<Item = u32> {
        let until = self.before(to);
        self.all[self.before(from).min(until)..until].iter().map(|call| call.op)
    }

    /// Start of the first call in nanoseconds.
    pub(super) fn first_ts(&self) -> Option<i64> {
        self.all.first().map(|call| call.ts)
    }

    /// The latest time in nanoseconds that a call is known to reach: the end of the last one, or its start if the recording has
    /// no end of it.
    pub(super) fn last_end(&self) -> Option<i64> {
        let last = self.all.len().checked_sub(1)?;
        Some(Some(self.end(last)).filter(|end| *end < i64::MAX).unwrap_or(self.all[last].ts))
    }

    fn end(&self, index: usize) -> i64 {
        let call = self.all[index];
        if call.dur < u32::MAX {
            return call.ts + i64::from(call.dur);
        }
        let found = self.long.binary_search_by_key(&index, |(of, _)| *of);
        found.map_or(call.ts + i64::from(u32::MAX), |at| self.long[at].1)
    }

    /// Sets the end of the last call.
    fn set_end(&mut self, index: usize, end: i64) {
        self.long.pop_if(|(of, _)| *of == index);
        let call = &mut self.all[index];
        call.dur = u32::try_from((end - call.ts).max(0)).unwrap_or(u32::MAX);
        if call.dur == u32::MAX {
            self.long.push((index, end));
        }
    }

    /// Cuts `[from, to)`, in nanoseconds, at the calls, and calls `piece` with start, end and the function of the call
    /// of each part in order; the function is `None` between calls. The parts cover the whole span.
    pub(super) fn cut(&self, from: i64, to: i64, mut piece: impl FnMut(i64, i64, Option<u32>)) {
        let mut at = from;
        // Ends are in order, as calls do not overlap.
        let mut index = self.all.partition_point(|call| call.ts <= from).saturating_sub(1);
        while at < to
            && let Some(call) = self.all.get(index)
            && call.ts < to
        {
            let end = self.end(index).min(to);
            if call.ts > at {
                piece(at, call.ts, None);
                at = call.ts;
            }
            if end > at {
                piece(at, end, Some(call.op));
                at = end;
            }
            index += 1;
        }
        if at < to {
            piece(at, to, None);
        }
    }

    /// Returns the end of the last call of some functions that begins before a time, or that time if the call is longer, and
    /// the start of the next one, in nanoseconds.
    pub(super) fn around(&self, ts: i64, is_wanted: impl Fn(u32) -> bool) -> (Option<i64>, Option<i64>) {
        let index = self.all.partition_point(|call| call.ts <= ts);
        let before = (0..index).rev().find(|index| is_wanted(self.all[*index].op));
        let after = self.all[index..].iter().find(|call| is_wanted(call.op));
        (before.map(|index| self.end(index).min(ts)), after.map(|call| call.ts))
    }

    /// Returns the function of the call that the thread is in at a time.
    pub(super) fn at(&self, ts: i64) -> Option<u32> {
        let index = self.all.partition_point(|call| call.ts <= ts).checked_sub(1)?;
        (self.end(index) > ts).then(|| self.all[index].op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_far_longer_than_what_is_usual() {
        let calls = |count: i64, gap_ns: i64| {
            let mut calls = Calls::default();
            (0..count).for_each(|number| calls.push(number * (gap_ns + 10), number * (gap_ns + 10) + 10, 1));
            calls
        };
        assert_eq!(calls(400, 20_000).pause_ns(), None);
        assert_eq!(calls(600, 20_000).pause_ns(), Some(10_000_000));
        let long = calls(600, 5_000_000).pause_ns().expect("enough gaps");
        assert!((50_000_000..=62_500_000).contains(&long), "{long}");
        assert_eq!(calls(600, 0).pause_ns(), Some(10_000_000));
        let mut open = calls(600, 20_000);
        open.push(i64::MAX - 10, i64::MAX, 1);
        assert_eq!(open.pause_ns(), Some(10_000_000));
    }

    #[test]
    fn calls_cut_a_span_from_end_to_end() {
        let long = i64::from(u32::MAX);
        let mut calls = Calls::default();
        calls.push(10, 20, 1);
        calls.push(30, 60, 2);
        calls.push(50, 70, 3);
        calls.push(100, 100 + 2 * long, 4);
        calls.push(200 + 2 * long, i64::MAX, 5);
        calls.push(200 + 3 * long, 200 + 3 * long, 6);
        let cut = |from, to| {
            let mut parts = Vec::new();
            calls.cut(from, to, |ts, end, op| parts.push((ts, end, op)));
            parts
        };
        let expected = [
            (0, 10, None),
            (10, 20, Some(1)),
            (20, 30, None),
            (30, 50, Some(2)),
            (50, 70, Some(3)),
            (70, 100, None),
            (100, 110, Some(4)),
        ];
        assert_eq!(cut(0, 110), expected);
        assert_eq!(cut(15, 18), [(15, 18, Some(1))]);
        assert_eq!(cut(20, 25), [(20, 25, None)]);
        assert_eq!(
            cut(long, 200 + 3 * long)[1..],
            [(100 + 2 * long, 200 + 2 * long, None), (200 + 2 * long, 200 + 3 * long, Some(5))]
        );
        assert_eq!(cut(300 + 3 * long, 301 + 3 * long), [(300 + 3 * long, 301 + 3 * long, None)]);
        assert_eq!((calls.at(9), calls.at(10), calls.at(20), calls.at(50)), (None, Some(1), None, Some(3)));
        assert_eq!((calls.at(99 + 2 * long), calls.at(100 + 2 * long)), (Some(4), None));
        assert_eq!((calls.count(), calls.first_ts(), calls.last_end()), (6, Some(10), Some(200 + 3 * long)));
        assert_eq!(Calls::default().at(5), None);
        let around = |ts| calls.around(ts, |op| op == 1 || op == 3);
        assert_eq!(
            (around(5), around(15), around(40)),
            ((None, Some(10)), (Some(15), Some(50)), (Some(20), Some(50)))
        );
        assert_eq!(around(90), (Some(70), None));
        let all = [
            (10, 20, 1),
            (30, 50, 2),
            (50, 70, 3),
            (100, 100 + 2 * long, 4),
            (200 + 2 * long, 200 + 3 * long, 5),
            (200 + 3 * long, 200 + 3 * long, 6),
        ];
        assert_eq!(calls.iter().collect::<Vec<_>>(), all);
        assert_eq!(calls.begun(30, 100).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((calls.before(30), calls.before(31), calls.begun(60, 30).count()), (1, 2, 0));
    }
}
