//! `_leak_sites`: a table with one row per allocator and site that has old blocks.

use analyze_engine::{derived_table::Writer, rows};
use analyze_memory::leaks::growth::Growth;

use super::of_growth::{OfGrowth, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<SiteRows>("_leak_sites");

rows! {
    /// A site: the code, thread and stream that allocated the same kind of blocks.
    struct SiteRow<'a> => SiteRows {
        run: &'a str,
        pid: u32,
        device: i32,
        is_leak: bool,
        frames: Option<&'a str>,
        tid: Option<u32>,
        stream: Option<u64>,
        blocks_count: i64,
        blocks_bytes: i64,
        smallest_bytes: i64,
        largest_bytes: i64,
        epoch_bytes: f64,
        share_ratio: f64,
        epochs_count: i64,
        possible_epochs_count: i64,
        first_epoch: i64,
        last_epoch: i64,
        horizon_epochs_count: i64,
        freed_count: i64,
        young_count: i64,
        young_bytes: i64,
        trend_bytes: Option<f64>,
        trend_low_bytes: Option<f64>,
        trend_high_bytes: Option<f64>,
        addr: Option<u64>,
        alloc_ts: Option<i64>,
    }
}

impl OfGrowth for SiteRows {
    fn add(writer: &mut Writer<Self>, growth: &Growth) {
        for site in &growth.sites {
            let (old, example) = (&site.old, site.examples.first());
            writer.push(SiteRow {
                run: &growth.run,
                pid: growth.pid,
                device: growth.device,
                is_leak: site.is_leak,
                frames: old.frames.as_deref(),
                tid: old.tid,
                stream: old.stream.filter(|id| *id != 0),
                blocks_count: old.blocks_count as i64,
                blocks_bytes: old.blocks_bytes,
                smallest_bytes: old.smallest_bytes as i64,
                largest_bytes: old.largest_bytes as i64,
                epoch_bytes: site.bytes_per_epoch,
                share_ratio: site.share_ratio,
                epochs_count: site.generations_count as i64,
                possible_epochs_count: site.possible_count as i64,
                first_epoch: site.first_epoch as i64,
                last_epoch: site.last_epoch as i64,
                horizon_epochs_count: site.horizon_epochs as i64,
                freed_count: site.freed_count as i64,
                young_count: site.young_count as i64,
                young_bytes: site.young_bytes,
                trend_bytes: site.trend.map(|trend| trend.bytes_per_epoch),
                trend_low_bytes: site.trend.map(|trend| trend.low_bytes_per_epoch),
                trend_high_bytes: site.trend.map(|trend| trend.high_bytes_per_epoch),
                addr: example.map(|block| block.addr),
                alloc_ts: example.map(|block| block.alloc_ts_ns),
            });
        }
    }
}
