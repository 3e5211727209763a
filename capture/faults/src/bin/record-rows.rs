//! Records rows that say whether they are whole, as a recorder does, and says what it has written out.
//!
//! On standard output stand the times in ns of rows that it has and, after `flushed`, the time of the last row that was written
//! out. It ends with 0, or with 5 and the error.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use fault_injection::rows;
use trace_schema::{Bytes, Clock, Run};
use trace_writer::{Finished, Parts, WriteError};

/// The exit code when reading or writing failed.
const EXIT_IO: u8 = 5;
/// Time between two rows, and between two flushes: that of `capture`.
const ROW: Duration = Duration::from_millis(1);
const FLUSH: Duration = Duration::from_millis(500);
/// Rows after which a time is printed.
const SAY: i64 = 10;

/// Record rows that say whether they are whole
#[derive(Parser)]
struct Args {
    /// The run to write
    #[arg(long)]
    out: PathBuf,
    /// Replace the run if it exists, and discard an unfinished recording of it
    #[arg(long)]
    force: bool,
    /// Number of rows
    #[arg(long)]
    rows: i64,
    /// Write parts whose recordings have at least this size in bytes
    #[arg(long)]
    part_bytes: Option<i64>,
    /// Wait a millisecond between two rows; without it, rows come as fast as they can, and time is counted by them
    #[arg(long)]
    timed: bool,
}

/// Says the time of a row. Nobody may be listening.
fn say(what: &str, ts: i64) {
    let _ = writeln!(io::stdout(), "{what}{ts}");
}

fn record(args: &Args) -> Result<Finished, WriteError> {
    let clock = Clock { start_ns: 1, ..Clock::default() };
    let start = Run { producer: "record-rows".to_owned(), clock, ..Run::default() };
    let part = Run { lost_is_counted: true, ..start.clone() };
    let mut parts = Parts::create(&args.out, args.force, args.part_bytes.map(Bytes), &start)?;
    parts.begun()?;
    let began = Instant::now();
    let (mut last_ns, mut flushed_ns) = (0, 0);
    for number in 0..args.rows {
        let counted = ROW * (number as u32 + 1);
        if args.timed {
            thread::sleep(counted.saturating_sub(began.elapsed()));
        }
        let now = if args.timed { began.elapsed() } else { counted };
        // Two rows may come at once after a pause.
        last_ns = (now.as_nanos() as i64).max(last_ns + 1);
        parts.push(&rows::row(number, last_ns))?;
        if number % SAY == 0 {
            say("", last_ns);
        }
        if last_ns - flushed_ns >= FLUSH.as_nanos() as i64 {
            parts.flush()?;
            flushed_ns = last_ns;
            say("flushed ", last_ns);
            if parts.is_full() {
                parts.next(&part)?;
            }
        }
    }
    parts.finish(&rows::finished(&start))
}

fn main() -> ExitCode {
    match record(&Args::parse()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "record-rows: {error}");
            ExitCode::from(EXIT_IO)
        }
    }
}
