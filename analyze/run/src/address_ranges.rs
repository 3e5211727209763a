//! Sets of addresses, stored as ranges that neither overlap nor touch.

use std::collections::BTreeMap;

/// A set of addresses. The map's key is the first address of a range; its value is the first address after
/// the range.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds the range of `size` bytes at `start`.
    pub fn insert(&mut self, start: u64, size: u64) {
        let mut start = start;
        let mut end = start.saturating_add(size);
        while let Some((found, found_end)) = self.ends.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if found_end < start {
                break;
            }
            start = start.min(found);
            end = end.max(found_end);
            self.ends.remove(&found);
        }
        self.ends.insert(start, end);
    }

    /// Returns whether the set contains every address of a range.
    pub fn covers(&self, start: u64, size: u64) -> bool {
        let end = start.saturating_add(size);
        self.ends.range(..=start).next_back().is_some_and(|(_, found_end)| *found_end >= end)
    }

    /// Returns the parts of a range that the set does not contain, each as (start, size in bytes).
    pub fn missing(&self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let end = start.saturating_add(size);
        let mut missing = Vec::new();
        let mut at = start;
        let before = self.ends.range(..start).next_back();
        for (found, found_end) in before.into_iter().chain(self.ends.range(start..end)) {
            if *found > at {
                missing.push((at, *found - at));
            }
            at = at.max(*found_end);
        }
        if at < end {
            missing.push((at, end - at));
        }
        missing
    }

    /// Removes a range, and returns the parts of it that the set did not contain, each as (start, size in
    /// bytes).
    pub fn remove(&mut self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let missing = self.missing(start, size);
        let end = start.saturating_add(size);
        while let Some((found, found_end)) = self.ends.range(..end).next_back().map(|(s, e)| (*s, *e)) {
            if found_end <= start {
                break;
            }
            self.ends.remove(&found);
            if found < start {
                self.ends.insert(found, start);
            }
            if end < found_end {
                self.ends.insert(end, found_end);
            }
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
        assert!(ranges.ends.is_empty());
        assert_eq!(ranges.missing(5, 0), []);
    }
}
