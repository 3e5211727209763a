//! Where the wall time of each process went.

use super::{percent, time};
use crate::{
    questions::where_time_went::{Part as Spent, ProcessTime, Subject},
    report::{
        data::Report,
        document::{Block, Cell, Column, Part, Row, Section, Table, number, word},
    },
};

/// Largest number of processes that are shown.
const SHOWN: usize = 8;
/// Least share of a part's time that a name has which is shown.
const LEAST_NAMED_RATIO: f64 = 0.005;

/// Returns the class of a part's colour.
fn colour(part: &str) -> &'static str {
    match part {
        "host" => "host",
        "launch" | "other_call" => "in-calls",
        "sync" => "gpu-wait",
        "alloc" => "allocation",
        "copy" => "size",
        "nccl" => "nccl",
        "module" => "first-call",
        "other_thread" | "gil" => "nested",
        "waiting_for_cpu" => "scheduler",
        "throttled" => "throttled",
        "stopped" => "stopped",
        "page_fault" => "page-fault",
        "unknown" => "inconclusive",
        _ => "blocked",
    }
}

/// Names the functions, threads or tasks of a part.
fn names(subjects: &[Subject], whole_ns: i64) -> String {
    let name = |subject: &Subject| {
        let times =
            if subject.threads_count > 1 { format!(" × {}", subject.threads_count) } else { String::new() };
        let share = percent(subject.time_ns as f64 / whole_ns.max(1) as f64);
        format!("{}{times} ({share})", subject.name)
    };
    let counts = |subject: &&Subject| subject.time_ns as f64 >= LEAST_NAMED_RATIO * whole_ns as f64;
    subjects.iter().filter(counts).map(name).collect::<Vec<_>>().join(", ")
}

/// Describes the largest parts of a process's time in a few sentences.
pub(super) fn sentence(process: &ProcessTime) -> String {
    /// Largest number of parts that are named, the least share of one, and the least share of a part that one name has.
    const NAMED: usize = 3;
    const LEAST_RATIO: f64 = 0.05;
    const MAIN_RATIO: f64 = 0.5;
    let named = process.parts.iter().take(NAMED).enumerate();
    let named = named.filter(|(place, part)| *place == 0 || part.share_ratio >= LEAST_RATIO);
    let words = |(_, part): (usize, &Spent)| {
        let main = |subject: &&Subject| subject.time_ns as f64 >= MAIN_RATIO * part.time_ns as f64;
        let main = part.subjects.first().filter(main).map_or_else(String::new, |subject| {
            format!(" – {}", names(std::slice::from_ref(subject), part.time_ns))
        });
        format!("for {} of it, it {}{main}", percent(part.share_ratio), part.meaning())
    };
    let parts: Vec<String> = named.map(words).collect();
    let start_up = process
        .start_up_ns
        .filter(|ns| *ns > 0)
        .map_or_else(String::new, |ns| format!(" The first launch came after {}.", time(ns as f64)));
    let gpu = process
        .gpu_busy_ns
        .map_or_else(String::new, |ns| format!(" The GPU is on record as busy for {}.", time(ns as f64)));
    let wall = time(process.wall_ns as f64);
    format!("Process {} took {wall}: {}.{start_up}{gpu}", process.pid, parts.join("; "))
}

/// Builds the section; `None` if no process made calls.
pub(super) fn build(report: &Report) -> Option<Section> {
    let if_known = |ns: Option<i64>| ns.map_or_else(|| "–".to_owned(), |ns| time(ns as f64));
    let mut blocks = Vec::new();
    for process in report.run_time.iter().take(SHOWN) {
        let (has_start_up, has_gpu) = (process.start_up_ns.is_some(), process.gpu_busy_ns.is_some());
        let columns = [
            Some(word("The process")),
            Some(number("Time")),
            Some(number("Share")),
            has_start_up.then(|| number("Start-up")),
            has_gpu.then(|| number("GPU idle")),
            Some(word("Functions, threads or tasks")),
        ];
        let columns: Vec<Column> = columns.into_iter().flatten().collect();
        let row = |part: &Spent| -> Row {
            let meaning = Cell { swatch: Some(colour(&part.part).to_owned()), ..Cell::from(part.meaning()) };
            let cells = [
                Some(meaning),
                Some(time(part.time_ns as f64).into()),
                Some(percent(part.share_ratio).into()),
                has_start_up.then(|| if_known(part.start_up_ns).into()),
                has_gpu.then(|| if_known(part.gpu_idle_ns).into()),
                Some(names(&part.subjects, part.time_ns).into()),
            ];
            cells.into_iter().flatten().collect::<Vec<Cell>>().into()
        };
        let part = |part: &Spent| {
            let name = part.part.replace('_', " ");
            Part::of_time(&name, colour(&part.part), part.meaning(), part.time_ns as f64, part.share_ratio)
        };
        let sql = format!("SELECT * FROM run_time WHERE pid = {} ORDER BY time_ns DESC", process.pid);
        let rows = process.parts.iter().map(row).collect();
        blocks.push(Block::Parts(process.parts.iter().map(part).collect()));
        blocks.push(Block::Table(Table::new(&columns, rows, &sql).caption(format!(
            "Process {}, {}",
            process.pid,
            time(process.wall_ns as f64)
        ))));
    }
    if blocks.is_empty() {
        return None;
    }
    blocks.push(Block::Note(
        "The account follows the thread that launches most, and while that one sleeps, the thread that woke it: time that several threads spend at once counts once, and the parts sum to the wall time. Start-up is what passed before the first launch.".to_owned(),
    ));
    Some(Section {
        id: "run-time",
        short: "Wall time",
        question: "Where did the run's time go?".to_owned(),
        blocks,
    })
}
