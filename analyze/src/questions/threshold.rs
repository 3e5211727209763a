//! Finds the time over a threshold in readings that are in order of time.
//!
//! ```text
//! readings    o   o   x   x   x           x   x   o        x: over the threshold
//! spans               ├───────┤ not known ├───────┤        half-open: from the first reading over it
//!                             └── a gap               └── to the first one that is not over it
//! ```

use std::str::FromStr;

use serde::Serialize;
use trace_schema::Bytes;

/// A limit on memory use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// A share (0 to 1) of the GPU's memory.
    Ratio(f64),
    /// A number of bytes.
    Bytes(i64),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is neither a part such as 90% nor a size such as 70GiB");
        match text.trim().strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.trim().parse().map_err(|_| bad())?;
                (0.0..=100.0).contains(&percent).then_some(Self::Ratio(percent / 100.0)).ok_or_else(bad)
            }
            // A number alone may have been meant as a percentage.
            None if text.trim().ends_with(|c: char| c.is_ascii_digit()) => Err(bad()),
            None => text.parse().map(|Bytes(bytes)| Self::Bytes(bytes)).map_err(|_| bad()),
        }
    }
}

impl Threshold {
    /// Returns the threshold in bytes, or `None` if it is a share and `total_bytes` is not known.
    pub fn bytes(self, total_bytes: Option<i64>) -> Option<i64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Ratio(ratio) => total_bytes.map(|total| (total as f64 * ratio) as i64),
        }
    }
}

/// The way in which a span ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It ends at the first reading that is not over the threshold.
    Below,
    /// It ends at the last reading before a gap.
    Gap,
    /// It ends at the last reading, or with the process or the recording.
    Last,
}

/// A span of time over the threshold: `[ts, ts + dur)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The first reading over the threshold (ns, trace clock).
    pub ts_ns: i64,
    /// The duration in ns.
    pub dur_ns: i64,
    /// The largest value in bytes.
    pub peak_bytes: i64,
    /// The number of readings over the threshold.
    pub readings_count: u64,
    /// The way in which it ends.
    pub end: End,
    /// The start (ns) with the gap before it and the spans that only gaps separate from it; below, the end
    /// with the gap after it.
    #[serde(skip)]
    possible_ts_ns: i64,
    #[serde(skip)]
    possible_end_ns: i64,
}

/// Finds spans in readings that are added in order of time.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    /// The threshold in bytes; a value must be larger to be over it.
    pub threshold_bytes: i64,
    /// The longest time between readings, in ns, that is not a gap; `None` means that there are no gaps.
    limit_ns: Option<i64>,
    /// The completed spans, in order of time.
    pub spans: Vec<Span>,
    open: Option<Span>,
    /// The time of the first reading (ns, trace clock).
    pub first_ns: Option<i64>,
    /// The last instant at which the value is known (ns, trace clock).
    pub last_ns: i64,
    /// The largest value in bytes.
    pub peak_bytes: i64,
    /// The number of readings.
    pub readings_count: u64,
    /// The number of gaps.
    pub gaps_count: u64,
    /// The total time of the gaps in ns.
    pub gaps_ns: i64,
}

impl Tracker {
    /// Creates a tracker; a longer time between readings than `limit_ns` is a gap, and without it there are
    /// no gaps.
    pub fn new(threshold_bytes: i64, limit_ns: Option<i64>) -> Self {
        Self { threshold_bytes, limit_ns, ..Self::default() }
    }

    fn close(&mut self, ts: i64, end: End, possible_end_ns: i64) {
        if let Some(span) = self.open.take() {
            let dur_ns = ts.saturating_sub(span.ts_ns);
            self.spans.push(Span { dur_ns, end, possible_end_ns, ..span });
        }
    }

    /// Adds the next reading: its time (ns) and value in bytes.
    pub fn add(&mut self, ts: i64, bytes: i64) {
        let passed = self.first_ns.map(|_| ts.saturating_sub(self.last_ns));
        let is_gap = passed.zip(self.limit_ns).is_some_and(|(passed, limit)| passed > limit);
        let mut possible_ts_ns = ts;
        if is_gap {
            self.gaps_count += 1;
            self.gaps_ns = self.gaps_ns.saturating_add(passed.unwrap_or_default());
            possible_ts_ns = self.open.map_or(self.last_ns, |span| span.possible_ts_ns);
            self.close(self.last_ns, End::Gap, ts);
        }
        if bytes > self.threshold_bytes {
            let new = Span {
                ts_ns: ts,
                dur_ns: 0,
                peak_bytes: bytes,
                readings_count: 0,
                end: End::Last,
                possible_ts_ns,
                possible_end_ns: ts,
            };
            let span = self.open.get_or_insert(new);
            span.peak_bytes = span.peak_bytes.max(bytes);
            span.readings_count += 1;
        } else {
            self.close(ts, End::Below, ts);
        }
        self.first_ns.get_or_insert(ts);
        self.last_ns = ts;
        self.peak_bytes = self.peak_bytes.max(bytes);
        self.readings_count += 1;
    }

    /// Ends the open span at the last reading, or at `end` (ns) if that is later.
    pub fn finish(&mut self, end: i64) {
        self.last_ns = self.last_ns.max(end);
        self.close(self.last_ns, End::Last, self.last_ns);
    }
}

impl Span {
    /// Returns the longest possible duration in ns: with the gaps around the span.
    pub fn possible_ns(&self) -> i64 {
        self.possible_end_ns.saturating_sub(self.possible_ts_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        assert_eq!("90%".parse(), Ok(Threshold::Ratio(0.9)));
        assert_eq!("70GiB".parse(), Ok(Threshold::Bytes(70 << 30)));
        for bad in ["", "90", "%", "-1%", "101%", "nan%", "1e400%"] {
            assert!(bad.parse::<Threshold>().is_err(), "{bad}");
        }
    }
}
