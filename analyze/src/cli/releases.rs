//! `analyze releases`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::{print, print_json};
use crate::{
    output,
    questions::memory::history::{self, HistoryReport},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// What empty_cache, pauses, process exits and phases gave back of GPU memory, what stayed, and why
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Rows shown of each table: those that gave back most
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print JSON: every row
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let history = history::run(&trace).await?;
        if self.json { print_json(&history) } else { print(&text(&history, self.top)) }
    }
}

fn bytes(value: i64) -> String {
    Bytes(value).to_string()
}

/// The `top` rows of most weight, in their order.
fn most<T>(rows: &[T], top: usize, weight: impl Fn(&T) -> i64) -> Vec<&T> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|place| std::cmp::Reverse(weight(&rows[*place])));
    places.truncate(top);
    places.sort_unstable();
    places.into_iter().map(|place| &rows[place]).collect()
}

fn title(what: &str, shown: usize, all: usize) -> String {
    if shown == all { format!("\n{what}: {all}\n") } else { format!("\n{what}: {shown} of {all}\n") }
}

fn text(history: &HistoryReport, top: usize) -> String {
    let mut text = String::new();
    let shown = most(&history.releases, top, |release| release.given_back_bytes as i64);
    if shown.is_empty() {
        text +=
            "nothing was asked to be given back, or no allocator of PyTorch was probed: see `analyze info`\n";
    } else {
        text += title("releases", shown.len(), history.releases.len()).trim_start();
        let rows: Vec<Vec<String>> = shown
            .iter()
            .map(|release| {
                let kept = [
                    (release.in_use_bytes - release.exported_bytes, "in use"),
                    (release.exported_bytes, "in use in segments given to other processes"),
                    (release.pinned_bytes as i64, "pinned by it"),
                    (release.private_bytes, "private pools"),
                    (release.releasable_bytes, "could have gone"),
                    (release.unknown_bytes, "not known"),
                ];
                let kept: Vec<String> = kept
                    .iter()
                    .filter(|(size, _)| *size != 0)
                    .map(|(size, why)| format!("{} {why}", bytes(*size)))
                    .collect();
                vec![
                    Nanos(release.since_start_ns).to_string(),
                    release.cause.to_owned(),
                    release.pid.to_string(),
                    bytes(release.before_bytes),
                    bytes(release.given_back_bytes as i64),
                    Nanos(release.dur_ns).to_string(),
                    release.calls_count.map_or_else(String::new, |count| count.to_string()),
                    release.call_p50_ns.map_or_else(String::new, |ns| Nanos(ns).to_string()),
                    release.call_max_ns.map_or_else(String::new, |ns| Nanos(ns).to_string()),
                    kept.join(" + "),
                ]
            })
            .collect();
        let header =
            ["at", "why", "process", "before", "given back", "took", "calls", "p50", "max", "stayed"];
        text += &output::columns(&header, &rows, &[0, 2, 3, 4, 5, 6, 7, 8]);
        if let Some(last) = history.releases.iter().rfind(|release| !release.others.is_empty()) {
            text += "after the last of them the device still held, besides:\n";
            for share in &last.others {
                let of = share.pid.map(|pid| format!("process {pid}: ")).unwrap_or_default();
                let name = share.library.as_deref().unwrap_or(share.part);
                text += &format!("  {} {of}{}\n", bytes(share.size_bytes), text::harmless(name));
            }
        }
    }
    if !history.pauses.is_empty() {
        let shown = most(&history.pauses, top, |pause| pause.size_bytes);
        text += &title("pauses and resumes", shown.len(), history.pauses.len());
        let rows: Vec<Vec<String>> = shown
            .iter()
            .map(|pause| {
                vec![
                    Nanos(pause.since_start_ns).to_string(),
                    pause.action.clone(),
                    pause.pid.to_string(),
                    pause.library.clone(),
                    bytes(pause.before_bytes),
                    bytes(pause.size_bytes),
                    bytes(pause.after_bytes),
                    Nanos(pause.dur_ns).to_string(),
                    pause.calls_count.to_string(),
                    Nanos(pause.call_p50_ns).to_string(),
                    Nanos(pause.call_max_ns).to_string(),
                    match (pause.action.as_str(), pause.missing_count) {
                        ("resume", 0) => "all addresses as before".to_owned(),
                        ("resume", count) => {
                            format!("{} in {count} pieces stayed away", bytes(pause.missing_bytes))
                        }
                        _ => String::new(),
                    },
                ]
            })
            .collect();
        let header =
            ["at", "", "process", "library", "before", "moved", "after", "took", "calls", "p50", "max", ""];
        text += &output::columns(&header, &rows, &[0, 2, 4, 5, 6, 7, 8, 9, 10]);
    }
    if !history.exits.is_empty() {
        let shown = most(&history.exits, top, |exit| exit.size_bytes);
        text += &title("left to the end of a process", shown.len(), history.exits.len());
        let row = |exit: &&history::ExitReport| {
            vec![
                Nanos(exit.since_start_ns).to_string(),
                exit.pid.to_string(),
                exit.library.clone(),
                bytes(exit.size_bytes),
            ]
        };
        text += &output::columns(
            &["at", "process", "library", "had"],
            &shown.iter().map(row).collect::<Vec<_>>(),
            &[0, 1, 3],
        );
    }
    if !history.phases.is_empty() {
        let change = |phase: &history::PhaseReport| {
            (phase.reserved_after_bytes - phase.reserved_before_bytes).abs()
                + (phase.active_after_bytes - phase.active_before_bytes).abs()
        };
        let shown = most(&history.phases, top, change);
        text += &title("phases", shown.len(), history.phases.len());
        let rows: Vec<Vec<String>> = shown
            .iter()
            .map(|phase| {
                vec![
                    phase.name.clone(),
                    phase.pid.to_string(),
                    Nanos(phase.dur_ns).to_string(),
                    bytes(phase.reserved_before_bytes),
                    bytes(phase.reserved_after_bytes),
                    bytes(phase.active_before_bytes),
                    bytes(phase.active_after_bytes),
                ]
            })
            .collect();
        let header = ["phase", "process", "took", "reserved", "then", "in use", "then"];
        text += &output::columns(&header, &rows, &[1, 2, 3, 4, 5, 6]);
    }
    text
}
