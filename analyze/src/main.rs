//! `analyze`: turns runs into verdicts. Parse, run, exit code; everything else has a room of its own.

mod absent;
mod analysis;
mod catalog;
mod cli;
mod columns;
mod compare;
mod error;
mod export;
mod frames;
mod functions;
mod hash;
mod import;
mod memory;
mod output;
mod planner;
mod progress;
mod protobuf;
mod random;
mod ranges;
mod reading;
mod report;
mod rewrite;
mod run_table;
#[cfg(test)]
mod slt;
mod sql_error;
mod trace;
mod views;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("analyze: {error}");
            error.exit_code()
        }
    }
}
