//! Exports the rows of a run, in file order, for programs that cannot read Parquet. `import::events` reads
//! all of them back.
//!
//! | file | metadata of the run | null cell |
//! |---|---|---|
//! | `.arrow` (IPC file, zstd) | schema metadata, under the keys of the Parquet file | null |
//! | `.ndjson` (one object per line) | – | the field is absent |
//! | `.csv` | – | empty, like an empty text |

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::SchemaRef;
use trace_schema::{FORMAT_VERSION, META_RUN, META_VERSION, Run};

use super::{NewFile, dictionaries::Dictionaries, is_gzip};
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

/// Returns the file name's extension, which selects the format, and whether gzip is requested.
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

/// Metadata of the exported rows: that of the run.
fn metadata(mut run: Run) -> Result<HashMap<String, String>, AnalyzeError> {
    (run.part_number, run.part_is_last) = (0, false);
    let run = serde_json::to_string(&run).map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    Ok(HashMap::from([(META_VERSION.to_owned(), FORMAT_VERSION.to_string()), (META_RUN.to_owned(), run)]))
}

/// Writes the rows of one run and returns their number.
///
/// # Errors
/// Returns an error if the extension of `out` names no format, if the run's data cannot be read, or if the
/// file cannot be written.
pub async fn write(trace: &Trace, out: &Path, force: bool) -> Result<u64, AnalyzeError> {
    let (ending, with_gzip) = ending(out)?;
    let Some(file) = trace.files().first().cloned() else {
        return Err(AnalyzeError::Internal("a trace without files".to_owned()));
    };
    let metadata = metadata(file.run)?;
    let mut new = NewFile::create(trace, out, force, with_gzip)?;
    let out = out.to_owned();
    blocking(move || {
        let dictionaries = match ending.as_str() {
            "arrow" => Some(Dictionaries::read(&file.paths)?),
            _ => None,
        };
        let schema = dictionaries.as_ref().map_or_else(plain_schema, Dictionaries::schema);
        let schema: SchemaRef = Arc::new(schema.with_metadata(metadata));
        let mut table = match ending.as_str() {
            "arrow" => Sink::arrow(&schema, &mut new, &out)?,
            "csv" => Sink::new(Format::Csv, Arc::clone(&schema), &mut new, &out)?,
            _ => Sink::new(Format::Ndjson, Arc::clone(&schema), &mut new, &out)?,
        };
        let mut rows_count = 0;
        for batch in plain::batches(file.paths, None) {
            let batch = batch?;
            let batch = match &dictionaries {
                Some(dictionaries) => dictionaries.apply(&batch, &schema),
                None => conformed(&batch, &schema),
            };
            let batch = batch.map_err(|error| AnalyzeError::Damaged(error.to_string()))?;
            rows_count += batch.num_rows() as u64;
            table.write(&batch, &out)?;
        }
        table.finish(&out)?;
        new.finish()?;
        Ok(rows_count)
    })
    .await
}
