//! `_mark_samples`: a table with one row per mark and counter: the latest reading at the mark's start and at its end.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer, blocking},
    rows,
    rows::Rows,
};
use analyze_frame::{Moment, Reading, latest};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    events::Events,
};
use analyze_verdict::derived::Source;
use futures::TryStreamExt;
use trace_schema::Kind;

use super::def::TableDef;

/// Upper bound of the number of moments that are looked up at once, so that memory stays bounded however many marks there
/// are.
const MOMENTS: usize = 1 << 18;

const MARKS: &str = "SELECT run, ts, dur, CAST(op AS VARCHAR) AS op, CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, \
     CAST(detail AS VARCHAR) AS name FROM events WHERE kind = 'mark' ORDER BY run, ts";
const SAMPLES: &str = "SELECT run, ts, CAST(op AS VARCHAR) AS counter, CAST(device AS BIGINT) AS device, \
     CAST(pid AS BIGINT) AS pid, value FROM events WHERE kind = 'sample' AND value IS NOT NULL ORDER BY run, ts";

pub(crate) const TABLE: TableDef = TableDef {
    name: "_mark_samples",
    needs: &[Kind::Mark, Kind::Sample],
    schema: MarkSampleRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

rows! {
    /// A counter at a mark; ages are the time since the reading, in ns.
    struct MarkSampleRow<'a> => MarkSampleRows {
        run: &'a str,
        name: &'a str,
        op: &'a str,
        ts: i64,
        dur: Option<i64>,
        pid: u32,
        tid: u32,
        counter: &'a str,
        device: Option<i32>,
        start_value: Option<i64>,
        start_age_ns: Option<i64>,
        end_value: Option<i64>,
        end_age_ns: Option<i64>,
    }
}

/// A range or moment that the workload marked.
struct Mark {
    run: String,
    name: String,
    op: String,
    ts: i64,
    dur: Option<i64>,
    pid: u32,
    tid: u32,
}

/// What is counted: a counter of a device, or of a process.
#[derive(PartialEq)]
struct Counter {
    run: String,
    name: String,
    device: Option<i32>,
    /// The process that the counter belongs to; `None` for a device's.
    pid: Option<u32>,
}

impl Counter {
    fn is_of(&self, mark: &Mark) -> bool {
        self.run == mark.run && self.pid.is_none_or(|pid| pid == mark.pid)
    }
}

async fn marks(events: &dyn Events) -> Result<Vec<Mark>, AnalyzeError> {
    let mut marks = Vec::new();
    let mut batches = events.select(MARKS);
    while let Some(batch) = batches.try_next().await? {
        let (runs, names, ops) = (strings(&batch, "run")?, strings(&batch, "name")?, strings(&batch, "op")?);
        let [times, durs, pids, tids] = ["ts", "dur", "pid", "tid"].map(|name| integers(&batch, name));
        let (times, durs, pids, tids) = (times?, durs?, pids?, tids?);
        marks.extend((0..batch.num_rows()).map(|row| Mark {
            run: runs.value(row).to_owned(),
            name: names.at(row).unwrap_or_default().to_owned(),
            op: ops.at(row).unwrap_or_default().to_owned(),
            ts: times.value(row),
            dur: durs.at(row),
            pid: pids.at(row).unwrap_or_default() as u32,
            tid: tids.at(row).unwrap_or_default() as u32,
        }));
    }
    Ok(marks)
}

async fn readings(events: &dyn Events) -> Result<(Vec<Counter>, Vec<Reading>), AnalyzeError> {
    let (mut counters, mut readings) = (Vec::new(), Vec::new());
    let mut batches = events.select(SAMPLES);
    while let Some(batch) = batches.try_next().await? {
        let (runs, names) = (strings(&batch, "run")?, strings(&batch, "counter")?);
        let [times, devices, pids, values] =
            ["ts", "device", "pid", "value"].map(|name| integers(&batch, name));
        let (times, devices, pids, values) = (times?, devices?, pids?, values?);
        for row in 0..batch.num_rows() {
            let counter = Counter {
                run: runs.value(row).to_owned(),
                name: names.at(row).unwrap_or_default().to_owned(),
                device: devices.at(row).map(|device| device as i32),
                pid: pids.at(row).filter(|pid| *pid != 0).map(|pid| pid as u32),
            };
            // A run has some ten counters, and readings of one come close to each other.
            let known = counters.iter().rposition(|known| *known == counter);
            let number = known.unwrap_or_else(|| {
                counters.push(counter);
                counters.len() - 1
            });
            readings.push(Reading { counter: number as u32, ts: times.value(row), value: values.value(row) });
        }
    }
    Ok((counters, readings))
}

/// Writes the rows of some marks.
fn write(
    marks: &[(&Mark, u32)],
    counters: &[Counter],
    readings: &[Reading],
    writer: &mut Writer<MarkSampleRows>,
) -> Result<(), AnalyzeError> {
    let start = |(mark, counter): &(&Mark, u32)| Moment { counter: *counter, ts: mark.ts };
    // A range that is open at the end of the run, or a point, has no end: its start is looked up, and not used.
    let end = |(mark, counter): &(&Mark, u32)| Moment {
        counter: *counter,
        ts: mark.ts.saturating_add(mark.dur.unwrap_or(0)),
    };
    let starts = latest(readings, &marks.iter().map(start).collect::<Vec<_>>())?;
    let ends = latest(readings, &marks.iter().map(end).collect::<Vec<_>>())?;
    for (((mark, counter), start), end) in marks.iter().zip(starts).zip(ends) {
        let counter = &counters[*counter as usize];
        let end = mark.dur.and(end);
        writer.push(MarkSampleRow {
            run: &mark.run,
            name: &mark.name,
            op: &mark.op,
            ts: mark.ts,
            dur: mark.dur,
            pid: mark.pid,
            tid: mark.tid,
            counter: &counter.name,
            device: counter.device,
            start_value: start.map(|reading| reading.value),
            start_age_ns: start.map(|reading| mark.ts.saturating_sub(reading.ts)),
            end_value: end.map(|reading| reading.value),
            end_age_ns: end
                .zip(mark.dur)
                .map(|(reading, dur)| mark.ts.saturating_add(dur).saturating_sub(reading.ts)),
        });
        writer.send(false)?;
    }
    Ok(())
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let events = source.events();
    let marks = marks(&**events).await?;
    let (counters, readings) = readings(&**events).await?;
    blocking(move || {
        let mut writer = output.writer::<MarkSampleRows>();
        let mut asked: Vec<(&Mark, u32)> = Vec::new();
        for mark in &marks {
            let of_mark = counters.iter().enumerate().filter(|(_, counter)| counter.is_of(mark));
            asked.extend(of_mark.map(|(number, _)| (mark, number as u32)));
            if asked.len() >= MOMENTS {
                write(&asked, &counters, &readings, &mut writer)?;
                asked.clear();
            }
        }
        write(&asked, &counters, &readings, &mut writer)?;
        writer.send(true)
    })
    .await
}
