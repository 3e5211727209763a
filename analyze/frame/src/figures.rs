//! Figures of runs: a long frame with one row per run and figure.

use std::ops::Range;

use analyze_run::error::AnalyzeError;
use polars::{frame::PivotColumnNaming, prelude::*};

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

/// Median of values, and the median of their absolute deviations from it (MAD).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Median, in the unit of the values.
    pub median: f64,
    /// Median absolute deviation, not scaled to a standard deviation, in the unit of the values.
    pub mad: f64,
}

/// The figures of some runs, in the order of figures and then of runs: 20 bytes a value.
#[derive(Clone, Debug)]
pub struct Frame {
    rows: DataFrame,
    runs: UInt32Chunked,
    values: Float64Chunked,
    calls: Int64Chunked,
    /// End of the rows of each figure; figures are numbered without gaps.
    ends: Vec<usize>,
}

impl Frame {
    /// Builds a frame of entries in any order. A figure is there at most once a run.
    ///
    /// # Errors
    /// Returns an internal error if polars refuses the columns.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, AnalyzeError> {
        entries.sort_unstable_by_key(|entry| (entry.figure, entry.run));
        let figures_count = entries.last().map_or(0, |entry| entry.figure + 1);
        let mut ends = vec![0; figures_count as usize];
        for entry in &entries {
            ends[entry.figure as usize] += 1;
        }
        (1..ends.len()).for_each(|figure| ends[figure] += ends[figure - 1]);
        let figure: Vec<u32> = entries.iter().map(|entry| entry.figure).collect();
        let runs = UInt32Chunked::from_vec("run".into(), entries.iter().map(|entry| entry.run).collect());
        let values =
            Float64Chunked::from_vec("value".into(), entries.iter().map(|entry| entry.value).collect());
        let calls: Int64Chunked = entries.iter().map(|entry| entry.calls_count).collect();
        let columns = vec![
            Column::new("figure".into(), figure),
            runs.clone().into_column(),
            values.clone().into_column(),
        ];
        let rows = DataFrame::new(entries.len(), columns).map_err(failed)?;
        Ok(Self { rows, runs, values, calls, ends })
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
        let names: Vec<u32> = (0..self.ends.len() as u32).collect();
        let on = df!["figure" => names].map_err(failed)?;
        let runs = df!["run" => (0..runs_count).collect::<Vec<_>>()].map_err(failed)?;
        let by = |name: &str| Selector::ByName { names: [name.into()].into(), strict: true };
        let pivoted = self.rows.clone().lazy().pivot(
            by("figure"),
            Arc::new(on),
            by("run"),
            by("value"),
            element().first(),
            false,
            "_".into(),
            PivotColumnNaming::Auto,
        );
        // A run without any figure has a row, too.
        let all = runs
            .lazy()
            .join(pivoted, [col("run")], [col("run")], JoinArgs::new(JoinType::Left))
            .sort(["run"], SortMultipleOptions::default())
            .collect()
            .map_err(failed)?;
        let column = |name: u32| Ok(all.column(&name.to_string())?.f64()?.iter().collect());
        (0..self.ends.len() as u32).map(column).collect::<PolarsResult<_>>().map_err(failed)
    }

    /// Returns, for each value of a figure, the level of the up to `window` values before it, in the order of runs. The
    /// value itself is left out. `None`: fewer than `least` values come before.
    ///
    /// # Errors
    /// Returns an internal error if polars fails.
    pub fn levels(&self, figure: u32, window: u32, least: u32) -> Result<Vec<Option<Level>>, AnalyzeError> {
        let range = self.range(figure);
        let values = self.values.slice(range.start as i64, range.len()).into_column();
        let count = range.len() as u32;
        let places = |name: &str, places: Vec<u32>| Column::new(name.into(), places);
        let series = vec![places("place", (0..count).collect()), values];
        let series = DataFrame::new(range.len(), series).map_err(failed)?;
        // Every place beside each place of its window. polars' own `rolling` needs time zones, which are 4 crates more.
        let before = |at: u32| (at.saturating_sub(window)..at).map(move |before| (before, at));
        let (before, at): (Vec<u32>, Vec<u32>) = (0..count).flat_map(before).unzip();
        let pairs =
            DataFrame::new(at.len(), vec![places("place", before), places("at", at)]).map_err(failed)?;
        let value = || col("value");
        let levels = pairs
            .lazy()
            .join(series.lazy(), [col("place")], [col("place")], JoinArgs::new(JoinType::Inner))
            .group_by([col("at")])
            .agg([
                value().median().alias("median"),
                (value() - value().median()).abs().median().alias("mad"),
                value().len().alias("count"),
            ])
            .filter(col("count").gt_eq(lit(least)));
        let all = DataFrame::new(range.len(), vec![places("at", (0..count).collect())]).map_err(failed)?;
        let levels = all
            .lazy()
            .join(levels, [col("at")], [col("at")], JoinArgs::new(JoinType::Left))
            .sort(["at"], SortMultipleOptions::default())
            .collect()
            .map_err(failed)?;
        let of = |name| levels.column(name)?.f64();
        let (medians, mads) = (of("median").map_err(failed)?, of("mad").map_err(failed)?);
        let level = |(median, mad): (Option<f64>, Option<f64>)| Some(Level { median: median?, mad: mad? });
        Ok(medians.iter().zip(mads.iter()).map(level).collect())
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
        let entries = [entry(2, 1, 4.0), entry(0, 2, 3.0), entry(0, 0, 1.0), entry(2, 3, 5.0)];
        let frame = Frame::new(entries.to_vec()).unwrap();
        assert_eq!(frame.of_figure(0).collect::<Vec<_>>(), [entries[2], entries[1]]);
        assert_eq!((frame.of_figure(1).count(), frame.of_figure(9).count()), (0, 0));
        assert_eq!((frame.get(2, 3), frame.get(0, 0)), (Some(entries[3]), Some(entries[2])));
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
        let empty = Frame::new(Vec::new()).unwrap();
        assert_eq!((empty.wide(2).unwrap().len(), empty.levels(0, 5, 5).unwrap().len()), (0, 0));
    }

    #[test]
    fn levels_are_those_of_the_values_before() {
        let value = |place: u32| f64::from(place * 7919 % 101) / 3.0;
        let entries = (0..3).flat_map(|figure| {
            (0..40).map(move |run| entry(figure, 2 * run, value(run) + f64::from(figure)))
        });
        let frame = Frame::new(entries.collect()).unwrap();
        let median = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
        };
        let levels = frame.levels(1, 8, 5).unwrap();
        assert_eq!(levels.len(), 40);
        for (place, level) in levels.iter().enumerate() {
            let before: Vec<f64> =
                (place.saturating_sub(8)..place).map(|place| value(place as u32) + 1.0).collect();
            if before.len() < 5 {
                assert_eq!(*level, None);
                continue;
            }
            let centre = median(&before);
            let mad = median(&before.iter().map(|value| (value - centre).abs()).collect::<Vec<_>>());
            let level = level.unwrap();
            assert!(
                (level.median - centre).abs() < 1e-9 && (level.mad - mad).abs() < 1e-9,
                "{place}: {level:?}"
            );
        }
    }
}
