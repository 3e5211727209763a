//! `analyze import`.

use std::path::PathBuf;

use super::{print, written};
use analyze_import::{FORMATS, Importer, Job, Layout, Map};
use analyze_run::{error::AnalyzeError, panics};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Convert another tool's trace to a run
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub(super) struct Args {
    /// Format of the file [default: recognized from its content]
    #[arg(value_parser = formats())]
    format: Option<&'static dyn Importer>,
    /// The file to read; it is never written to
    file: PathBuf,
    /// Which column of a CSV table is which: ts=time_ns,dur=lat_us:us,tid=tid,op=func,kind='call',pid='0'; a time may
    /// have a unit (ns, us, ms, s), and a quoted value holds for every row
    #[arg(long, value_name = "COLUMN=NAME,…", value_parser = Map::parse)]
    map: Option<Map>,
    /// Character between the cells of a CSV table; `tab` stands for one
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// The run to write
    #[arg(long, value_name = "RUN.parquet")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

/// Parses the name of a format; the help lists the formats by name.
fn formats() -> impl TypedValueParser<Value = &'static dyn Importer> {
    let mut formats: Vec<_> = FORMATS.iter().collect();
    formats.sort_by_key(|format| format.name());
    let values = formats.into_iter().map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(values).try_map(|name| FORMATS.find(&name).ok_or("it is no format"))
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("it is no single character, nor `tab`".to_owned()),
    }
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let layout = Layout { map: self.map, delimiter: self.delimiter };
        let job = Job { file: &self.file, out: &self.out, force: self.force, layout: &layout };
        let finished = panics::decoding(&self.file, || FORMATS.run(self.format, &job))?;
        print(&written(&finished, &self.out))
    }
}
