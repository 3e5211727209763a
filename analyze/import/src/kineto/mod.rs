//! Imports traces of PyTorch's profiler (Kineto): the JSON that `export_chrome_trace` writes, also compressed
//! with gzip.
//!
//! A reader has to know: times are microseconds with three decimals, counted from `baseTimeNanoseconds`,
//! which is Unix time; events are in no order; work on a GPU has the device as `pid` and the stream as `tid`;
//! a call and the work that it caused share one `correlation`; a `pid` such as `Spans` is not a process.
//!
//! ```text
//! "traceEvents": [ {…}, {…}, … ]      one event at a time ─► row ─► recording ─► sorted run
//! "baseTimeNanoseconds": …            if it follows the events, they are read again
//! ```

mod convert;
mod event;
mod metadata;

use std::{io::Read, path::Path};

use trace_schema::{Run, TIME_LIMIT_NS};
use trace_writer::{Finished, Recorder, WriteError};

use self::convert::Converter;
pub(super) use self::convert::without_version;
use super::{
    compressed,
    json::{Json, JsonError, Shape, scaled},
};
use crate::importer::{Head, Importer, Job};
use analyze_run::error::{AnalyzeError, Place};

/// Traces of PyTorch's profiler.
pub(super) struct Kineto;

impl Importer for Kineto {
    fn name(&self) -> &'static str {
        "kineto"
    }

    fn about(&self) -> &'static str {
        "Trace of PyTorch's profiler (Kineto, Chrome JSON), also with gzip"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        matches!(head.text().first(), Some(b'{' | b'['))
            && (head.contains("\"traceEvents\"") || head.contains("\"ph\""))
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(job.file, job.out, job.force)
    }
}

/// The reason why a trace could not be converted.
enum Failure {
    /// The JSON is invalid or not of the expected shape, or cannot be read.
    Json(JsonError),
    /// The run cannot be written.
    Write(WriteError),
    /// The events have to be read again with this base time, in ns, because it follows them in the file.
    Base(i64),
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl Failure {
    fn at<T>(offset: u64, reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Json(JsonError::At { offset, reason: reason.into() }))
    }
}

/// Converts a trace to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the file is not a trace of PyTorch's profiler or is damaged, or the run cannot be
/// written.
fn import(path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let mut base_ns = 0;
    loop {
        let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
        let (bytes, _) = compressed::open(path).map_err(io)?;
        let recorder = Recorder::create(out, force, &Run::default())?;
        let mut converter = Converter::new(recorder, base_ns);
        match read(&mut Json::new(bytes), &mut converter) {
            Ok(()) => {
                let (recorder, run) = converter.finish();
                return Ok(recorder.finish_sorted(&run)?);
            }
            Err(failure) => {
                converter.recorder.discard();
                match failure {
                    Failure::Base(found) => base_ns = found,
                    Failure::Write(error) => return Err(error.into()),
                    Failure::Json(JsonError::Io(source)) => return Err(io(source)),
                    Failure::Json(JsonError::At { offset, reason }) => {
                        return Err(AnalyzeError::unreadable(path, Place::Byte(offset), reason));
                    }
                }
            }
        }
    }
}

/// Reads the whole text: an object with the events and metadata, or the list of events alone.
fn read(json: &mut Json<impl Read>, converter: &mut Converter) -> Result<(), Failure> {
    if json.shape()? == Shape::List {
        read_events(json, converter)?;
        return Ok(json.end()?);
    }
    json.begin(Shape::Object, "this is no trace of PyTorch's profiler: it")?;
    let (mut is_first, mut key) = (true, String::new());
    let (mut has_events, mut has_base) = (false, false);
    while json.next_key(&mut is_first, &mut key)? {
        match key.as_str() {
            "traceEvents" if has_events => return Ok(json.wrong("`traceEvents` is there twice")?),
            "traceEvents" => {
                read_events(json, converter)?;
                has_events = true;
            }
            // Two that differ could not both hold, however often the events are read.
            "baseTimeNanoseconds" if has_base => {
                return Ok(json.wrong("`baseTimeNanoseconds` is there twice")?);
            }
            "baseTimeNanoseconds" => {
                has_base = true;
                let offset = json.offset();
                json.number(&mut key, "`baseTimeNanoseconds`")?;
                let is_time = |base_ns: &i64| (0..=TIME_LIMIT_NS).contains(base_ns);
                let Some(base_ns) = scaled(&key, 0).filter(is_time) else {
                    return Failure::at(offset, format!("`baseTimeNanoseconds` is {key}"));
                };
                if has_events && base_ns != converter.base_ns {
                    return Err(Failure::Base(base_ns));
                }
                converter.base_ns = base_ns;
            }
            "deviceProperties" => converter.metadata.read_devices(json)?,
            "cuda_driver_version" => converter.metadata.read_cuda_version(json)?,
            _ => json.skip()?,
        }
    }
    if !has_events {
        return Ok(json.wrong("this is no trace of PyTorch's profiler: it has no `traceEvents`")?);
    }
    Ok(json.end()?)
}

fn read_events(json: &mut Json<impl Read>, converter: &mut Converter) -> Result<(), Failure> {
    json.begin(Shape::List, "`traceEvents`")?;
    let mut event = event::Event::default();
    let mut is_first = true;
    while json.next_element(&mut is_first)? {
        event.read(json)?;
        converter.event(&event)?;
    }
    Ok(())
}
