//! What makes the rows of tables that have some for every slow call.

use std::sync::Arc;

use analyze_engine::{
    derived_table::{Output, Writer, blocking},
    rows::Rows,
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::{
    classify::SlowCall,
    derived::{Derived, Source},
    params::Params,
    walk::Walker,
};

/// Number of calls whose rows are handed on at once.
const BATCH_CALLS: usize = 2048;

/// Makes the rows of every slow call with `push`.
///
/// # Errors
/// Returns an error if the runs cannot be read, or if nobody reads the rows any more.
pub(super) async fn fill<R: Rows + 'static>(
    source: Arc<Source>,
    output: Output,
    push: fn(&mut Writer<R>, &Derived, &mut Walker<'_>, &SlowCall),
) -> Result<(), AnalyzeError> {
    let derived = source.get(Params::default()).await?;
    blocking(move || {
        let mut writer = output.writer();
        let mut walker = Walker::new(&derived.schedule);
        for calls in derived.judgement.slow.chunks(BATCH_CALLS) {
            calls.iter().for_each(|slow| push(&mut writer, &derived, &mut walker, slow));
            writer.send(true)?;
        }
        Ok(())
    })
    .await
}
