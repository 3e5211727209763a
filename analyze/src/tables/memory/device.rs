//! Tables of the memory of whole GPUs (see `memory::device`): every reading of a device's used memory, split
//! among the processes and libraries that hold it; every range of memory that a process reserved from the
//! driver; and memory that was paused and resumed.

use futures::TryStreamExt;

use super::*;
use analyze_memory::device::{
    input::{Ended, Replay},
    ledger::Account,
    pauses::Pause,
};

table!(Ledger {
    run: Text, text();
    ts: Int64Builder, DataType::Int64;
    device: Int32Builder, DataType::Int32;
    part: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    library: Text, text();
    size_bytes: Int64Builder, DataType::Int64;
});

table!(Pieces {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    tid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    dur: Int64Builder, DataType::Int64;
    library: Text, text();
    manner: Text, text();
    addr: UInt64Builder, DataType::UInt64;
    size_bytes: Int64Builder, DataType::Int64;
});

table!(Paused {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    tid: UInt32Builder, DataType::UInt32;
    ts: Int64Builder, DataType::Int64;
    dur: Int64Builder, DataType::Int64;
    action: Text, text();
    library: Text, text();
    size_bytes: Int64Builder, DataType::Int64;
    calls_count: Int64Builder, DataType::Int64;
    call_p50_ns: Int64Builder, DataType::Int64;
    call_max_ns: Int64Builder, DataType::Int64;
    before_bytes: Int64Builder, DataType::Int64;
    after_bytes: Int64Builder, DataType::Int64;
    missing_bytes: Int64Builder, DataType::Int64;
    missing_count: Int64Builder, DataType::Int64;
});

/// Column builders that are filled from the replay of devices.
pub(super) trait Rows: Columns {
    /// An entry of the replay, which gives one or several rows.
    type Row;
    /// Takes the entries that are complete.
    fn complete(replay: &mut Replay) -> Vec<Self::Row>;
    /// Adds the rows of an entry, and the number of each row's run to `runs`.
    fn add(&mut self, row: &Self::Row, replay: &Replay, runs: &mut Vec<u32>);
}

impl Rows for Ledger {
    type Row = (u32, Account);

    fn complete(replay: &mut Replay) -> Vec<Self::Row> {
        std::mem::take(&mut replay.accounts)
    }

    fn add(&mut self, (run, account): &Self::Row, replay: &Replay, runs: &mut Vec<u32>) {
        for line in &account.lines {
            runs.push(*run);
            self.ts.append_value(account.ts);
            self.device.append_value(account.device);
            self.part.append_value(replay.part(line).name());
            self.pid.append_option(line.pid);
            self.library.append_option(line.library.map(|library| replay.library(library)));
            self.size_bytes.append_value(line.bytes);
        }
    }
}

impl Rows for Pieces {
    type Row = Ended;

    fn complete(replay: &mut Replay) -> Vec<Ended> {
        std::mem::take(&mut replay.ended)
    }

    fn add(&mut self, row: &Ended, replay: &Replay, runs: &mut Vec<u32>) {
        runs.push(row.run);
        self.pid.append_value(row.pid);
        self.tid.append_value(row.piece.tid);
        self.device.append_option(row.device);
        self.ts.append_value(row.piece.ts);
        self.dur.append_option(row.end.map(|end| end.saturating_sub(row.piece.ts)));
        self.library.append_value(replay.library(row.piece.library));
        self.manner.append_value(row.piece.manner.name());
        self.addr.append_option(non_zero(row.piece.addr));
        self.size_bytes.append_value(row.piece.size_bytes as i64);
    }
}

impl Rows for Paused {
    type Row = (u32, Pause);

    fn complete(replay: &mut Replay) -> Vec<Self::Row> {
        std::mem::take(&mut replay.paused)
    }

    fn add(&mut self, (run, pause): &Self::Row, replay: &Replay, runs: &mut Vec<u32>) {
        runs.push(*run);
        let durs = pause.durs();
        self.pid.append_value(pause.pid);
        self.tid.append_value(pause.tid);
        self.ts.append_value(pause.ts);
        self.dur.append_value(pause.end_ts.saturating_sub(pause.ts));
        self.action.append_value(pause.way.name());
        self.library.append_value(replay.library(pause.library));
        self.size_bytes.append_value(pause.bytes() as i64);
        self.calls_count.append_value(durs.len() as i64);
        // This is the lower median, so it is the duration of an actual call.
        self.call_p50_ns.append_option(durs.get(durs.len().saturating_sub(1) / 2).copied());
        self.call_max_ns.append_option(durs.last().copied());
        self.before_bytes.append_value(pause.before_bytes);
        self.after_bytes.append_value(pause.after_bytes);
        self.missing_bytes.append_value(pause.missing_bytes as i64);
        self.missing_count.append_value(pause.missing_count as i64);
    }
}

/// Columns, and the run of each row.
#[derive(Default)]
struct Filled<B> {
    columns: B,
    runs: Vec<u32>,
}

impl<B: Rows> Filled<B> {
    /// Returns the rows so far if they fill a batch or `all` is set.
    fn take(&mut self, replay: &mut Replay, all: bool) -> Result<Option<RecordBatch>, ArrowError> {
        for row in B::complete(replay) {
            self.columns.add(&row, replay, &mut self.runs);
        }
        // Other complete entries belong to other tables.
        replay.forget();
        if self.runs.is_empty() || (!all && self.runs.len() < BATCH_ROWS) {
            return Ok(None);
        }
        for rows in self.runs.chunk_by(|a, b| a == b) {
            self.columns.run(replay.name(rows[0]), rows.len());
        }
        self.runs.clear();
        self.columns.take().map(Some)
    }
}

/// Replays the devices of some runs.
async fn replay<B: Rows>(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let defect = |error: ArrowError| AnalyzeError::Internal(error.to_string());
    let mut replay = Replay::new(source.files());
    let mut filled = Filled::<B>::default();
    let mut input = Replay::start(&**source.events());
    while let Some(batch) = input.try_next().await? {
        replay.batch(&batch, |_, _| ())?;
        if let Some(rows) = filled.take(&mut replay, false).map_err(defect)? {
            output.send_when_ready(&rows).await?;
        }
    }
    replay.finish();
    if let Some(rows) = filled.take(&mut replay, true).map_err(defect)? {
        output.send_when_ready(&rows).await?;
    }
    Ok(())
}

const fn table<B: Rows>(name: &'static str, needs: &'static [Kind]) -> TableDef {
    TableDef { name, needs, schema: B::schema, make: |source, output| Box::pin(replay::<B>(source, output)) }
}

/// The table `_memory_ledger`.
pub const LEDGER: TableDef = table::<Ledger>("_memory_ledger", &[Kind::Sample]);
/// The table `_memory_driver`.
pub const DRIVER: TableDef = table::<Pieces>("_memory_driver", &[Kind::Call]);
/// The table `_memory_pauses`.
pub const PAUSES: TableDef = table::<Paused>("_memory_pauses", &[Kind::Call]);
