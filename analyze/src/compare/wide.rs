//! The figures of runs as one wide table: a row per run, a column per figure.
//!
//! The column `run` names the run, `start_wall_ns` is the Unix time in ns at which its recording began, and
//! every other column is a figure, named as in gates (`p99_ns(cudaLaunchKernel)`) and in its metric's unit. A
//! figure that a run does not have is null. Its columns depend on the data, so no query of a fixed schema
//! returns it.

use std::{path::Path, sync::Arc};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    csv::WriterBuilder,
};
use parquet::arrow::ArrowWriter;
use trace_writer::{Access, NewFile};

use super::runs::Runs;
use analyze_run::error::AnalyzeError;

/// File format of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header line; a null is an empty field.
    Csv,
}

impl Format {
    /// Returns the format that the ending of a path names.
    ///
    /// # Errors
    /// Returns an error if the ending is neither `.parquet` nor `.csv`.
    pub fn of(path: &Path) -> Result<Self, AnalyzeError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            _ => Err(AnalyzeError::Query(format!("{} ends neither in .parquet nor in .csv", path.display()))),
        }
    }
}

/// Pivots the figures of runs: one row per run in the order given, figures in the order of their keys.
fn pivot(runs: &Runs) -> Result<RecordBatch, AnalyzeError> {
    let names: StringArray = runs.each().iter().map(|run| Some(run.name.as_str())).collect();
    let starts: Int64Array = runs.each().iter().map(|run| run.facts.start_wall_ns).collect();
    let figures = runs
        .keys()
        .iter()
        .zip(runs.wide()?)
        .map(|(key, values)| (key.to_string(), Arc::new(Float64Array::from(values)) as ArrayRef, true));
    let columns = [
        ("run".to_owned(), Arc::new(names) as ArrayRef, false),
        ("start_wall_ns".to_owned(), Arc::new(starts) as ArrayRef, true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().chain(figures))
        .map_err(|error| AnalyzeError::Internal(error.to_string()))
}

/// Writes the table, and returns its number of figures.
///
/// # Errors
/// Returns an error if `path` exists and `force` is not set, or if the file cannot be written.
pub fn save(path: &Path, format: Format, runs: &Runs, force: bool) -> Result<usize, AnalyzeError> {
    let table = pivot(runs)?;
    let new = NewFile::create(path, force, Access::Umask)?;
    let file = new.writer()?;
    let written = match format {
        Format::Parquet => ArrowWriter::try_new(file, table.schema(), None)
            .and_then(|mut writer| {
                writer.write(&table)?;
                writer.close().map(drop)
            })
            .map_err(std::io::Error::other),
        Format::Csv => WriterBuilder::new().build(file).write(&table).map_err(std::io::Error::other),
    };
    written.map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })?;
    new.finish()?;
    Ok(table.num_columns() - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{
        facts::Facts,
        figure::{Figure, Key},
        runs::RunFigures,
    };
    use arrow::array::{Array, AsArray};

    #[test]
    fn a_figure_that_a_run_has_not_is_null() {
        let run = |name: &str, figures: &[(&str, f64)]| RunFigures {
            name: name.to_owned(),
            facts: Facts::default(),
            figures: figures
                .iter()
                .map(|(metric, value)| {
                    (Key::of(metric, Some("f"), None), Figure { value: *value, calls_count: None })
                })
                .collect(),
        };
        let runs =
            [run("a", &[("p50_ns", 1.5), ("calls_ns", 7.0)]), run("b", &[]), run("c", &[("p50_ns", 2.0)])];
        let table = pivot(&Runs::new(runs).unwrap()).unwrap();
        let names: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["run", "start_wall_ns", "calls_ns(f)", "p50_ns(f)"]);
        let p50 = table.column(3).as_primitive::<arrow::datatypes::Float64Type>();
        assert_eq!((p50.value(0), p50.is_null(1), p50.value(2)), (1.5, true, 2.0));
    }
}
