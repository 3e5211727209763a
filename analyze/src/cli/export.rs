//! `analyze export`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Subcommand;

use super::print;
use crate::{
    export::{
        self, Format, NewFile, events, flame_graph,
        folded::{self, What},
        is_gzip,
    },
    questions::{info, memory::state::At},
    trace::Trace,
};
use analyze_run::{error::AnalyzeError, new_file, progress};

/// Write a run in the format of another tool
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    format: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// A timeline for ui.perfetto.dev and trace_processor: threads, calls, off-CPU time, marks, memory, causes of slow calls
    Perfetto(Timeline),
    /// A timeline as JSON (trace event format) for chrome://tracing, Perfetto, Speedscope
    Chrome(Timeline),
    /// Sums by call stack, one line per stack, for flame graphs
    Folded(Folded),
    /// Sums by call stack as a profile for pprof (profile.proto with gzip)
    Pprof(Pprof),
    /// The rows of the run as Arrow, CSV or JSON lines; `analyze import events` converts CSV and JSON lines back to a run
    Events(Events),
}

#[derive(clap::Args)]
struct Timeline {
    /// The run
    run: PathBuf,
    /// The file to write; with gzip if it ends in .gz
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Timeline {
    async fn run(self, format: Format) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let counts = export::timeline(&trace, format, &self.out, self.force).await?;
        print(&format!(
            "{} slices, {} moments, {} values of counters, {} flows: {}\n",
            counts.slices_count,
            counts.instants_count,
            counts.values_count,
            counts.flows_count,
            self.out.display()
        ))
    }
}

/// Without recorded call stacks (`capture --stacks`), stacks are made of process, thread and CUDA calls.
#[derive(clap::Args)]
struct Folded {
    /// The run
    run: PathBuf,
    /// What is summed up
    #[arg(long, value_enum)]
    what: What,
    /// For bytes, the instant: peak (when most was reserved), end, a time since recording began (1.5s), or the name of a mark
    #[arg(long, value_name = "peak|end|TIME|MARK", default_value = "peak")]
    at: String,
    /// Write the lines to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a flame graph, and no lines unless --out asks for them
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace output files if they exist
    #[arg(long)]
    force: bool,
}

impl Folded {
    async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        for path in self.svg.iter().chain(&self.out) {
            new_file::check(path, self.force, trace.files().iter().flat_map(|file| &file.paths))?;
        }
        let mut found = folded::run(&trace, &[self.what], &At::parse(&self.at)).await?;
        let folded = found.pop().map(|(_, folded)| folded).unwrap_or_default();
        let file = trace.files().first();
        let warnings = file.map_or_else(Vec::new, |file| info::warnings(&file.run));
        let notes: Vec<String> = warnings.into_iter().chain(folded.notes.iter().cloned()).collect();
        for note in &notes {
            progress::say(&format!("note: {note}"));
        }
        if folded.is_empty() {
            return Err(AnalyzeError::Query(format!("the run has {}", self.what.missing())));
        }
        let io = |path: &Path, source| AnalyzeError::Io { path: path.to_owned(), source };
        let create = |path: &Path| NewFile::create(&trace, path, self.force, is_gzip(path));
        if let Some(path) = &self.svg {
            let mut svg = create(path)?;
            let run = file.map_or("", |file| file.name.as_str());
            flame_graph::write(&folded, self.what, run, notes, &mut svg)
                .map_err(|source| io(path, source))?;
            svg.finish()?;
        }
        match (&self.out, &self.svg) {
            (Some(path), _) => {
                let mut lines = create(path)?;
                lines.write_all(folded.text().as_bytes()).map_err(|source| io(path, source))?;
                lines.finish()
            }
            (None, Some(_)) => Ok(()),
            (None, None) => print(&folded.text()),
        }
    }
}

/// One profile with all that the run has: `go tool pprof -sample_index=off_cpu_ns FILE`.
#[derive(clap::Args)]
#[command(
    after_help = "Stacks are those of `analyze export folded`. What must be known to read the numbers is among the \
    profile's comments (`go tool pprof -comments FILE`)."
)]
struct Pprof {
    /// The run
    run: PathBuf,
    /// What is summed up [default: everything that the run has]
    #[arg(long, value_enum)]
    what: Vec<What>,
    /// For bytes, the instant: peak (when most was reserved), end, a time since recording began (1.5s), or the name of a mark
    #[arg(long, value_name = "peak|end|TIME|MARK", default_value = "peak")]
    at: String,
    /// The file to write
    #[arg(long, value_name = "FILE.pb.gz")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Pprof {
    async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        new_file::check(&self.out, self.force, trace.files().iter().flat_map(|file| &file.paths))?;
        let is_asked = !self.what.is_empty();
        let mut whats = if is_asked { self.what } else { What::ALL.to_vec() };
        whats.sort_unstable();
        whats.dedup();
        let mut found = folded::run(&trace, &whats, &At::parse(&self.at)).await?;
        let missing: Vec<&str> =
            found.iter().filter(|(_, folded)| folded.is_empty()).map(|(what, _)| what.missing()).collect();
        found.retain(|(_, folded)| !folded.is_empty());
        if found.is_empty() || (is_asked && !missing.is_empty()) {
            return Err(AnalyzeError::Query(format!("the run has {}", missing.join(", "))));
        }
        export::pprof(&trace, &found, &self.out, self.force)?;
        let mut text = String::new();
        for (what, folded) in &found {
            text += &format!("{}: {} stacks, {}\n", what.name(), folded.stacks().count(), folded.sum());
        }
        for what in missing {
            text += &format!("note: the run has {what}\n");
        }
        print(&text)
    }
}

/// The format is what the file's name ends in: .arrow, .csv, .ndjson (an object a line); the latter two also with .gz.
#[derive(clap::Args)]
#[command(
    after_help = "Arrow carries what the run says about itself, as metadata of the schema; CSV and JSON have no place for \
    it, and CSV none for the difference between an empty text and none. A spreadsheet may take a cell of CSV that begins \
    with =, +, - or @ for a formula."
)]
struct Events {
    /// The run
    run: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Events {
    async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let rows_count = events::write(&trace, &self.out, self.force).await?;
        print(&format!("{rows_count} events: {}\n", self.out.display()))
    }
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        match self.format {
            Verb::Perfetto(timeline) => timeline.run(Format::Perfetto).await,
            Verb::Chrome(timeline) => timeline.run(Format::Chrome).await,
            Verb::Folded(folded) => folded.run().await,
            Verb::Pprof(pprof) => pprof.run().await,
            Verb::Events(events) => events.run().await,
        }
    }
}
