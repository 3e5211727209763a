//! `_leaks`: a table with one row per allocator: whether it leaks, and the account of its memory.

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
    name: "_leaks",
    needs: &[Kind::Alloc],
    schema: AllocatorRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

rows! {
    /// An allocator; the epochs are those that its memory was counted by.
    struct AllocatorRow<'a> => AllocatorRows {
        run: &'a str,
        pid: u32,
        device: i32,
        verdict: &'a str,
        reason: Option<&'a str>,
        epochs: &'a str,
        epochs_count: i64,
        warm_up_count: i64,
        before_bytes: i64,
        given_back_bytes: i64,
        leaked_bytes: i64,
        kept_once_bytes: i64,
        young_bytes: i64,
        after_bytes: i64,
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let allocators = growth::run(source.events(), source.files(), &Params::default()).await?;
    blocking(move || {
        let mut writer = output.writer::<AllocatorRows>();
        for growth in &allocators {
            let account = &growth.account;
            let reasons = growth.reasons.join("; ");
            writer.push(AllocatorRow {
                run: &growth.run,
                pid: growth.pid,
                device: growth.device,
                verdict: growth.verdict.name(),
                reason: (!growth.reasons.is_empty()).then_some(reasons.as_str()),
                epochs: &growth.epochs.label(),
                epochs_count: growth.epochs_count as i64,
                warm_up_count: growth.warm_up_count as i64,
                before_bytes: account.before_bytes,
                given_back_bytes: account.given_back_bytes,
                leaked_bytes: account.leaked_bytes,
                kept_once_bytes: account.kept_once_bytes,
                young_bytes: account.young_bytes,
                after_bytes: account.after_bytes,
            });
        }
        writer.send(true)
    })
    .await
}
