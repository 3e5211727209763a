//! The accused: a workload whose calls go wrong for known reasons, and the hogs beside it. `courtroom` runs it.
//!
//! One thread, pinned to one CPU, makes thousands of calls into the stub CUDA libraries. Each computes a known amount;
//! some are told to do something else as well, see [`cuda_stub::order`]. Around each one the thread reads the kernel's
//! own books of itself and writes one line of JSON, see [`cuda_stub::truth`].
#![expect(unsafe_code, reason = "C interfaces of the real libraries and of the kernel")]
#![expect(clippy::expect_used, clippy::panic, reason = "a test program: it fails loudly")]

mod books;
mod calls;
mod hog;
mod setup;

use std::{
    fs::File,
    io::{BufWriter, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

use clap::{Args, Parser};
use cuda_stub::scenario::Scenario;

#[derive(Parser)]
enum Cli {
    /// Make the calls of a scenario
    Run(Run),
    /// Take a CPU away from other tasks
    Hog(hog::Hog),
}

#[derive(Args)]
struct Run {
    /// Directory of the stub libraries
    #[arg(long)]
    libraries: PathBuf,
    /// File for the record of each call, one JSON object per line
    #[arg(long)]
    truth: PathBuf,
    #[arg(long)]
    scenario: String,
    /// Number of calls to make
    #[arg(long)]
    calls: usize,
    /// CPU on which the calls are made
    #[arg(long)]
    cpu: usize,
    /// CPU on which the holder of a lock runs
    #[arg(long)]
    other_cpu: usize,
    /// Process id of the hog on the CPU of a lock's holder
    #[arg(long)]
    hog: Option<u32>,
    /// Control group to move into before the calls
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Path of the control group's `cpu.stat`
    #[arg(long)]
    cpu_stat: Option<PathBuf>,
    /// File shared with a hog, through which the hog is called
    #[arg(long)]
    bell: Option<PathBuf>,
    /// Path of a file on a disk, for reads past the page cache
    #[arg(long)]
    disk: PathBuf,
}

fn main() {
    match Cli::parse() {
        Cli::Hog(hog) => hog.run(),
        Cli::Run(mut run) => {
            die_with_parent();
            if let Some(group) = run.cgroup.take() {
                enter(&group);
            }
            let scenario = Scenario::find(&run.scenario).expect("a scenario's name");
            let made = calls::make(scenario, &run);
            let mut out = BufWriter::new(File::create(&run.truth).expect("create the truth's file"));
            for call in made {
                serde_json::to_writer(&mut out, &call).expect("write the truth");
                out.write_all(b"\n").expect("write the truth");
            }
            out.flush().expect("write the truth");
        }
    }
}

/// Moves into a control group and starts anew, so that the program was never elsewhere.
fn enter(group: &std::path::Path) {
    std::fs::write(group.join("cgroup.procs"), "0").expect("enter the control group");
    let mut args: Vec<_> = std::env::args_os().skip(1).collect();
    let flag = args.iter().position(|arg| arg == "--cgroup").expect("the flag that brought us here");
    args.drain(flag..flag + 2);
    let program = std::env::current_exe().expect("own path");
    let error = Command::new(program).args(args).arg("--cpu-stat").arg(group.join("cpu.stat")).exec();
    panic!("cannot start anew: {error}");
}

/// Binds the calling thread to one CPU.
fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid; the calls read it only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0, "CPU {cpu}");
    }
}

/// Ends this process when its parent's thread does.
fn die_with_parent() {
    // SAFETY: no preconditions.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
