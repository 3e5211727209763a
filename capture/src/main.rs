//! `capture`: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    capture::main()
}
