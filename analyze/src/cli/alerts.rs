//! `analyze alerts`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::{print, print_json};
use crate::{
    output,
    questions::{
        alerts::{self, Alert, Subject, Verdict},
        info,
        threshold::{End, Threshold},
    },
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// When GPU memory was over a threshold for longer than it may be: in use of a GPU, and reserved by PyTorch
///
/// A reading of a GPU holds until the next one; more than three usual intervals between two is a gap, in which nobody
/// knows. A span over the threshold reaches from the first reading over it to the first that is not, or to a gap; if one is
/// long enough only with the gaps around it, the answer is `inconclusive`. What PyTorch's allocators reserve is known at
/// every instant. In SQL: the view memory_use.
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Threshold: a part of the GPU's memory, or a size
    #[arg(long, value_name = "PERCENT|SIZE", default_value = "90%")]
    over: Threshold,
    /// Shorter spans over it are no alert
    #[arg(long = "for", value_name = "TIME", default_value = "5m")]
    lasts: Nanos,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let alerts = alerts::run(&trace, self.over, self.lasts.0).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(&serde_json::json!({ "alerts": alerts, "warnings": warnings }));
        }
        let start_ns = trace.files().first().map_or(0, |file| file.run.clock.start_ns);
        let mut text = if alerts.is_empty() {
            "no GPU was read, and no allocator of PyTorch was probed: see `analyze info`\n".to_owned()
        } else {
            alerts.iter().map(|alert| shown(alert, start_ns)).collect()
        };
        for warning in warnings {
            text += &format!("note: {}\n", text::harmless(&warning));
        }
        print(&text)
    }
}

fn shown(alert: &Alert, start_ns: i64) -> String {
    let subject = match alert.subject {
        Subject::Device { device } => format!("GPU {device}, in use"),
        Subject::Allocator { pid, device } => format!("process {pid}, device {device}, reserved by PyTorch"),
    };
    let verdict = match alert.verdict {
        Verdict::Alert if alert.spans.len() == 1 => "1 alert".to_owned(),
        Verdict::Alert => format!("{} alerts", alert.spans.len()),
        Verdict::None => "no alert".to_owned(),
        Verdict::Inconclusive => "inconclusive".to_owned(),
    };
    let mut text = format!("{subject}: {verdict}\n");
    if let Some(reason) = &alert.reason {
        text += &format!("  {reason}\n");
    }
    let threshold = alert.threshold_bytes.map_or_else(|| "not known".to_owned(), |of| Bytes(of).to_string());
    text += &format!(
        "  threshold {threshold}, peak {}; over it for {} of {}\n",
        Bytes(alert.peak_bytes),
        alert
            .threshold_bytes
            .map_or_else(|| "an unknown part".to_owned(), |_| Nanos(alert.over_ns).to_string()),
        Nanos(alert.last_ns.saturating_sub(alert.first_ns))
    );
    text += &match alert.interval_ns {
        Some(interval) => format!(
            "  {} readings, one every {}; {} gaps with {} in all\n",
            alert.readings_count,
            Nanos(interval),
            alert.gaps_count,
            Nanos(alert.gaps_ns)
        ),
        None => format!("  from {} events\n", alert.readings_count),
    };
    if !alert.spans.is_empty() {
        let rows: Vec<Vec<String>> = alert
            .spans
            .iter()
            .map(|span| {
                vec![
                    Nanos(span.ts_ns.saturating_sub(start_ns)).to_string(),
                    Nanos(span.dur_ns).to_string(),
                    Bytes(span.peak_bytes).to_string(),
                    match span.end {
                        End::Below => "fell below",
                        End::Gap => "gap between readings",
                        End::Last => "still over it at the end",
                    }
                    .to_owned(),
                ]
            })
            .collect();
        text += &output::columns(&["  since start", "for", "peak", "until"], &rows, &[0, 1, 2]);
    }
    text
}
