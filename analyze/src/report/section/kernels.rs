//! What the GPU did, as an imported profile has it: its busy time, its idle time by what the host did, and the kernels.

use super::{percent, time};
use crate::{
    questions::{kernels::Kernel, where_time_went::ProcessTime},
    report::{
        data::Report,
        document::{Block, Row, Section, Table, number, word},
    },
};

/// Largest number of processes that are shown.
const SHOWN: usize = 8;

/// Returns how long GPUs had work of a process and how long they had none, in nanoseconds, between the first and the last work
/// on record; `None` if no work is.
fn busy_and_idle(process: &ProcessTime) -> Option<(i64, i64)> {
    let busy_ns = process.gpu_busy_ns?;
    let idle = process.parts.iter().filter_map(|part| part.gpu_idle_ns);
    Some((busy_ns, idle.fold(0, i64::saturating_add)))
}

/// Returns the kernels with most time, and how long the GPU was busy, in one or two sentences; `None` if no kernel is on record.
pub(super) fn sentence(report: &Report) -> Option<String> {
    /// Number of kernels that are named.
    const NAMED: usize = 3;
    let kernels = report.kernels.as_ref().filter(|kernels| kernels.runs_count > 0)?;
    let busy =
        report.run_time.first().and_then(busy_and_idle).map_or_else(String::new, |(busy_ns, idle_ns)| {
            let span_ns = busy_ns.saturating_add(idle_ns);
            format!(
                "busy for {} of the {} that its profile covers ({}). ",
                time(busy_ns as f64),
                time(span_ns as f64),
                percent(busy_ns as f64 / span_ns.max(1) as f64)
            )
        });
    let word = |kernel: &Kernel| format!("{} ({})", kernel.short_name(), percent(kernel.share_ratio));
    let named: Vec<String> = kernels.kernels.iter().take(NAMED).map(word).collect();
    Some(format!("{busy}Most time of its {} kernels went to {}.", kernels.runs_count, named.join(", ")))
}

fn idle_table(process: &ProcessTime, idle_ns: i64) -> Table {
    let mut parts: Vec<_> = process
        .parts
        .iter()
        .filter_map(|part| Some((part.meaning(), part.gpu_idle_ns.filter(|ns| *ns > 0)?)))
        .collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let row = |(meaning, ns): &(&'static str, i64)| -> Row {
        let share = percent(*ns as f64 / idle_ns.max(1) as f64);
        vec![(*meaning).into(), time(*ns as f64).into(), share.into()].into()
    };
    let columns = [word("Meanwhile, the process"), number("GPU idle"), number("Share")];
    let sql = format!(
        "SELECT part, sum(gpu_idle_ns) AS gpu_idle_ns FROM run_time WHERE pid = {} GROUP BY part ORDER BY 2 DESC",
        process.pid
    );
    Table::new(&columns, parts.iter().map(row).collect(), &sql).caption(format!(
        "Process {}: GPU idle for {}",
        process.pid,
        time(idle_ns as f64)
    ))
}

/// Builds the section; `None` if no kernel is on record.
pub(super) fn build(report: &Report) -> Option<Section> {
    let kernels = report.kernels.as_ref().filter(|kernels| kernels.runs_count > 0)?;
    let mut blocks = vec![Block::Note(format!(
        "{} kernels of {} names are on record, {} in all. They come from a profile that was imported or joined with the run.",
        kernels.runs_count,
        kernels.names_count,
        time(kernels.total_ns as f64)
    ))];
    for process in report.run_time.iter().take(SHOWN) {
        let Some((busy_ns, idle_ns)) = busy_and_idle(process) else { continue };
        let span_ns = busy_ns.saturating_add(idle_ns);
        blocks.push(Block::Note(format!(
            "Process {}: the GPU was busy for {} of the {} from the first to the last work on record ({}).",
            process.pid,
            time(busy_ns as f64),
            time(span_ns as f64),
            percent(busy_ns as f64 / span_ns.max(1) as f64)
        )));
        if idle_ns > 0 {
            blocks.push(Block::Table(idle_table(process, idle_ns)));
        }
    }
    let row = |kernel: &Kernel| -> Row {
        let name = if kernel.name.is_empty() { "(without a name)" } else { kernel.name.as_str() };
        vec![
            name.into(),
            kernel.runs_count.into(),
            time(kernel.total_ns as f64).into(),
            percent(kernel.share_ratio).into(),
            time(kernel.total_ns as f64 / kernel.runs_count.max(1) as f64).into(),
            time(kernel.longest_ns as f64).into(),
        ]
        .into()
    };
    let columns =
        [word("Kernel"), number("Runs"), number("Time"), number("Share"), number("Mean"), number("Longest")];
    let sql = "SELECT name, count(*) AS runs_count, sum(dur) AS total_ns FROM device_work WHERE op = 'kernel' GROUP BY name ORDER BY 3 DESC";
    let table = Table::new(&columns, kernels.kernels.iter().map(row).collect(), sql);
    blocks.push(Block::Table(table.of(kernels.names_count)));
    Some(Section {
        id: "kernels",
        short: "Kernels",
        question: "What did the GPU run, and when did it idle?".to_owned(),
        blocks,
    })
}
