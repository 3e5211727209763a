//! The list of the targets.

use analyze_run::random::Random;

use super::{capture, imports, rows, runs, texts};
use crate::{
    mutate::{bytes, elf, frames, gzip, json, parquet, pickle, protobuf, recording, sqlite, text},
    seeds::{self, traces},
    target::{Outcome, Target},
};

/// Words that mean something in the texts of perf and ftrace.
const SCHED: &[&str] = &[
    "sched_switch: ",
    "sched_waking: ",
    "sched_wakeup: ",
    "sched_migrate_task: ",
    "sched_process_exec: filename=/bin/a pid=7 old_pid=7",
    "task_newtask: pid=8 comm=b clone_flags=3d0f00 oom_score_adj=0",
    "sched_process_exit: comm=a pid=7 prio=120",
    "PERF_RECORD_LOST lost 7",
    "CPU:1 [LOST 5 EVENTS]",
    " ==> ",
    " prev_state=D|N",
    " next_comm=<...>",
    "[000] ",
    " d.h2. ",
    "<idle>-0 ",
    "# clockid: monotonic (1)",
    "# reference time: 2026-01-01 = 1767225600.5 (TOD) = 45484.5 (monotonic)",
    "# entries-in-buffer/entries-written: 7/9",
];
/// Words that mean something in gate files.
const GATES: &[&str] = &[
    "gates = [",
    "alpha = 0.4",
    "resolution = \"5%\"",
    "< +5%",
    "> -5%",
    " floor 2us",
    "(*)",
    "p99(f; g)",
    "64MiB",
    "'''",
    "[[",
    "{ a = 1 }",
];
/// Words that mean something in the header of a query.
const QUERIES: &[&str] = &[
    "-- needs: events",
    "-- alias: other",
    "-- params:",
    "-- columns:",
    "-- metrics:",
    "-- measured with: frees_ns",
    "--   name  ty  unit  meaning",
    "--",
];
/// Words that mean something in symbols, and characters of their grammars.
const SYMBOLS: &[&str] =
    &["_ZN", "_Z", "_R", "St", "S_", "T_", "E", "I", "Li0E", "N3foo", "17h", "Dp", "X", "ad", "0x1", ";"];
/// Words that mean something in a datagram with marks.
const MARKS: &[&str] = &["begin a", "end a", "begin epoch 1", "end epoch 1", "point", "\n"];
/// Words that mean something in what describes a process, and in its command line.
const PROCESSES: &[&str] = &[
    "__version__ = '2.1'",
    "nr_throttled 3",
    "throttled_usec 18446744073709551615",
    "/kubepods/pod",
    "docker-",
    "NCCL_BUFFSIZE=",
    "--password ",
    "HF_TOKEN=",
    "Authorization: ",
    "://",
    "a:b@c",
    "\\\"",
];

fn sched(data: &mut Vec<u8>, random: &mut Random) {
    text::with(data, SCHED, random);
}

/// Changes a table of rows, by its format.
fn table(data: &mut Vec<u8>, random: &mut Random) {
    match data.first_chunk() {
        Some(b"PAR1") => parquet::parquet(data, random),
        Some(b"ARRO") => bytes::words(data, random),
        Some([b'{', ..]) => json::json(data, random),
        _ => text::text(data, random),
    }
}

fn tables() -> Vec<Vec<u8>> {
    let runs = seeds::runs::runs().into_iter().take(2).collect();
    [traces::rows(), seeds::runs::arrow(), runs].concat()
}

/// Changes a datagram with marks within its frame.
fn marks(data: &mut Vec<u8>, random: &mut Random) {
    let mut datagrams: Vec<Vec<u8>> = frames::split(data).into_iter().map(<[u8]>::to_vec).collect();
    match datagrams.is_empty() || random.below(3) == 0 {
        true => frames::frames(data, random),
        false => {
            let at = random.below(datagrams.len());
            let head = datagrams[at].len().min(3);
            let mut lines = datagrams[at].split_off(head);
            text::with(&mut lines, MARKS, random);
            datagrams[at].extend(lines);
            *data = frames::join(&datagrams);
        }
    }
}

/// Changes one of the Parquet files of an export that is a folder.
fn folder(data: &mut Vec<u8>, random: &mut Random) {
    let mut files: Vec<Vec<u8>> = frames::split(data).into_iter().map(<[u8]>::to_vec).collect();
    let count = files.len();
    if count > 0 {
        parquet::parquet(&mut files[random.below(count)], random);
        *data = frames::join(&files);
    }
}

const fn target(
    name: &'static str,
    about: &'static str,
    run: fn(&[u8]) -> Outcome,
    seeds: fn() -> Vec<Vec<u8>>,
    mutate: fn(&mut Vec<u8>, &mut Random),
) -> Target {
    Target { name, about, run, seeds, mutate }
}

/// Every target.
pub static TARGETS: &[Target] = &[
    target(
        "run",
        "A run: footer, pages, `info` and `chains`",
        runs::run,
        seeds::runs::runs,
        parquet::parquet,
    ),
    target(
        "rows",
        "A run whose file is right and whose rows are odd",
        rows::rows,
        seeds::runs::rows,
        |data, random| {
            bytes::records(data, rows::RECORD_BYTES, random);
        },
    ),
    target(
        "recording",
        "An interrupted recording",
        runs::recording,
        seeds::runs::recordings,
        recording::recording,
    ),
    target("baseline", "A baseline", runs::baseline, seeds::runs::baselines, parquet::parquet),
    target(
        "recognized",
        "A file of any format, also with gzip",
        imports::recognized,
        traces::compressed,
        |data, random| {
            gzip::with(data, text::text, random);
        },
    ),
    target("kineto", "A trace of PyTorch's profiler", imports::kineto, traces::kineto, json::json),
    target("nsys", "A database of Nsight Systems", imports::nsys, seeds::databases::nsys, sqlite::sqlite),
    target(
        "nsys_folder",
        "A folder of Nsight Systems",
        imports::nsys_folder,
        seeds::runs::nsys_folders,
        folder,
    ),
    target("ingero", "A database of ingero", imports::ingero, seeds::databases::ingero, sqlite::sqlite),
    target("perfetto", "A trace of Perfetto", imports::perfetto, traces::perfetto, protobuf::protobuf),
    target("perf", "A text of perf", imports::perf, traces::perf, sched),
    target("ftrace", "A text of ftrace", imports::ftrace, traces::ftrace, sched),
    target(
        "torch_snapshot",
        "A pickle of PyTorch's allocator",
        imports::torch_snapshot,
        traces::snapshots,
        pickle::pickle,
    ),
    target("events", "Rows as CSV, JSON lines, Arrow or Parquet", imports::events, tables, table),
    target("csv", "A table of any tool, with a map", imports::csv, traces::csv, text::text),
    target("gates", "A gate file", texts::gates, seeds::texts::gates, |data, random| {
        text::with(data, GATES, random);
    }),
    target("queries", "The header of a query file", texts::queries, seeds::texts::queries, |data, random| {
        text::with(data, QUERIES, random);
    }),
    target(
        "requests",
        "A list of requests for `what-if`",
        texts::requests,
        seeds::texts::requests,
        text::text,
    ),
    target(
        "symbols",
        "Names of functions, and call stacks",
        texts::symbols,
        seeds::texts::symbols,
        |data, random| {
            text::with(data, SYMBOLS, random);
        },
    ),
    target("elf", "A library of a traced process", capture::elf, seeds::elf::elf, elf::elf),
    target("perf_map", "A map of generated code", capture::perf_map, seeds::texts::perf_maps, text::text),
    target("marks", "Datagrams at the socket for marks", capture::marks, seeds::texts::marks, marks),
    target(
        "kernel_events",
        "Events of the eBPF programs",
        capture::kernel_events,
        seeds::events::events,
        frames::frames,
    ),
    target(
        "process_texts",
        "Texts that describe a process",
        capture::process_texts,
        seeds::texts::process_texts,
        |data, random| {
            text::with(data, PROCESSES, random);
        },
    ),
    target(
        "command_line",
        "A command line with secrets",
        capture::command_line,
        seeds::texts::command_lines,
        |data, random| {
            text::with(data, PROCESSES, random);
        },
    ),
];

/// Returns the target with this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
