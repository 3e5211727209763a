//! `_memory_epochs`: a table with one row per allocator and bound of its epochs.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, blocking},
    rows,
    rows::Rows,
};
use analyze_memory::leaks::growth::{self, Params};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use trace_schema::Kind;

use crate::tables::def::TableDef;

/// The table.
pub(crate) const TABLE: TableDef = TableDef {
    name: "_memory_epochs",
    needs: &[Kind::Alloc],
    schema: EpochRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

rows! {
    /// The memory of an allocator where an epoch ends.
    struct EpochRow<'a> => EpochRows {
        run: &'a str,
        pid: u32,
        device: i32,
        epoch: i64,
        ts: i64,
        is_warm_up: bool,
        live_bytes: i64,
        pending_bytes: i64,
        reserved_bytes: i64,
        releasable_bytes: i64,
        pinned_bytes: i64,
        unknown_bytes: i64,
        survived_count: i64,
        survived_bytes: i64,
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let allocators = growth::run(source.events(), source.files(), &Params::default()).await?;
    blocking(move || {
        let mut writer = output.writer::<EpochRows>();
        for growth in &allocators {
            for (epoch, point) in growth.points.iter().enumerate() {
                writer.push(EpochRow {
                    run: &growth.run,
                    pid: growth.pid,
                    device: growth.device,
                    epoch: epoch as i64,
                    ts: point.ts_ns,
                    is_warm_up: epoch <= growth.warm_up_count,
                    live_bytes: point.live_bytes,
                    pending_bytes: point.pending_bytes,
                    reserved_bytes: point.reserved_bytes,
                    releasable_bytes: point.releasable_bytes,
                    pinned_bytes: point.pinned_bytes,
                    unknown_bytes: point.unknown_bytes,
                    survived_count: point.survived_count as i64,
                    survived_bytes: point.survived_bytes,
                });
            }
        }
        writer.send(true)
    })
    .await
}
