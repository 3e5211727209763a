//! Reads the bytes of a run's file for DataFusion: from the path itself, whatever its name is, and with the footer that was
//! checked when the file was opened.

use std::{fs::File, ops::Range, os::unix::fs::FileExt, sync::Arc};

use analyze_run::{parquet_pages, stored_file::StoredFile};
use bytes::Bytes;
use datafusion::{
    datasource::{
        listing::PartitionedFile,
        physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory},
    },
    error::{DataFusionError, Result},
    parquet::{
        arrow::{arrow_reader::ArrowReaderOptions, async_reader::AsyncFileReader},
        errors::ParquetError,
        file::metadata::ParquetMetaData,
    },
    physical_plan::metrics::ExecutionPlanMetricsSet,
};
use futures::{
    FutureExt,
    future::{self, BoxFuture},
};

use crate::events::external;

/// Makes readers of files that carry their [`StoredFile`] as an extension.
#[derive(Debug)]
pub(crate) struct StoredReaders;

impl ParquetFileReaderFactory for StoredReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let Some(stored) = file.extension::<StoredFile>() else {
            return Err(DataFusionError::Internal("a run's table has a file that is no run's".to_owned()));
        };
        Ok(Box::new(StoredReader {
            file: Arc::new(stored.file().map_err(external)?),
            stored: stored.clone(),
            metrics: ParquetFileMetrics::new(partition, file.object_meta.location.as_ref(), metrics),
        }))
    }
}

struct StoredReader {
    file: Arc<File>,
    stored: StoredFile,
    metrics: ParquetFileMetrics,
}

/// Reads ranges of a file. A damaged file may declare any range, so it is checked before memory is allocated. A range of pages
/// begins with the header of a page.
fn read(file: &File, stored: &StoredFile, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, ParquetError> {
    let read = |range: &Range<u64>| -> Result<Bytes, ParquetError> {
        let length = range.end.checked_sub(range.start).filter(|_| range.end <= stored.size_bytes());
        let length = length.and_then(|length| usize::try_from(length).ok()).ok_or_else(|| {
            ParquetError::General(format!(
                "the bytes {} to {} lie outside of the file",
                range.start, range.end
            ))
        })?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, range.start)?;
        if stored.is_page(range.start) {
            parquet_pages::check(&bytes)?;
        }
        Ok(Bytes::from(bytes))
    };
    ranges.iter().map(read).collect()
}

impl AsyncFileReader for StoredReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        let read = self.get_byte_ranges(vec![range]);
        let missing = || ParquetError::General("a range was not read".to_owned());
        async move { read.await?.pop().ok_or_else(missing) }.boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        let bytes =
            ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add);
        self.metrics.bytes_scanned.add(usize::try_from(bytes).unwrap_or(usize::MAX));
        let (file, stored) = (Arc::clone(&self.file), self.stored.clone());
        async move {
            // Reading blocks, and the threads of the runtime have other work.
            let read = tokio::task::spawn_blocking(move || read(&file, &stored, &ranges));
            read.await.map_err(|error| ParquetError::External(Box::new(error)))?
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        future::ready(self.stored.indexed_metadata()).boxed()
    }
}
