//! When GPU memory was over a threshold.

use trace_schema::{Bytes, Nanos};

use crate::{
    questions::{
        alerts::{Alert, Subject, Verdict},
        threshold::End,
    },
    report::{
        document::{Block, Document, Table, number, whole},
        section::size,
    },
};

/// Why there is no answer if there is none.
pub const NOTHING_READ: &str = "no GPU was read, and no allocator of PyTorch was probed: see `analyze info`";

/// Returns the name of what was measured.
pub fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Device { device } => format!("GPU {device}, in use"),
        Subject::Allocator { pid, device } => format!("process {pid}, device {device}, reserved by PyTorch"),
        Subject::Process { pid } => format!("process {pid}, on all GPUs"),
        Subject::Container { id } => format!("container {id}, on all GPUs"),
        Subject::Pod { name } => format!("pod {name}, on all GPUs"),
    }
}

fn facts(alert: &Alert) -> Vec<String> {
    let threshold = alert.threshold_bytes.map_or_else(|| "not known".to_owned(), |of| Bytes(of).to_string());
    let over = match alert.threshold_bytes {
        Some(_) => Nanos(alert.over_ns).to_string(),
        None => "an unknown part".to_owned(),
    };
    let readings = match alert.interval_ns {
        Some(interval) => format!(
            "{} readings, one every {}; {} gaps with {} in all",
            alert.readings_count,
            Nanos(interval),
            alert.gaps_count,
            Nanos(alert.gaps_ns)
        ),
        None => format!("from {} events", alert.readings_count),
    };
    let length = Nanos(alert.last_ns.saturating_sub(alert.first_ns));
    let peak = Bytes(alert.peak_bytes);
    let line = format!("threshold {threshold}, peak {peak}; over it for {over} of {length}");
    alert.reason.iter().map(ToString::to_string).chain([line, readings]).collect()
}

fn spans(alert: &Alert, start_ns: i64) -> Table {
    let rows = alert.spans.iter().map(|span| {
        let end = match span.end {
            End::Below => "fell below",
            End::Gap => "gap between readings",
            End::Last => "still over it at the end",
        };
        [
            Nanos(span.ts_ns.saturating_sub(start_ns)).to_string(),
            Nanos(span.dur_ns).to_string(),
            size(span.peak_bytes),
            end.to_owned(),
        ]
    });
    Table::texts(&[number("since start"), number("for"), number("peak"), whole("until")], rows)
}

/// Arranges the alerts of each device and allocator. Times count from `start_ns`.
pub fn document(alerts: &[Alert], warnings: Vec<String>, start_ns: i64) -> Document {
    let mut blocks = Vec::new();
    for alert in alerts {
        let subject = subject(&alert.subject);
        let verdict = match alert.verdict {
            Verdict::Alert if alert.spans.len() == 1 => "1 alert".to_owned(),
            Verdict::Alert => format!("{} alerts", alert.spans.len()),
            Verdict::None => "no alert".to_owned(),
            Verdict::Inconclusive => "inconclusive".to_owned(),
        };
        blocks.push(Block::Heading(format!("{subject}: {verdict}")));
        blocks.push(Block::List(facts(alert)));
        if !alert.spans.is_empty() {
            blocks.push(Block::Table(spans(alert, start_ns)));
        }
    }
    if alerts.is_empty() {
        blocks.push(Block::Note(NOTHING_READ.to_owned()));
    }
    blocks.push(Block::Warnings(warnings));
    Document::answer(blocks)
}
