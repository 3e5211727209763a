//! Slices of one kind and thread on tracks on which they nest.
//!
//! ```text
//! lane 0   ├──── a ────────────┤  ├ d ┤
//!             ├ b ┤
//! lane 1                ├── c ───────┤      c neither lies in a nor after it
//! ```
//! Slices come in the order of their begins. One that is open at the end of the run ends at [`OPEN`].

/// The end of a slice without end.
pub(super) const OPEN: i64 = i64::MAX;

/// Tracks, each with the ends of the slices that it is in, outermost first.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<(u64, Vec<i64>)>);

/// Where a slice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On this track.
    Track(u64),
    /// On a new one: it is the lane of this number.
    New(usize),
}

impl Lanes {
    /// Where the slice `[ts, end)` goes. Told are the track and end of each slice that is over by then.
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

    /// Adds a track, with a slice until `end` on it.
    pub(super) fn add(&mut self, track: u64, end: i64) {
        self.0.push((track, vec![end]));
    }

    /// The slices that are not over yet and have an end.
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
