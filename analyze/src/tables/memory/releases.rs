//! `_memory_releases`: a table of the releases of PyTorch's cached memory, with what each returned to the driver, and of the
//! calls of `ipc_collect()`.

use std::vec::Drain;

use analyze_engine::{derived_table::Writer, rows, rows::Word};
use analyze_memory::{
    history::{History, Release},
    input::Replay,
};

use super::history::{HistoryRows, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<ReleaseRows>("_memory_releases");

rows! {
    /// A release of segments, or a call of `ipc_collect()`, from `ts` for `dur` (ns).
    struct ReleaseRow<'a> => ReleaseRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        dur: i64,
        tid: u32,
        cause: Word<'a>,
        before_bytes: i64,
        given_back_bytes: i64,
        segments_count: i64,
        after_bytes: i64,
        in_use_bytes: i64,
        pinned_bytes: i64,
        private_bytes: i64,
        releasable_bytes: i64,
        unknown_bytes: i64,
        freed_before_bytes: Option<i64>,
        ipc_freed_bytes: Option<i64>,
        closed_handles_count: Option<i64>,
    }
}

impl HistoryRows for ReleaseRows {
    type Entry = Release;

    fn entries(history: &mut History) -> Drain<'_, Release> {
        history.releases.drain(..)
    }

    fn row(writer: &mut Writer<Self>, release: &Release, replay: &Replay) {
        let (key, after) = (release.key, &release.after);
        writer.push(ReleaseRow {
            run: Word(replay.name(key.run)),
            pid: key.pid,
            device: key.device,
            ts: release.ts,
            dur: release.last_ts.saturating_sub(release.ts),
            tid: release.tid,
            cause: Word(release.cause.name()),
            before_bytes: release.before.reserved_bytes,
            given_back_bytes: release.given_back_bytes as i64,
            segments_count: release.segments_count as i64,
            after_bytes: after.reserved_bytes,
            in_use_bytes: release.in_use_bytes(),
            pinned_bytes: release.pinned_bytes as i64,
            private_bytes: after.private_releasable_bytes,
            releasable_bytes: after.releasable_bytes,
            unknown_bytes: after.unknown_bytes,
            freed_before_bytes: release.freed_before_bytes.map(|bytes| bytes as i64),
            ipc_freed_bytes: release.ipc_freed_bytes.map(|bytes| bytes as i64),
            closed_handles_count: release.closed_handles_count.map(|count| count as i64),
        });
    }
}
