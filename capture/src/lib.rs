//! `capture`: records what a CUDA process asked of the GPU, what PyTorch's allocator did and what the
//! scheduler did to its threads, into one Parquet file.
//!
//! The program is [`main`], and [`command`] what its command line may be; [`foreign`] is for fuzz targets. Nothing else is public.

mod attach;
mod bench;
mod btf;
mod caller;
mod cgroup;
mod check;
mod cli;
mod clock;
mod decode;
mod demo;
mod describe;
mod elf;
mod environment;
mod error;
pub mod foreign;
mod host;
mod kernel;
mod known;
mod launch;
mod lost;
mod mark_socket;
mod multi;
mod nvml;
mod options;
mod outcome;
mod perf_map;
mod privileges;
mod probes;
mod progress;
#[cfg(test)]
mod reference;
mod sandbox;
mod seccomp;
mod session;
mod stacks;
mod torch_version;

use std::process::ExitCode;

pub use cli::command;

/// Runs the command line; an error is printed, and its exit code returned.
pub fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            error::say(&format!("capture: {error}"));
            error.exit_code()
        }
    }
}
