//! `analyze what-if`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::{print, print_json};
use crate::{
    questions::what_if::{self, Explained, Outcome, Params, WhatIf},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// What PyTorch would have reserved with other settings of its allocator
///
/// The run's requests are served anew by the allocator's own rules (which free block serves a request, when the driver is
/// asked, what is given back when the device is full); blocks are given back when they were, and unused memory at least then. The rules with the run's
/// own settings must reserve what the record says after every request: where they do not, the difference is stated, and
/// what is less than it is inconclusive.
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Settings to try, as in PYTORCH_CUDA_ALLOC_CONF, each on its own; without any, some usual ones
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,
    /// What the device can have at most, for all segments; without it, what it had when a request failed, if one did
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// Whether requests that are known from elsewhere (lines BYTES or BYTES,NAME, kept: a model's weights in the order in
    /// which they are loaded) explain the sizes of the run's cudaMalloc, and what of it they leave free
    #[arg(long, value_name = "FILE", conflicts_with = "capacity")]
    requests: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        if let Some(path) = &self.requests {
            let explained = what_if::explain(&trace, path, self.conf.first().map(String::as_str)).await?;
            if self.json {
                return print_json(&explained);
            }
            return print(&match explained.as_slice() {
                [] => "no cudaMalloc is on record: see `analyze info`\n".to_owned(),
                all => all.iter().map(shown_explained).collect::<Vec<_>>().join("\n"),
            });
        }
        let capacity_bytes = self.capacity.map(|Bytes(bytes)| bytes.max(0) as u64);
        let params = Params { settings: self.conf, capacity_bytes };
        let found = what_if::run(&trace, &params).await?;
        if self.json {
            return print_json(&found);
        }
        print(&match found.as_slice() {
            [] => "no requests of PyTorch's allocator are on record: see `analyze info`\n".to_owned(),
            all => all.iter().map(shown).collect::<Vec<_>>().join("\n"),
        })
    }
}

fn bytes(value: u64) -> String {
    Bytes(value as i64).to_string()
}

fn shown(found: &WhatIf) -> String {
    let mut text = format!(
        "process {}, device {}: {} requests served, {} failed; at most {} reserved\n",
        found.pid,
        found.device,
        found.requests_count,
        found.failed_count,
        bytes(found.peak_reserved_bytes)
    );
    text += &match found.control_equal_count == found.requests_count {
        true => "control: the same settings reserve what the record says after each of them\n".to_owned(),
        false => String::new(),
    };
    if let Some(capacity) = found.capacity_bytes {
        text += &format!(
            "room on the device: {}, as the first request that failed tells, or --capacity\n",
            bytes(capacity)
        );
    }
    text += "\n  at most      saved    at the end  asked  given back  settings\n";
    let record = [
        bytes(found.peak_reserved_bytes),
        String::new(),
        bytes(found.end_reserved_bytes),
        found.asked_count.to_string(),
        found.given_back_count.to_string(),
    ];
    text += &line(&record, "(the record)");
    for outcome in &found.outcomes {
        let saved = match outcome.saved_bytes {
            Some(saved) if outcome.is_known => Bytes(saved).to_string(),
            Some(_) => "inconclusive".to_owned(),
            None => "-".to_owned(),
        };
        let cells = [
            bytes(outcome.peak_reserved_bytes),
            saved,
            bytes(outcome.end_reserved_bytes),
            outcome.asked_count.to_string(),
            outcome.given_back_count.to_string(),
        ];
        text += &line(&cells, &format!("{}{}", text::harmless(&outcome.settings), ended(outcome)));
    }
    for note in &found.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn line([peak, saved, end, asked, given]: &[String; 5], settings: &str) -> String {
    format!("{peak:>9} {saved:>12} {end:>11} {asked:>6} {given:>11}  {settings}\n")
}

fn ended(outcome: &Outcome) -> String {
    let requested = bytes(outcome.ended_requested_bytes.unwrap_or_default());
    match (outcome.serves_since_start_ns, outcome.fails_since_start_ns) {
        (Some(ts), _) => {
            format!(": serves the {requested} that failed at {}; the rest is not known", Nanos(ts))
        }
        (_, Some(ts)) => {
            format!(": out of memory at {}, for {requested}, if there was no more room", Nanos(ts))
        }
        _ => String::new(),
    }
}

fn shown_explained(found: &Explained) -> String {
    let compared = found.recorded_count.min(found.predicted_count);
    let mut text = format!(
        "process {}: {} of {compared} cudaMalloc, in order, have the sizes that PyTorch's allocator asks for to serve the {} requests\n",
        found.pid, found.equal_count, found.requests_count
    );
    if found.equal_count < compared {
        text += "inconclusive: the process asked for something else, or in another order, or has other settings (--conf)\n";
        return text;
    }
    text += &match found.recorded_count.checked_sub(found.predicted_count) {
        Some(0) => String::new(),
        Some(more) => format!("{more} more cudaMalloc are on record, for what is not among them\n"),
        None => format!(
            "{} more segments would be needed than are on record\n",
            found.predicted_count - found.recorded_count
        ),
    };
    text += "inferred: no event of the allocator says where these blocks are\n\n";
    text += &format!(
        "reserved {} = in use {} + free beside it {} + unused segments {}\n",
        bytes(found.reserved_bytes),
        bytes(found.allocated_bytes),
        bytes(found.reserved_bytes - found.allocated_bytes - found.releasable_bytes),
        bytes(found.releasable_bytes)
    );
    text += &format!("empty_cache would give back {}\n", bytes(found.releasable_bytes));
    for rests in &found.rests {
        let names = rests.pinned_by.iter().map(|name| text::harmless(name)).collect::<Vec<_>>().join(", ");
        text += &format!("{:>7} × {:>9}", rests.count, bytes(rests.size_bytes));
        text += &match names.is_empty() {
            true => "\n".to_owned(),
            false => format!("  beside {names}\n"),
        };
    }
    text
}
