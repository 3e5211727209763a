//! `analyze`: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    analyze::cli::main()
}
