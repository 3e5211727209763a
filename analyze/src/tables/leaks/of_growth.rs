//! What the tables of the growth of allocators have in common (see `analyze_memory::leaks`).

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer, blocking},
    rows::Rows,
};
use analyze_memory::leaks::growth::{self, Growth, Params};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use trace_schema::Kind;

use crate::tables::def::TableDef;

/// Rows that are made of the growth of allocators.
pub(super) trait OfGrowth: Rows {
    /// Adds the rows of one allocator.
    fn add(writer: &mut Writer<Self>, growth: &Growth);
}

async fn fill<R: OfGrowth>(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let allocators = growth::run(source.events(), source.files(), &Params::default()).await?;
    blocking(move || {
        let mut writer = output.writer::<R>();
        allocators.iter().for_each(|growth| R::add(&mut writer, growth));
        writer.send(true)
    })
    .await
}

/// Defines a table that the growth of allocators fills.
pub(super) const fn table<R: OfGrowth>(name: &'static str) -> TableDef {
    TableDef {
        name,
        needs: &[Kind::Alloc],
        schema: R::schema,
        make: |source, output| Box::pin(fill::<R>(source, output)),
    }
}
