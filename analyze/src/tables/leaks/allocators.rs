//! `_leaks`: a table with one row per allocator: whether it leaks, and the account of its memory.

use analyze_engine::{derived_table::Writer, rows};
use analyze_memory::leaks::growth::Growth;

use super::of_growth::{OfGrowth, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<AllocatorRows>("_leaks");

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

impl OfGrowth for AllocatorRows {
    fn add(writer: &mut Writer<Self>, growth: &Growth) {
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
}
