//! What DataFusion says, as an error of this product.

use analyze_run::{error::AnalyzeError, memory_budget};
use datafusion::error::DataFusionError;

/// Returns the error of a query. A query is the user's, or ours over the user's file: damaged pages come out as errors of
/// Parquet or Arrow while it runs; everything else concerns the query itself.
pub fn query_error(error: DataFusionError) -> AnalyzeError {
    match error.find_root() {
        DataFusionError::ParquetError(source) => AnalyzeError::Damaged(source.to_string()),
        DataFusionError::ArrowError(source, _) => AnalyzeError::Damaged(source.to_string()),
        DataFusionError::External(source) => match source.downcast_ref() {
            Some(error) => AnalyzeError::again(error),
            None => AnalyzeError::Query(source.to_string()),
        },
        DataFusionError::ResourcesExhausted(what) => memory_budget::exceeded(what.clone()),
        DataFusionError::Internal(message) => AnalyzeError::Internal(message.clone()),
        root => AnalyzeError::Query(root.strip_backtrace()),
    }
}
