//! Baselines: the figures of runs in a small Parquet file.
//!
//! The file has one row per run and figure; the runs' circumstances are JSON in the file's metadata. A
//! baseline is accepted wherever runs are, so that traces need not be kept.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use futures::{StreamExt, TryStreamExt, future::OptionFuture, stream};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    },
    basic::{Compression, ZstdLevel},
    file::{metadata::KeyValue, properties::WriterProperties},
};
use serde::{Deserialize, Serialize};
use tokio::try_join;
use trace_writer::{Access, NewFile};

use super::{
    facts::Facts,
    figure::{Asked, Figure, Key, Wanted},
    findings,
    gate::Rules,
    metric::{Declaration, Metric},
    run_time,
    runs::{About, Builder, RunFigures, Runs},
};
use crate::{
    questions::findings::{Findings, Outline},
    trace::{Options, Trace, expand},
};
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
    memory_budget, panics, parquet_footer,
    parquet_pages::CheckedPages,
    run_file::tell_apart,
};

/// Key of the Parquet metadata entry whose presence makes a file a baseline.
const META: &str = "inquest.baseline";
/// Version of the file format. Additions keep it.
const VERSION: u32 = 1;
/// The largest number of figures in a baseline, far more than any number of runs has.
const MAX_FIGURES: usize = 1 << 24;
/// Upper bound of the number of runs measured concurrently: peak memory grows in proportion to it.
const AT_ONCE: usize = 8;
/// Memory in bytes that measuring a run of 100 million events takes: so many runs as fit into the budget are measured
/// concurrently.
const RUN_BYTES: usize = 2 << 30;

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    runs: Vec<(String, Facts)>,
    /// Declarations of the metrics that are not the library's own, so that they need no query any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<Declaration>,
}

/// Writes a baseline.
///
/// # Errors
/// Returns an error if `path` exists and `force` is not set, or if the file cannot be written.
pub fn save(path: &Path, runs: &Runs, force: bool) -> Result<(), AnalyzeError> {
    let internal = |error: &dyn std::fmt::Display| AnalyzeError::Internal(error.to_string());
    let figures = |(place, run)| runs.of_run(place).map(move |(key, figure)| (run, key, figure));
    let rows: Vec<(&About, &Key, Figure)> = runs.each().iter().enumerate().flat_map(figures).collect();
    let rows = || rows.iter().copied();
    let text =
        |of: fn(&Key) -> Option<&str>| Arc::new(rows().map(|(_, key, _)| of(key)).collect::<StringArray>());
    let field = |name, ty, is_null| Field::new(name, ty, is_null);
    let schema = Arc::new(Schema::new(vec![
        field("run", DataType::Utf8, false),
        field("metric", DataType::Utf8, false),
        field("subject", DataType::Utf8, true),
        field("stratum", DataType::Utf8, true),
        field("calls_count", DataType::Int64, true),
        field("value", DataType::Float64, false),
    ]));
    let batch = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(rows().map(|(run, ..)| Some(run.name.as_str())).collect::<StringArray>()),
            text(|key| Some(key.metric.name())),
            text(|key| key.subject.as_deref()),
            text(|key| key.stratum.as_deref()),
            Arc::new(rows().map(|(_, _, figure)| figure.calls_count).collect::<Int64Array>()),
            Arc::new(rows().map(|(_, _, figure)| figure.value).collect::<Float64Array>()),
        ],
    );
    let batch = batch.map_err(|error| internal(&error))?;
    let foreign = |key: &&Key| key.metric.declaration() != Metric::of(key.metric.name()).declaration();
    let metrics: BTreeSet<&Metric> =
        rows().map(|(_, key, _)| key).filter(foreign).map(|key| &key.metric).collect();
    let head = Head {
        version: VERSION,
        metrics: metrics.into_iter().map(|metric| metric.declaration().clone()).collect(),
        runs: runs.each().iter().map(|run| (run.name.clone(), run.facts.clone())).collect(),
    };
    let head = serde_json::to_string(&head).map_err(|error| internal(&error))?;
    let zstd = ZstdLevel::try_new(9).map_err(|error| internal(&error))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(zstd))
        .set_key_value_metadata(Some(vec![KeyValue::new(META.to_owned(), head)]))
        .build();
    let failed = |error: parquet::errors::ParquetError| AnalyzeError::Io {
        path: path.to_owned(),
        source: std::io::Error::other(error),
    };
    let new = NewFile::create(path, force, Access::Umask)?;
    let mut writer = ArrowWriter::try_new(new.writer()?, schema, Some(properties)).map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.close().map_err(failed)?;
    new.finish()?;
    Ok(())
}

/// Reads a baseline. Returns `None` if the file is not a baseline.
fn read(path: &Path) -> Result<Option<Runs>, AnalyzeError> {
    panics::decoding(path, || decode(path))
}

fn decode(path: &Path) -> Result<Option<Runs>, AnalyzeError> {
    // A file that is not Parquet at all is reported by the code that opens it as a run.
    let Ok(file) = File::open(path) else { return Ok(None) };
    if parquet_footer::check(&file).is_err() {
        return Ok(None);
    }
    // The Arrow schema that is embedded is not decoded: the columns are cast to what they should be.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let Ok(footer) = ArrowReaderMetadata::load(&file, options) else { return Ok(None) };
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(CheckedPages(file), footer);
    let pairs = builder.metadata().file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let Some(head) = pairs.iter().find(|pair| pair.key == META).and_then(|pair| pair.value.as_deref()) else {
        return Ok(None);
    };
    let broken = |reason: String| AnalyzeError::Damaged(format!("{}: {reason}", path.display()));
    let head: Head = serde_json::from_str(head).map_err(|error| broken(format!("its {META}: {error}")))?;
    if head.version > VERSION {
        let (path, found) = (path.to_owned(), head.version);
        return Err(AnalyzeError::NewerVersion { path, found, known: VERSION });
    }
    let (mut runs, runs_count) = (Builder::default(), head.runs.len());
    let places: HashMap<String, usize> =
        head.runs.into_iter().map(|(name, facts)| (name.clone(), runs.run(name, facts))).collect();
    if places.len() < runs_count {
        return Err(broken("it names a run twice".to_owned()));
    }
    let declared: BTreeMap<String, Metric> =
        head.metrics.into_iter().map(|metric| (metric.name.clone(), metric.into())).collect();
    let mut figures_count = 0_usize;
    for batch in builder.build().map_err(|error| broken(error.to_string()))? {
        let batch = batch.map_err(|error| broken(error.to_string()))?;
        figures_count = figures_count.saturating_add(batch.num_rows());
        if figures_count > MAX_FIGURES {
            return Err(broken(format!("it has more figures than the limit figures_count of {MAX_FIGURES}")));
        }
        let missing = ["run", "metric", "subject", "stratum", "calls_count", "value"]
            .into_iter()
            .find(|name| batch.column_by_name(name).is_none());
        if let Some(name) = missing {
            return Err(broken(format!("it has no column {name}")));
        }
        let text = |name| strings(&batch, name);
        let (names, metrics, subjects, strata) =
            (text("run")?, text("metric")?, text("subject")?, text("stratum")?);
        let (counts, values) = (integers(&batch, "calls_count")?, floats(&batch, "value")?);
        for row in 0..batch.num_rows() {
            let (Some(run), Some(metric), Some(value)) =
                (names.at(row), metrics.at(row), values.at(row).filter(|v| v.is_finite()))
            else {
                return Err(broken(format!("row {row} has no run, metric or value")));
            };
            let Some(place) = places.get(run) else {
                return Err(broken(format!("row {row} is of the run {run}, which the file does not name")));
            };
            let metric = declared.get(metric).cloned().unwrap_or_else(|| Metric::of(metric));
            let key = Key::with(metric, subjects.at(row), strata.at(row));
            runs.figure(*place, key, Figure { value, calls_count: counts.at(row) });
        }
    }
    runs.finish().map(Some).map_err(|error| match error {
        AnalyzeError::Damaged(reason) => broken(reason),
        error => error,
    })
}

/// Opens a file that must be a baseline.
///
/// # Errors
/// Returns an error if the file is missing, is not a baseline, or is damaged.
pub fn open(path: &Path) -> Result<Runs, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    std::fs::metadata(path).map_err(io)?;
    read(path)?.ok_or_else(|| {
        AnalyzeError::Query(format!("{} is no baseline: `analyze baseline save` writes one", path.display()))
    })
}

/// Measures the wanted figures of one run, or reads those of a baseline. The figures and the findings share one sweep of the
/// rows. Nothing of the run stays in memory afterwards.
async fn measure(path: PathBuf, options: Options, wanted: Wanted) -> Result<Runs, AnalyzeError> {
    if let Some(runs) = read(&path)? {
        return Ok(runs);
    }
    let trace = Trace::open_with(std::slice::from_ref(&path), &options).await?;
    let [file] = trace.files() else {
        return Err(AnalyzeError::Query(format!("{} stands for several runs", path.display())));
    };
    let (name, facts) = (file.name.clone(), Facts::read(&trace, file).await?);
    let asked = Asked::of(&trace, &wanted).await?;
    // Where the scheduler is not on record, finding nothing proves nothing.
    let outline = if wanted.is_all() { Some(Outline::of(&trace).await?) } else { None };
    let outline = outline.filter(Outline::has_schedule);
    let together = trace.together();
    let inputs = outline.as_ref().map(|outline| outline.read(&trace, &together, 0));
    let (mut figures, inputs) =
        try_join!(Box::pin(asked.read(&together)), async { OptionFuture::from(inputs).await.transpose() })?;
    if let (Some(outline), Some(inputs)) = (&outline, &inputs)
        && run_time::is_recorded(&figures)
    {
        figures.extend(findings::figures(&Findings::of(&inputs.facts(outline))));
    }
    Runs::new([RunFigures { name, facts, figures }])
}

/// Loads all figures of all runs and baselines that the paths, directories and patterns name, in the order
/// given. A number is appended to the names of runs that would otherwise share one.
///
/// # Errors
/// Returns an error if a run or baseline cannot be read, or if a path names none.
pub async fn load(paths: &[PathBuf], options: &Options) -> Result<Runs, AnalyzeError> {
    load_wanted(paths, options, &Wanted::default()).await
}

/// Loads runs as [`load`] does, but of their figures only what gates need. If a gate finds no figure, all are loaded, so that
/// an error can name those that there are.
///
/// # Errors
/// Returns an error in the same cases as [`load`].
pub async fn load_for(rules: &Rules, paths: &[PathBuf], options: &Options) -> Result<Runs, AnalyzeError> {
    let runs = load_wanted(paths, options, &rules.wanted()).await?;
    match rules.figures(runs.keys().iter()).is_ok() {
        true => Ok(runs),
        false => load(paths, options).await,
    }
}

async fn load_wanted(paths: &[PathBuf], options: &Options, wanted: &Wanted) -> Result<Runs, AnalyzeError> {
    let paths = paths.iter().map(|path| expand(path)).collect::<Result<Vec<_>, _>>()?.concat();
    // The queries of a single run do not keep all processors busy, so several runs are measured concurrently.
    let at_once = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().div_ceil(2));
    let at_once = at_once.min(AT_ONCE).min(memory_budget::bytes() / RUN_BYTES).max(1);
    let measured = paths.into_iter().map(|path| async move {
        let measured = measure(path, options.clone(), wanted.clone());
        tokio::spawn(measured).await.map_err(panics::joined)?
    });
    let all: Vec<Runs> = stream::iter(measured).buffered(at_once).try_collect().await?;
    let mut builder = Builder::default();
    all.iter().for_each(|runs| builder.append(runs));
    let mut runs = builder.finish()?;
    tell_apart(runs.names_mut());
    Ok(runs)
}
