//! Readings of counters at moments.

use analyze_run::error::AnalyzeError;
use polars::prelude::*;

use crate::error::failed;

/// A reading of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Number of the counter.
    pub counter: u32,
    /// Time of the reading, in ns.
    pub ts: i64,
    /// The value, in the counter's unit.
    pub value: i64,
}

/// A moment at which a counter is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Number of the counter.
    pub counter: u32,
    /// Time, in ns.
    pub ts: i64,
}

/// Returns the latest reading at or before each moment, in the order of the moments; `None` if there is none yet.
///
/// Readings and moments are put in one order, by counter and then by time, and a moment takes what stands before it. polars'
/// own `join_asof` does that, too, but it brings the lazy engine: 36 crates.
///
/// # Errors
/// Returns an internal error if polars fails.
pub fn latest(readings: &[Reading], moments: &[Moment]) -> Result<Vec<Option<Reading>>, AnalyzeError> {
    let both = || {
        let of_reading = |get: fn(&Reading) -> i64| readings.iter().map(get).collect::<Vec<_>>();
        let of_moment = |get: fn(&Moment) -> i64| moments.iter().map(get).collect::<Vec<_>>();
        let counters = of_reading(|reading| reading.counter.into());
        let mut both = df![
            "counter" => &counters,
            "ts" => of_reading(|reading| reading.ts),
            "read_counter" => counters,
            "read" => of_reading(|reading| reading.ts),
            "value" => of_reading(|reading| reading.value),
            "moment" => vec![None::<i64>; readings.len()],
        ]?;
        let unread = vec![None::<i64>; moments.len()];
        both.vstack_mut(&df![
            "counter" => of_moment(|moment| moment.counter.into()),
            "ts" => of_moment(|moment| moment.ts),
            "read_counter" => &unread,
            "read" => &unread,
            "value" => &unread,
            "moment" => (0..moments.len() as i64).collect::<Vec<_>>(),
        ]?)?;
        // Readings come first, so that one at the very time of a moment counts.
        both.sort(["counter", "ts"], SortMultipleOptions::default().with_maintain_order(true))
    };
    let both = both().map_err(failed)?;
    let of = |name: &str| both.column(name)?.fill_null(FillNullStrategy::Forward(None))?.i64().cloned();
    let [read_counters, read, values] =
        ["read_counter", "read", "value"].map(|name| of(name).map_err(failed));
    let (read_counters, read, values) = (read_counters?, read?, values?);
    let order = both.column("moment").and_then(Column::i64).map_err(failed)?;
    let mut found = vec![None; moments.len()];
    for (row, place) in order.iter().enumerate() {
        let Some(place) = place.map(|place| place as usize) else { continue };
        let Moment { counter, .. } = moments[place];
        // What stands before the first reading of a counter is of another one.
        let reading = || Some(Reading { counter, ts: read.get(row)?, value: values.get(row)? });
        found[place] = reading().filter(|_| read_counters.get(row) == Some(counter.into()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_takes_the_latest_reading_of_its_counter() {
        let reading = |counter, ts, value| Reading { counter, ts, value };
        let moment = |counter, ts| Moment { counter, ts };
        let readings = [reading(0, 30, 3), reading(1, 10, -1), reading(0, 10, 1), reading(0, 20, 2)];
        let moments =
            [moment(0, 25), moment(1, 25), moment(0, 9), moment(0, 30), moment(2, 50), moment(0, 10)];
        assert_eq!(
            latest(&readings, &moments).unwrap(),
            [Some(readings[3]), Some(readings[1]), None, Some(readings[0]), None, Some(readings[2])]
        );
        assert_eq!(latest(&[], &moments[..1]).unwrap(), [None]);
        assert!(latest(&readings, &[]).unwrap().is_empty());
    }
}
