//! Distributes the slices of one kind and thread over tracks such that the slices of each track nest.
//!
//! ```text
//! lane 0   ├──── a ────────────┤  ├ d ┤
//!             ├ b ┤
//! lane 1                ├── c ───────┤      c is neither within a nor after it
//! ```
//! Slices arrive in the order of their start times. A slice that is still open when the run ends has the end
//! [`OPEN`].

/// End of a slice that did not end.
pub(super) const OPEN: i64 = i64::MAX;

/// Tracks, each with the ends of its open slices, outermost first.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<(u64, Vec<i64>)>);

/// Track on which a slice is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An existing track, by its ID.
    Track(u64),
    /// A new track, which becomes the lane with this number.
    New(usize),
}

impl Lanes {
    /// Places the slice `[ts, end)`. Appends to `ended` the track and end of each slice that has ended by
    /// `ts`.
    pub(super) fn place(&mut self, ts: i64, end: i64, ended: &mut Vec<(u64, i64)>) -> Place {
        for (track, ends) in &mut self.0 {
            while let Some(over) = ends.pop_if(|end| *end <= ts) {
                ended.push((*track, over));
            }
            if ends.last().is_none_or(|around| *around >= end) {
                ends.push(end);
                return Place::Track(*track);
            }
        }
        Place::New(self.0.len())
    }

    /// Adds a track that holds one slice, open until `end`.
    pub(super) fn add(&mut self, track: u64, end: i64) {
        self.0.push((track, vec![end]));
    }

    /// Returns the track and end of the remaining open slices that have an end.
    pub(super) fn rest(self) -> impl Iterator<Item = (u64, i64)> {
        let of = |(track, ends): (u64, Vec<i64>)| ends.into_iter().rev().map(move |end| (track, end));
        self.0.into_iter().flat_map(of).filter(|(_, end)| *end != OPEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_nest_has_a_lane_of_its_own() {
        let (mut lanes, mut ended) = (Lanes::default(), Vec::new());
        assert_eq!(lanes.place(0, 10, &mut ended), Place::New(0));
        lanes.add(7, 10);
        assert_eq!(lanes.place(1, 3, &mut ended), Place::Track(7));
        assert_eq!(lanes.place(4, 12, &mut ended), Place::New(1));
        lanes.add(8, 12);
        assert_eq!(ended, [(7, 3)]);
        assert_eq!(lanes.place(10, OPEN, &mut ended), Place::Track(7));
        assert_eq!(lanes.place(11, 11, &mut ended), Place::Track(7));
        assert_eq!(lanes.place(11, 12, &mut ended), Place::Track(7));
        assert_eq!(ended, [(7, 3), (7, 10), (7, 11)]);
        assert_eq!(lanes.rest().collect::<Vec<_>>(), [(7, 12), (8, 12)]);
    }
}
