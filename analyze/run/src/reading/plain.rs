//! Reads the rows of files in the order in which they are stored, batch by batch.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::array::RecordBatch;
use parquet::arrow::{
    ProjectionMask,
    arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
};

use crate::{error::AnalyzeError, panics, parquet_pages::CheckedPages, stored_file::StoredFile, times};

/// The number of rows read at once.
const BATCH_ROWS: usize = 1 << 14;

/// Returns all rows of some files, one file after the other. With `columns`, only those of them that a file
/// has are read; with `None`, all are. A file that cannot be opened or decoded gives an error item.
pub fn batches(
    paths: Vec<PathBuf>,
    columns: Option<&'static [&'static str]>,
) -> impl Iterator<Item = Result<RecordBatch, AnalyzeError>> {
    paths.into_iter().flat_map(move |path| {
        let (reader, failed) = match Reader::open(&path, columns) {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(Err(error))),
        };
        failed.into_iter().chain(reader.into_iter().flatten())
    })
}

/// Reads the rows of one file. An error is the last item.
struct Reader {
    file: Arc<StoredFile>,
    batches: Option<ParquetRecordBatchReader>,
    /// The number of rows that have been read.
    rows_count: u64,
}

impl Reader {
    fn open(path: &Path, columns: Option<&[&str]>) -> Result<Self, AnalyzeError> {
        let file = Arc::new(StoredFile::open(path)?);
        let batches = panics::decoding(path, || {
            let reader = file.reader().clone();
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(CheckedPages(file.file()?), reader);
            if let Some(columns) = columns {
                let leaves = builder.parquet_schema().columns().iter().enumerate();
                let wanted = leaves.filter(|(_, leaf)| columns.contains(&leaf.path().string().as_str()));
                let mask = ProjectionMask::leaves(builder.parquet_schema(), wanted.map(|(index, _)| index));
                builder = builder.with_projection(mask);
            }
            let built = builder.with_batch_size(BATCH_ROWS).build();
            built.map_err(|error| AnalyzeError::Damaged(format!("{}: {error}", path.display())))
        })?;
        Ok(Self { file, batches: Some(batches), rows_count: 0 })
    }

    /// Decodes the next batch, or checks at the end that all rows were there.
    fn decode(&mut self) -> Result<Option<RecordBatch>, AnalyzeError> {
        let damaged = |what: String| AnalyzeError::Damaged(format!("{}: {what}", self.file.path().display()));
        let Some(batches) = &mut self.batches else { return Ok(None) };
        let Some(batch) = batches.next() else {
            let (found, said) = (self.rows_count, self.file.rows_count());
            return match found == said {
                true => Ok(None),
                false => Err(damaged(format!("it has {found} rows, and its footer says {said}"))),
            };
        };
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        if let Some(fault) = times::batch_fault(&batch) {
            return Err(damaged(fault));
        }
        self.rows_count += batch.num_rows() as u64;
        Ok(Some(batch))
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, AnalyzeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let file = Arc::clone(&self.file);
        let item = panics::decoding(file.path(), || self.decode()).transpose();
        if !matches!(item, Some(Ok(_))) {
            self.batches = None;
        }
        item
    }
}
