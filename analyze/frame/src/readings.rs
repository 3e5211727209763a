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
/// Readings and moments are put in one order, and a moment takes what stands before it of the same counter. polars' own
/// `join_asof` does that, too, but its feature brings the streaming engine: 160 crates.
///
/// # Errors
/// Returns an internal error if polars fails.
pub fn latest(readings: &[Reading], moments: &[Moment]) -> Result<Vec<Option<Reading>>, AnalyzeError> {
    let none = || Series::new_null("moment".into(), readings.len());
    let readings = df![
        "counter" => readings.iter().map(|reading| reading.counter).collect::<Vec<_>>(),
        "ts" => readings.iter().map(|reading| reading.ts).collect::<Vec<_>>(),
        "read" => readings.iter().map(|reading| reading.ts).collect::<Vec<_>>(),
        "value" => readings.iter().map(|reading| reading.value).collect::<Vec<_>>(),
        "moment" => none().cast(&DataType::UInt32).map_err(failed)?,
    ];
    let unread = vec![None::<i64>; moments.len()];
    let asked = df![
        "counter" => moments.iter().map(|moment| moment.counter).collect::<Vec<_>>(),
        "ts" => moments.iter().map(|moment| moment.ts).collect::<Vec<_>>(),
        "read" => &unread,
        "value" => &unread,
        "moment" => (0..moments.len() as u32).collect::<Vec<_>>(),
    ];
    let both = [readings.map_err(failed)?.lazy(), asked.map_err(failed)?.lazy()];
    let filled = |name| {
        let forward = col(name).fill_null_with_strategy(FillNullStrategy::Forward(None));
        forward.over([col("counter")]).map_err(failed)
    };
    let found = concat(both, UnionArgs::default())
        .map_err(failed)?
        // Readings come first, so that one at the very time of a moment counts.
        .sort(["ts"], SortMultipleOptions::default().with_maintain_order(true))
        .with_columns([filled("read")?, filled("value")?])
        .filter(col("moment").is_not_null())
        .sort(["moment"], SortMultipleOptions::default())
        .collect()
        .map_err(failed)?;
    let of = |name| found.column(name)?.i64();
    let (read, values) = (of("read").map_err(failed)?, of("value").map_err(failed)?);
    let reading = |(moment, (ts, value)): (&Moment, (Option<i64>, Option<i64>))| {
        Some(Reading { counter: moment.counter, ts: ts?, value: value? })
    };
    Ok(moments.iter().zip(read.iter().zip(values.iter())).map(reading).collect())
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
