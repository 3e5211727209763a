//! Time over a threshold, from readings in order of time.
//!
//! ```text
//! readings    o   o   x   x   x           x   x   o        x: over the threshold
//! spans               ├───────┤  not known├───────┤        half-open: from the first reading over it
//!                             └── a gap               └── to the first that is not
//! ```

use std::str::FromStr;

use serde::Serialize;
use trace_schema::Bytes;

/// What may not be exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Of the GPU's memory.
    Ratio(f64),
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
            None => text.parse().map(|Bytes(bytes)| Self::Bytes(bytes)).map_err(|_| bad()),
        }
    }
}

impl Threshold {
    /// In bytes, if it is known.
    pub fn bytes(self, total_bytes: Option<i64>) -> Option<i64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Ratio(ratio) => total_bytes.map(|total| (total as f64 * ratio) as i64),
        }
    }
}

/// How a span ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// At the first reading that is not over the threshold.
    Below,
    /// At the last reading before a gap.
    Gap,
    /// At the last reading, or with the process or the recording.
    Last,
}

/// Time over the threshold: `[ts, ts + dur)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub ts_ns: i64,
    pub dur_ns: i64,
    pub peak_bytes: i64,
    pub readings_count: u64,
    pub end: End,
    /// With the gaps around it, and the spans that only gaps lie between.
    #[serde(skip)]
    possible_ts_ns: i64,
    #[serde(skip)]
    possible_end_ns: i64,
}

/// Finds spans in readings in order of time.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    pub threshold_bytes: i64,
    /// Longest time between readings that is no gap.
    limit_ns: Option<i64>,
    pub spans: Vec<Span>,
    open: Option<Span>,
    pub first_ns: Option<i64>,
    pub last_ns: i64,
    pub peak_bytes: i64,
    pub readings_count: u64,
    pub gaps_count: u64,
    pub gaps_ns: i64,
}

impl Tracker {
    /// `limit_ns`: between readings, more is a gap.
    pub fn new(threshold_bytes: i64, limit_ns: Option<i64>) -> Self {
        Self { threshold_bytes, limit_ns, ..Self::default() }
    }

    fn close(&mut self, ts: i64, end: End, possible_end_ns: i64) {
        if let Some(span) = self.open.take() {
            let dur_ns = ts.saturating_sub(span.ts_ns);
            self.spans.push(Span { dur_ns, end, possible_end_ns, ..span });
        }
    }

    /// The next reading.
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

    /// Nothing is known after the last reading, or after `end` if that is later.
    pub fn finish(&mut self, end: i64) {
        self.last_ns = self.last_ns.max(end);
        self.close(self.last_ns, End::Last, self.last_ns);
    }
}

impl Span {
    /// How long it may have been, with the gaps around it.
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
