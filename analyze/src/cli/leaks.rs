//! `analyze leaks`.

use std::path::PathBuf;

use trace_schema::Bytes;

use super::{print, print_json};
use crate::{output, questions::info, trace::Trace};
use analyze_memory::leaks::{
    account::{Account, Suspect},
    growth::{self, Bin, Growth, Params},
};
use analyze_run::text;
use analyze_run::{error::AnalyzeError, symbols};

/// Whether the memory of PyTorch's allocator leaks, from where, or what else lets it grow
///
/// The run is divided into epochs; the first tenth is warm-up, and what follows the last is not judged. What is handed out
/// at the end of the last epoch is accounted for block by block. A site (call stack, size class, thread, stream) has a
/// horizon: the age in epochs after which it gives back at most a tenth of its blocks. Blocks that are older and still
/// there were kept. A site leaks if it kept blocks of five epochs or more, in each third of the run, and what it holds
/// increases, by half of what it kept or more; trends are Theil and Sen's slope with Sen's 95 % confidence interval. A cache that is still being filled when
/// recording ends cannot be told from a leak.
///
/// Verdicts: leak; one-off growth (kept, by sites that do not go on); fragmentation (handed out flat, reserved grows, most of
/// it pinned by blocks in use); caching (the same, most of it releasable, or half of what is reserved is free); none;
/// inconclusive (events are missing, too few epochs, or growth in blocks that are replaced).
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Marks that are the epochs, by the name of any of them ("epoch 1" stands for all "epoch N"), or `allocations`: equal numbers
    /// of them. Without it, the marks that fit best, if any do
    #[arg(long, value_name = "MARK|allocations")]
    epochs: Option<String>,
    /// Sites shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    /// Print JSON: every site, every epoch
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let growth = growth::run(&trace.events(), trace.files(), &Params { epochs: self.epochs }).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(&serde_json::json!({ "allocators": growth, "warnings": warnings }));
        }
        let shown: Vec<String> = growth.iter().map(|growth| shown(growth, self.top)).collect();
        let mut text = match shown.as_slice() {
            [] => "no allocator of PyTorch was at work, or none was probed: see `analyze info`\n".to_owned(),
            parts => parts.join("\n"),
        };
        for warning in warnings {
            text += &format!("note: {}\n", text::harmless(&warning));
        }
        print(&text)
    }
}

fn shown(growth: &Growth, top: usize) -> String {
    let mut text = format!("process {}, device {}: {}\n", growth.pid, growth.device, growth.verdict.name());
    for reason in &growth.reasons {
        text += &format!("  {}\n", text::harmless(reason));
    }
    text += &format!(
        "\n{} epochs ({}), the first {} of them warm-up\n",
        growth.epochs_count,
        text::harmless(&growth.epochs.label()),
        growth.warm_up_count
    );
    text += &account(&growth.account);
    for (what, trend) in [("live", growth.live_trend), ("reserved", growth.reserved_trend)] {
        if let Some(trend) = trend {
            let bytes = |value: f64| Bytes(value.round() as i64);
            text += &format!(
                "{what} at the ends of epochs: {} an epoch (Theil-Sen; 95 %: {} to {})\n",
                bytes(trend.bytes_per_epoch),
                bytes(trend.low_bytes_per_epoch),
                bytes(trend.high_bytes_per_epoch)
            );
        }
    }
    if !growth.sites.is_empty() {
        text += &format!("\nkept by: {} of {} sites\n", growth.sites.len().min(top), growth.sites.len());
        text += &sites(&growth.sites, top);
    }
    text += &histogram("age (epochs)", &growth.ages, |age| age.to_string());
    text += &histogram("size", &growth.sizes, |size| Bytes(size as i64).to_string());
    text
}

fn account(account: &Account) -> String {
    let line = |what: &str, bytes: i64, meaning: &str| {
        vec![what.to_owned(), bytes.to_string(), Bytes(bytes).to_string(), meaning.to_owned()]
    };
    let rows = [
        line("live at the end of the warm-up", account.before_bytes, ""),
        line("- given back since", account.given_back_bytes, ""),
        line("+ leaked", account.leaked_bytes, "kept, by sites that go on keeping"),
        line("+ kept once", account.kept_once_bytes, "kept, by sites that do not"),
        line("+ young", account.young_bytes, "not older than what their site gives back"),
        line("= live at the end of the last epoch", account.after_bytes, ""),
    ];
    output::columns(&["", "bytes", "", ""], &rows, &[1, 2])
}

fn sites(sites: &[Suspect], top: usize) -> String {
    let mut rows = Vec::new();
    let mut named = Vec::new();
    for (number, site) in sites.iter().take(top).enumerate() {
        let sizes = if site.smallest_bytes == site.largest_bytes {
            site.smallest_bytes.to_string()
        } else {
            format!("{}-{}", site.smallest_bytes, site.largest_bytes)
        };
        rows.push(vec![
            format!("#{}", number + 1),
            if site.is_leak { "leak" } else { "once" }.to_owned(),
            site.blocks_count.to_string(),
            Bytes(site.blocks_bytes).to_string(),
            Bytes(site.bytes_per_epoch.round() as i64).to_string(),
            format!("{:.0} %", site.share_ratio * 100.0),
            format!("{}/{}", site.generations_count, site.possible_count),
            format!("{}-{}", site.first_epoch, site.last_epoch),
            site.horizon_epochs.to_string(),
            sizes,
            site.tid.map_or_else(|| "any".to_owned(), |tid| tid.to_string()),
            site.stream.map_or_else(|| "any".to_owned(), |stream| format!("{stream:#x}")),
        ]);
        let examples = site.examples.iter().map(|block| format!("{:#x}", block.addr));
        named.push(format!("#{}: {}\n", number + 1, examples.collect::<Vec<_>>().join(", ")));
        if let Some(frames) = &site.frames {
            named.push(format!("    from {}\n", text::harmless(&symbols::innermost(frames, 4))));
        }
    }
    let header = [
        "site",
        "",
        "blocks",
        "kept",
        "an epoch",
        "share",
        "in epochs",
        "from-to",
        "horizon",
        "bytes each",
        "thread",
        "stream",
    ];
    output::columns(&header, &rows, &[2, 3, 4, 5, 6, 7, 8]) + &named.concat()
}

fn histogram(what: &str, bins: &[Bin], name: impl Fn(u64) -> String) -> String {
    if bins.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = bins
        .iter()
        .map(|bin| {
            vec![format!("from {}", name(bin.from)), bin.count.to_string(), Bytes(bin.bytes).to_string()]
        })
        .collect();
    format!("\nalive at the end, from after the warm-up, by {what}\n")
        + &output::columns(&["", "blocks", "bytes"], &rows, &[1, 2])
}
