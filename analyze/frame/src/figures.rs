//! Figures of runs: a long frame with one row per run and figure.

use std::ops::Range;

use analyze_run::error::AnalyzeError;
use polars::prelude::*;

use crate::error::failed;

/// The value of a figure in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Number of the figure.
    pub figure: u32,
    /// Number of the run.
    pub run: u32,
    /// The value, in the figure's unit.
    pub value: f64,
    /// Number of calls that the value rests on; `None` if unknown.
    pub calls_count: Option<i64>,
}

/// The figures of some runs, in the order of figures and then of runs: columns of 20 bytes a value.
#[derive(Clone, Debug)]
pub struct Frame {
    runs: UInt32Chunked,
    values: Float64Chunked,
    calls: Int64Chunked,
    /// End of the rows of each figure; figures are numbered without gaps.
    ends: Vec<usize>,
}

impl Frame {
    /// Builds a frame of entries in the order of figures and then of runs, with a figure at most once a run.
    ///
    /// # Errors
    /// Returns an internal error if the entries are in another order.
    pub fn new(entries: &[Entry]) -> Result<Self, AnalyzeError> {
        if !entries.is_sorted_by(|a, b| (a.figure, a.run) < (b.figure, b.run)) {
            return Err(AnalyzeError::Internal("the figures of a frame are not in order".to_owned()));
        }
        let figures_count = entries.last().map_or(0, |entry| entry.figure + 1);
        let mut ends = vec![0; figures_count as usize];
        for entry in entries {
            ends[entry.figure as usize] += 1;
        }
        (1..ends.len()).for_each(|figure| ends[figure] += ends[figure - 1]);
        let runs = UInt32Chunked::from_vec("run".into(), entries.iter().map(|entry| entry.run).collect());
        let values =
            Float64Chunked::from_vec("value".into(), entries.iter().map(|entry| entry.value).collect());
        let calls: Int64Chunked = entries.iter().map(|entry| entry.calls_count).collect();
        Ok(Self { runs, values, calls, ends })
    }

    fn range(&self, figure: u32) -> Range<usize> {
        let figure = figure as usize;
        let start = figure.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        start..self.ends.get(figure).copied().unwrap_or(start).max(start)
    }

    fn entry(&self, figure: u32, row: usize) -> Option<Entry> {
        let (run, value) = (self.runs.get(row)?, self.values.get(row)?);
        Some(Entry { figure, run, value, calls_count: self.calls.get(row) })
    }

    /// Returns the values of a figure, in the order of runs; none for a figure that is not there.
    pub fn of_figure(&self, figure: u32) -> impl Iterator<Item = Entry> {
        self.range(figure).filter_map(move |row| self.entry(figure, row))
    }

    /// Returns the value of a figure in a run, if the run has it.
    pub fn get(&self, figure: u32, run: u32) -> Option<Entry> {
        let Range { mut start, mut end } = self.range(figure);
        while start < end {
            let middle = start.midpoint(end);
            if self.runs.get(middle)? < run {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        self.entry(figure, start).filter(|entry| entry.run == run && self.range(figure).contains(&start))
    }

    /// Returns all values, in the order of figures and then of runs.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.ends.len() as u32).flat_map(|figure| self.of_figure(figure))
    }

    /// Pivots the frame: for each figure its value in each of the runs 0 to `runs_count`, `None` where a run lacks it.
    ///
    /// # Errors
    /// Returns an internal error if polars fails.
    pub fn wide(&self, runs_count: u32) -> Result<Vec<Vec<Option<f64>>>, AnalyzeError> {
        let pivot = |figure: u32| {
            // The row of each run; a run without the figure has none.
            let mut rows: Vec<Option<IdxSize>> = vec![None; runs_count as usize];
            for row in self.range(figure) {
                if let Some(place) = self.runs.get(row).and_then(|run| rows.get_mut(run as usize)) {
                    *place = Some(row as IdxSize);
                }
            }
            Ok(self.values.take(&rows.into_iter().collect_ca("row".into()))?.iter().collect())
        };
        (0..self.ends.len() as u32).map(pivot).collect::<PolarsResult<_>>().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(figure: u32, run: u32, value: f64) -> Entry {
        Entry { figure, run, value, calls_count: (run == 0).then_some(7) }
    }

    #[test]
    fn entries_are_found_and_pivoted() {
        let entries = [entry(0, 0, 1.0), entry(0, 2, 3.0), entry(2, 1, 4.0), entry(2, 3, 5.0)];
        let frame = Frame::new(&entries).unwrap();
        assert_eq!(frame.of_figure(0).collect::<Vec<_>>(), entries[..2]);
        assert_eq!((frame.of_figure(1).count(), frame.of_figure(9).count()), (0, 0));
        assert_eq!((frame.get(2, 3), frame.get(0, 0)), (Some(entries[3]), Some(entries[0])));
        assert_eq!(
            (frame.get(0, 1), frame.get(0, 3), frame.get(1, 0), frame.get(9, 0)),
            (None, None, None, None)
        );
        assert_eq!(frame.entries().count(), 4);
        let none = vec![None; 5];
        assert_eq!(
            frame.wide(5).unwrap(),
            [
                vec![Some(1.0), None, Some(3.0), None, None],
                none,
                vec![None, Some(4.0), None, Some(5.0), None]
            ]
        );
        assert!(Frame::new(&[]).unwrap().wide(2).unwrap().is_empty());
        assert!(
            Frame::new(&[entries[1], entries[0]]).is_err() && Frame::new(&entries[..1].repeat(2)).is_err()
        );
    }
}
