//! `analyze import`.

use std::path::PathBuf;

use trace_schema::Bytes;

use super::print;
use analyze_import as import;
use analyze_run::error::AnalyzeError;

/// Turn another tool's trace into a run
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub struct Args {
    /// What the file is [default: what its content says]
    #[arg(value_enum)]
    format: Option<import::Format>,
    /// The file to read; it is never written to
    file: PathBuf,
    /// Of csv: which column is which of a run, as ts=time_ns,dur=lat_us:us,tid=tid,op=func,kind='call',pid='0'; times may
    /// have a unit (ns, us, ms, s), and a value in quotes is the same in each row
    #[arg(long, value_name = "COLUMN=NAME,…", value_parser = import::Map::parse)]
    map: Option<import::Map>,
    /// Of csv: what stands between cells; `tab` is one
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// The run to write
    #[arg(long, value_name = "RUN.parquet")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("it is no single character, nor `tab`".to_owned()),
    }
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let is_csv = self.format == Some(import::Format::Csv);
        if !is_csv && (self.map.is_some() || self.delimiter != b',') {
            let why = "--map and --delimiter are for the format csv: analyze import csv FILE --map …";
            return Err(AnalyzeError::Query(why.to_owned()));
        }
        let layout = import::Layout { map: self.map, delimiter: self.delimiter };
        let finished = import::run(self.format, &layout, &self.file, &self.out, self.force)?;
        let size = Bytes(finished.size_bytes as i64);
        print(&format!("{} events, {size}: {}\n", finished.rows_count, self.out.display()))
    }
}
