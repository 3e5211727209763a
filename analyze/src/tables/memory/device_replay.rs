//! What the tables of the memory of whole GPUs have in common (see `analyze_memory::device`).

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer},
    rows::Rows,
};
use analyze_memory::device::input::Replay;
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use futures::TryStreamExt;
use trace_schema::Kind;

use crate::tables::def::TableDef;

/// Rows that are made while the devices of some runs are replayed.
pub(super) trait OfDevices: Rows {
    /// An entry of the replay, which gives one or several rows.
    type Entry;
    /// Takes the entries that are complete.
    fn complete(replay: &mut Replay) -> Vec<Self::Entry>;
    /// Adds the rows of an entry.
    fn row(writer: &mut Writer<Self>, entry: &Self::Entry, replay: &Replay);
}

/// Adds the rows of the entries that are complete.
fn push<R: OfDevices>(writer: &mut Writer<R>, replay: &mut Replay) {
    for entry in R::complete(replay) {
        R::row(writer, &entry, replay);
    }
    // Other complete entries belong to other tables.
    replay.forget();
}

async fn fill<R: OfDevices>(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let mut replay = Replay::new(source.files());
    let mut writer = output.writer::<R>();
    let mut input = Replay::start(&**source.events());
    while let Some(batch) = input.try_next().await? {
        replay.batch(&batch, |_, _| ())?;
        push(&mut writer, &mut replay);
        writer.send_when_ready(false).await?;
    }
    replay.finish();
    push(&mut writer, &mut replay);
    writer.send_when_ready(true).await
}

/// Defines a table that the replay of devices fills.
pub(super) const fn table<R: OfDevices>(name: &'static str, needs: &'static [Kind]) -> TableDef {
    TableDef { name, needs, schema: R::schema, make: |source, output| Box::pin(fill::<R>(source, output)) }
}
