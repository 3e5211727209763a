//! The rows of a run, in the order of its file, for programs that read no Parquet; `import::events` reads texts back.
//!
//! | file | what the run says about itself | a cell without value |
//! |---|---|---|
//! | `.arrow` (IPC file) | metadata of the schema, by the keys that the Parquet file has | null |
//! | `.ndjson` (an object a line) | – | no field |
//! | `.csv` | – | nothing: as an empty text |

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::SchemaRef;
use trace_schema::{FORMAT_VERSION, META_RUN, META_VERSION, Run};

use super::{NewFile, is_gzip};
use crate::{
    output::{Format, Sink},
    rewrite::blocking,
    trace::Trace,
};
use analyze_run::{
    columns::{conformed, plain_schema},
    error::AnalyzeError,
    reading::plain,
};

/// The ending that tells the format, and whether gzip is wanted.
fn ending(path: &Path) -> Result<(String, bool), AnalyzeError> {
    let with_gzip = is_gzip(path);
    let named = if with_gzip { PathBuf::from(path.file_stem().unwrap_or_default()) } else { path.to_owned() };
    let ending = named.extension().unwrap_or_default().to_string_lossy().into_owned();
    match (ending.as_str(), with_gzip) {
        ("arrow", false) | ("csv" | "ndjson", _) => Ok((ending, with_gzip)),
        ("parquet", false) => Err(AnalyzeError::Query(
            "a run is Parquet already; `analyze slice` writes a part of it, or all".to_owned(),
        )),
        _ => Err(AnalyzeError::Query(format!(
            "{}: give --out a name that ends in .arrow, .csv, .ndjson, .csv.gz or .ndjson.gz",
            path.display()
        ))),
    }
}

/// The columns, with what the run says about itself.
fn schema(mut run: Run) -> Result<SchemaRef, AnalyzeError> {
    (run.part_number, run.part_is_last) = (0, false);
    let run = serde_json::to_string(&run).map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    let metadata =
        HashMap::from([(META_VERSION.to_owned(), FORMAT_VERSION.to_string()), (META_RUN.to_owned(), run)]);
    Ok(Arc::new(plain_schema().with_metadata(metadata)))
}

/// Writes the rows of one run; how many they are.
///
/// # Errors
/// If the name of `out` tells no format, the run's data cannot be read, or the file not be written.
pub async fn write(trace: &Trace, out: &Path, force: bool) -> Result<u64, AnalyzeError> {
    let (ending, with_gzip) = ending(out)?;
    let Some(file) = trace.files().first().cloned() else {
        return Err(AnalyzeError::Internal("a trace without files".to_owned()));
    };
    let schema = schema(file.run)?;
    let mut new = NewFile::create(trace, out, force, with_gzip)?;
    let out = out.to_owned();
    blocking(move || {
        let mut table = match ending.as_str() {
            "arrow" => Sink::arrow(&schema, &mut new)?,
            "csv" => Sink::new(Format::Csv, Arc::clone(&schema), &mut new)?,
            _ => Sink::new(Format::Ndjson, Arc::clone(&schema), &mut new)?,
        };
        let mut rows_count = 0;
        for batch in plain::batches(file.paths, None) {
            let batch =
                conformed(&batch?, &schema).map_err(|error| AnalyzeError::Damaged(error.to_string()))?;
            rows_count += batch.num_rows() as u64;
            table.write(&batch, &out)?;
        }
        table.finish(&out)?;
        new.finish()?;
        Ok(rows_count)
    })
    .await
}
