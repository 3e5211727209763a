//! `analyze sql`.

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use datafusion::{execution::SendableRecordBatchStream, prelude::DataFrame};
use futures::StreamExt;
use trace_schema::Nanos;
use trace_writer::{Access, NewFile};

use super::shell;
use crate::{
    output::{Format, Sink},
    questions::{
        explain_empty,
        query::{answered, in_time, plan, says_nothing, start},
    },
    trace::{Options, Trace},
};
use analyze_engine::error::query_error;
use analyze_run::{error::AnalyzeError, new_file, progress, text::Shown, text_file};

/// Query runs with SQL: the table `events` and the views of the query library (ops, op_time, off_cpu, …)
#[derive(clap::Args)]
#[command(after_help = "Example: analyze sql run.parquet 'SELECT op, count(*) FROM ops GROUP BY op'\n\
    With several runs (files, directories, quoted patterns), the column `run` tells them apart. Queries can only read.\n\
    Without a query, on a terminal, it asks for them one by one; else it reads one from standard input.\n\
    CSV has text as it is: a spreadsheet may take a cell that begins with =, +, - or @ for a formula.")]
pub(super) struct Args {
    /// The runs, then the query (unless --file names one)
    #[arg(required = true, value_name = "RUN… QUERY")]
    words: Vec<OsString>,
    /// Read the query from a file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// How queries are run, and their answers written.
#[derive(clap::Args, Clone)]
pub(super) struct Answer {
    /// Value of the parameter $NAME of the query
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) params: Vec<(String, String)>,
    /// Format of the result [default: table on a terminal, csv elsewhere, parquet for --out *.parquet]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "out")]
    force: bool,
    /// Directory of your own query files; they add to the library, or replace queries of the same name
    #[arg(long, value_name = "DIR")]
    pub(super) queries: Option<PathBuf>,
    /// Cancel the query after this time, such as 30s or 5m
    #[arg(long, value_name = "TIME")]
    timeout: Option<Nanos>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
}

impl Answer {
    fn format(&self) -> Format {
        let to_parquet =
            self.out.as_ref().is_some_and(|path| path.extension().is_some_and(|e| e == "parquet"));
        self.format.unwrap_or(match (to_parquet, &self.out) {
            (true, _) => Format::Parquet,
            (false, None) if std::io::stdout().is_terminal() => Format::Table,
            (false, _) => Format::Csv,
        })
    }

    /// Opens runs.
    pub(super) async fn open(&self, runs: &[PathBuf]) -> Result<Trace, AnalyzeError> {
        if let Some(out) = &self.out {
            new_file::check(out, self.force, runs)?;
        }
        Trace::open_with(runs, &Options { queries: self.queries.clone() }).await
    }

    /// Runs a query and writes its rows as they come. If they say nothing, what they could not be made of is told on
    /// standard error.
    pub(super) async fn write(&self, trace: &Trace, frame: DataFrame) -> Result<(), AnalyzeError> {
        let logical = frame.logical_plan().clone();
        let work = self.stream(frame);
        let says_nothing = match self.timeout {
            Some(limit) => answered(in_time(limit, "--timeout", work)).await?,
            None => answered(work).await?,
        };
        if says_nothing {
            for note in explain_empty::notes(trace, &logical).await? {
                progress::say(&format!("note: {note}"));
            }
        }
        Ok(())
    }

    /// Whether the rows say nothing.
    async fn stream(&self, frame: DataFrame) -> Result<bool, AnalyzeError> {
        let format = self.format();
        if self.out.is_none() && format == Format::Parquet {
            return Err(AnalyzeError::Query("Parquet goes to a file: give --out FILE".to_owned()));
        }
        if self.out.is_none() && format == Format::Arrow && std::io::stdout().is_terminal() {
            let why = "an Arrow stream goes to a pipe or a file: give --out FILE";
            return Err(AnalyzeError::Query(why.to_owned()));
        }
        let schema = frame.schema().inner().clone();
        // First, so that a query that cannot be run leaves what is there untouched.
        let rows = start(frame).await?;
        match &self.out {
            Some(path) => {
                let new = NewFile::create(path, self.force, Access::Umask)?;
                let file = std::io::BufWriter::new(new.writer()?);
                let says_nothing = write_all(rows, Sink::new(format, schema, file, path)?, path).await?;
                new.finish()?;
                Ok(says_nothing)
            }
            None => {
                let is_terminal = std::io::stdout().is_terminal();
                if format != Format::Table && is_terminal {
                    // Rows come there as they are read.
                    progress::end();
                }
                let out = std::io::BufWriter::new(Shown::new(std::io::stdout(), is_terminal));
                let path = Path::new("standard output");
                let written = match Sink::new(format, schema, out, path) {
                    Ok(sink) => write_all(rows, sink, path).await,
                    Err(error) => Err(error),
                };
                match written {
                    // A reader that closed it early is no error.
                    Err(AnalyzeError::Io { source, .. })
                        if source.kind() == std::io::ErrorKind::BrokenPipe =>
                    {
                        Ok(false)
                    }
                    result => result,
                }
            }
        }
    }
}

/// Whether the rows say nothing: there are none, or it is one of nulls, zeros and empty lists.
async fn write_all(
    mut rows: SendableRecordBatchStream,
    mut sink: Sink<impl Write + Send>,
    path: &Path,
) -> Result<bool, AnalyzeError> {
    let mut rows_count = 0;
    let mut says_something = false;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(query_error)?;
        rows_count += batch.num_rows();
        says_something |= rows_count > 1 || (batch.num_rows() == 1 && !says_nothing(&batch));
        sink.write(&batch, path)?;
    }
    progress::end();
    sink.finish(path)?;
    Ok(!says_something)
}

impl Args {
    /// The runs and the query; `None`: it is to be asked for.
    fn query(&self) -> Result<(Vec<PathBuf>, Option<String>), AnalyzeError> {
        let paths = |words: &[OsString]| words.iter().map(PathBuf::from).collect::<Vec<PathBuf>>();
        if let Some(path) = &self.file {
            return Ok((paths(&self.words), Some(text_file::read(path)?)));
        }
        // What is there is a run. A run that is missing looks like no query, and a query is Unicode.
        let query = |word: &OsString| {
            let text = word.to_str().filter(|text| text.contains([' ', '\n', '\t', '(', ';']));
            text.filter(|_| !Path::new(word).exists()).map(str::to_owned)
        };
        let last = self.words.split_last().and_then(|(last, runs)| Some((query(last)?, runs)));
        match last {
            Some((_, [])) => Err(AnalyzeError::Query("give at least one run, then the query".to_owned())),
            Some((query, runs)) => Ok((paths(runs), Some(query))),
            None if std::io::stdin().is_terminal() => Ok((paths(&self.words), None)),
            None => {
                let query = text_file::from(&mut std::io::stdin(), Path::new("standard input"))?;
                if query.trim().is_empty() {
                    return Err(AnalyzeError::Query("give at least one run, then the query".to_owned()));
                }
                Ok((paths(&self.words), Some(query)))
            }
        }
    }

    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let (runs, query) = self.query()?;
        let trace = self.answer.open(&runs).await?;
        match query {
            Some(query) => self.answer.write(&trace, plan(&trace, &query, &self.answer.params).await?).await,
            None => shell::run(&trace, &self.answer).await,
        }
    }
}
