//! Sets of addresses, stored as ranges that neither overlap nor touch.

use std::ops::Range;

use rangemap::RangeSet;

/// A set of addresses.
#[derive(Clone, Debug, Default)]
pub struct Ranges(RangeSet<u64>);

/// Returns the range of `size` bytes at `start`, cut at the last address; `None`: it is empty, and [`RangeSet`] would panic.
fn range(start: u64, size: u64) -> Option<Range<u64>> {
    let end = start.saturating_add(size);
    (start < end).then_some(start..end)
}

impl Ranges {
    /// Adds the range of `size` bytes at `start`.
    pub fn insert(&mut self, start: u64, size: u64) {
        if let Some(range) = range(start, size) {
            self.0.insert(range);
        }
    }

    /// Returns whether the set contains every address of a range.
    pub fn covers(&self, start: u64, size: u64) -> bool {
        range(start, size).is_none_or(|range| self.0.gaps(&range).next().is_none())
    }

    /// Returns the parts of a range that the set does not contain, each as (start, size in bytes).
    pub fn missing(&self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let Some(range) = range(start, size) else { return Vec::new() };
        self.0.gaps(&range).map(|gap| (gap.start, gap.end - gap.start)).collect()
    }

    /// Removes a range, and returns the parts of it that the set did not contain, each as (start, size in bytes).
    pub fn remove(&mut self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let missing = self.missing(start, size);
        if let Some(range) = range(start, size) {
            self.0.remove(range);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_split() {
        let mut ranges = Ranges::default();
        ranges.insert(100, 10);
        ranges.insert(120, 10);
        ranges.insert(110, 10);
        assert!(ranges.covers(100, 30) && !ranges.covers(100, 31) && !ranges.covers(99, 2));
        assert_eq!(ranges.remove(105, 10), []);
        assert_eq!(ranges.remove(100, 10), [(105, 5)]);
        assert!(!ranges.covers(105, 1) && !ranges.covers(100, 1) && ranges.covers(115, 15));
        ranges.insert(140, 5);
        assert_eq!(ranges.missing(110, 40), [(110, 5), (130, 10), (145, 5)]);
        assert_eq!(ranges.missing(116, 4), []);
        ranges.insert(0, u64::MAX);
        assert!(ranges.covers(1, u64::MAX - 2));
        assert_eq!(ranges.remove(0, u64::MAX), []);
        assert!(ranges.0.is_empty());
        assert_eq!(ranges.missing(5, 0), []);
    }
}
