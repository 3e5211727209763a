//! `_data_quality`: a table with one row per run and kind of contradiction that was found in its input.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, blocking},
    rows,
    rows::Rows,
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::{derived::Source, params::Params};

use super::def::TableDef;

pub(crate) const TABLE: TableDef = TableDef {
    name: "_data_quality",
    needs: &[],
    schema: FaultRows::schema,
    make: |source, output| Box::pin(fill(source, output)),
};

rows! {
    /// The number of rows of a run that contradict others in one way.
    struct FaultRow<'a> => FaultRows {
        run: &'a str,
        problem: &'a str,
        rows_count: i64,
    }
}

async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let derived = source.get(Params::default()).await?;
    blocking(move || {
        let mut writer = output.writer::<FaultRows>();
        for ((run, fault), count) in &derived.faults {
            let run = derived.schedule.names.name(*run);
            writer.push(FaultRow { run, problem: fault.name(), rows_count: *count as i64 });
        }
        writer.send(true)
    })
    .await
}
