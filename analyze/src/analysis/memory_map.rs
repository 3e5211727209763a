//! Where blocks lay at an instant, and how long the largest ones lived: what the figures of the report show.

use serde::Serialize;

use crate::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    trace::Trace,
};

/// Segments shown; the largest.
const SEGMENTS: usize = 40;
/// Blocks whose lives are shown: those with most bytes for longest.
const LIVES: usize = 60;

/// A block at the instant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Block {
    /// From the beginning of its segment.
    pub(crate) offset_bytes: u64,
    pub(crate) size_bytes: u64,
    pub(crate) state: String,
}

/// A segment at the instant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Segment {
    pub(crate) pid: u32,
    pub(crate) addr: u64,
    pub(crate) size_bytes: u64,
    pub(crate) blocks: Vec<Block>,
}

/// One block while it was handed out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Life {
    pub(crate) addr: u64,
    pub(crate) size_bytes: u64,
    pub(crate) ts_ns: i64,
    /// `None`: to the end of the run.
    pub(crate) dur_ns: Option<i64>,
}

/// The map.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Map {
    /// Largest first.
    pub(crate) segments: Vec<Segment>,
    pub(crate) segments_count: usize,
    /// In the order of their beginning.
    pub(crate) lives: Vec<Life>,
    pub(crate) lives_count: usize,
}

/// The state of every segment at `ts`, and the longest lives of the run.
///
/// # Errors
/// If the run's data cannot be read.
pub(crate) async fn run(trace: &Trace, ts: i64) -> Result<Map, AnalyzeError> {
    let at = format!("ts <= {ts} AND (dur IS NULL OR ts + dur > {ts})");
    let mut map = Map::default();
    let query = format!(
        "SELECT pid, addr, size_bytes FROM memory_segments WHERE {at} ORDER BY size_bytes DESC, pid, addr"
    );
    for batch in trace.batches(&query).await? {
        let (pid, addr, size) =
            (integers(&batch, "pid")?, integers(&batch, "addr")?, integers(&batch, "size_bytes")?);
        map.segments_count += batch.num_rows();
        let wanted = SEGMENTS.saturating_sub(map.segments.len()).min(batch.num_rows());
        map.segments.extend((0..wanted).map(|row| Segment {
            pid: pid.value(row) as u32,
            addr: addr.value(row) as u64,
            size_bytes: size.value(row) as u64,
            blocks: Vec::new(),
        }));
    }
    let query = format!(
        "SELECT pid, addr, size_bytes, state FROM memory_blocks WHERE {at} AND segment_addr IS NOT NULL ORDER BY addr"
    );
    for batch in trace.batches(&query).await? {
        let (pid, addr, size) =
            (integers(&batch, "pid")?, integers(&batch, "addr")?, integers(&batch, "size_bytes")?);
        let state = strings(&batch, "state")?;
        for row in 0..batch.num_rows() {
            let Some(segment) = map.segments.iter_mut().find(|segment| {
                // An expandable one may have grown since: its blocks name it as it was when they ended.
                segment.pid == pid.value(row) as u32
                    && (segment.addr..segment.addr + segment.size_bytes).contains(&(addr.value(row) as u64))
            }) else {
                continue;
            };
            segment.blocks.push(Block {
                offset_bytes: addr.value(row) as u64 - segment.addr,
                size_bytes: size.value(row) as u64,
                state: state.value(row).to_owned(),
            });
        }
    }
    let end = trace.files().first().map_or(0, |file| file.run.clock.end_ns);
    let query = format!(
        "SELECT addr, size_bytes, ts, dur, count(*) OVER () AS n FROM memory_blocks WHERE state = 'active_allocated' \
         ORDER BY CAST(size_bytes AS DOUBLE) * coalesce(dur, {end} - ts) DESC, ts, addr LIMIT {LIVES}"
    );
    for batch in trace.batches(&query).await? {
        let (addr, size) = (integers(&batch, "addr")?, integers(&batch, "size_bytes")?);
        let (ts, dur, n) = (integers(&batch, "ts")?, integers(&batch, "dur")?, integers(&batch, "n")?);
        for row in 0..batch.num_rows() {
            map.lives_count = n.value(row) as usize;
            map.lives.push(Life {
                addr: addr.value(row) as u64,
                size_bytes: size.value(row) as u64,
                ts_ns: ts.value(row),
                dur_ns: dur.at(row),
            });
        }
    }
    map.lives.sort_by_key(|life| (life.ts_ns, life.addr));
    Ok(map)
}
