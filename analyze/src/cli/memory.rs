//! `analyze memory`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::{print, print_json};
use crate::{
    output,
    questions::{
        driver_memory::Driver,
        info,
        memory::{
            advice::{self, Review},
            state::{self, At, Device, Held, Moment},
        },
    },
    trace::Trace,
};
use analyze_memory::check::Difference;
use analyze_run::text;
use analyze_run::{error::AnalyzeError, symbols};

/// Functions shown of a call stack, innermost first.
const FRAMES: usize = 4;

/// Where PyTorch's memory is at an instant, to the byte, and which blocks pin what is not given back
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// The instant: peak (when most was reserved), end, a time since recording began (1.5s), or the name of a mark
    #[arg(long, value_name = "peak|end|TIME|MARK", default_value = "peak")]
    at: String,
    /// Segments shown of those that are pinned
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Say why memory came from the driver over the whole run, and what would use less
    #[arg(long)]
    advice: bool,
    /// Print JSON: every pinned segment
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        if self.advice {
            let review = advice::run(&trace).await?;
            return if self.json { print_json(&review) } else { print(&shown_review(&review)) };
        }
        let moment = state::run(&trace, &At::parse(&self.at)).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(&serde_json::json!({ "moment": moment, "warnings": warnings }));
        }
        let mut text = shown(&moment, self.top);
        for warning in warnings {
            text += &format!("note: {}\n", text::harmless(&warning));
        }
        print(&text)
    }
}

fn shown(moment: &Moment, top: usize) -> String {
    let mut text = format!(
        "{} ({} after recording began)\n",
        text::harmless(&moment.label),
        Nanos(moment.since_start_ns)
    );
    if moment.allocators.is_empty() && moment.drivers.is_empty() {
        text +=
            "\nno allocator of PyTorch had been at work by then, or none was probed: see `analyze info`\n";
    }
    text + &shown_moment(moment, top)
}

/// The devices and allocators.
pub(super) fn shown_moment(moment: &Moment, top: usize) -> String {
    let devices = moment.devices.iter().map(shown_device);
    let allocators = moment.allocators.iter().map(|held| shown_held(held, top));
    devices.chain(allocators).chain(moment.drivers.iter().map(shown_driver)).collect()
}

fn shown_review(review: &Review) -> String {
    let mut rows = Vec::new();
    for sum in &review.history.causes {
        rows.push(vec![
            sum.pid.to_string(),
            sum.device.to_string(),
            if sum.is_gain { "had" } else { "given back" }.to_owned(),
            sum.cause.to_owned(),
            sum.segments_count.to_string(),
            Bytes(sum.size_bytes as i64).to_string(),
        ]);
    }
    let mut text =
        "segments that came from the driver and went, by cause (see the view memory_requests)\n".to_owned();
    text += &output::columns(&["process", "device", "", "cause", "times", "bytes"], &rows, &[0, 1, 4, 5]);
    text += "\nadvice\n";
    if review.advice.is_empty() {
        text += "none: nothing that the run shows would free a twentieth of the peak\n";
    }
    for advice in &review.advice {
        let size = if advice.size_bytes > 0 {
            format!("at most {}", Bytes(advice.size_bytes))
        } else {
            "-".to_owned()
        };
        let of = advice.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
        text += &format!("- {} ({size}{of}): {}\n", advice.rule, text::harmless(&advice.text));
    }
    text
}

fn shown_device(device: &Device) -> String {
    let line = |what: String, bytes: i64, meaning: &str| {
        vec![what, bytes.to_string(), Bytes(bytes).to_string(), meaning.to_owned()]
    };
    let mut rows = vec![line("used".to_owned(), device.used_bytes, "")];
    for (number, share) in device.shares.iter().enumerate() {
        let sign = if number == 0 { '=' } else { '+' };
        let of = share.pid.map(|pid| format!("process {pid}: ")).unwrap_or_default();
        let library = text::harmless(share.library.as_deref().unwrap_or_default());
        let (what, meaning) = match share.part {
            "allocator" => ("PyTorch's allocator".to_owned(), "reserved, see below"),
            "library" => (library, "had from the driver by its own calls"),
            "context" => ("context".to_owned(), "with loaded code, and what the driver rounds up"),
            "process" => ("in all".to_owned(), "cannot be split"),
            "other_process" => ("in all".to_owned(), "not recorded"),
            _ => ("unexplained".to_owned(), "not ascribed to a process by the driver"),
        };
        rows.push(line(format!("{sign} {of}{what}"), share.size_bytes, meaning));
    }
    let mut text = format!("\nGPU {}\n", device.device);
    text += &output::columns(&["", "bytes", "", ""], &rows, &[1, 2]);
    let (age, since) = (Nanos(device.reading_age_ns.abs()), device.used_bytes - device.read_bytes);
    let side = if device.reading_age_ns >= 0 { "before" } else { "after" };
    text += &format!("read {age} {side}");
    if since != 0 {
        text +=
            &format!(", when {} was used: the rest is from the calls in between", Bytes(device.read_bytes));
    }
    text += "\n";
    text
}

fn shown_driver(driver: &Driver) -> String {
    let of = |(bytes, count): (&i64, &u64)| format!("{count} × {}", Bytes(*bytes));
    let sizes: Vec<String> = driver.sizes.iter().map(of).collect();
    let mut text = format!(
        "\nprocess {}: {} cudaMalloc gave {}: {}\n",
        driver.pid,
        driver.allocs_count,
        Bytes(driver.alloc_bytes),
        sizes.join(", ")
    );
    text += &match driver.held_bytes {
        Some(held) => format!("after {} cudaFree, {} of it are left\n", driver.frees_count, Bytes(held)),
        None => format!(
            "{} cudaFree gave some of it back; how much is not known: the source does not tell whose addresses those are\n",
            driver.frees_count
        ),
    };
    if driver.is_like_torch {
        text += "inferred: PyTorch's allocator asked for it, as every size is one of its segments'\n";
    }
    text + "not known: which blocks are in it, which of them are in use, and what is pinned\n"
}

fn shown_held(held: &Held, top: usize) -> String {
    let line = |what: &str, bytes: i64, meaning: &str| {
        vec![what.to_owned(), bytes.to_string(), Bytes(bytes).to_string(), meaning.to_owned()]
    };
    let mut rows = vec![
        line("reserved", held.reserved_bytes, "had from the driver"),
        line("= handed out", held.allocated_bytes, "in use"),
        line("+ pending free", held.pending_bytes, "given back, other streams may use it"),
        line("+ releasable", held.releasable_bytes, "empty_cache would give it back"),
        line("+ private pools", held.private_releasable_bytes, "unused, kept for graphs"),
        line("+ pinned", held.pinned_bytes, "free, in segments that are in use"),
        line("+ not known", held.unknown_bytes, "events are missing"),
    ];
    // What is nothing need not be read, but for the sum itself.
    let mut first = true;
    rows.retain(|row| std::mem::take(&mut first) || row[1] != "0");
    let mut text = format!("\nprocess {}, device {}\n", held.pid, held.device);
    text += &output::columns(&["", "bytes", "", ""], &rows, &[1, 2]);
    if let Some(rounding) = held.rounding_bytes.filter(|bytes| *bytes > 0) {
        text += &format!("of what is in use, {} were not asked for (rounding)\n", Bytes(rounding));
    }
    text += &format!(
        "{} segments; the largest free block has {}\n",
        held.segments_count,
        Bytes(held.largest_free_bytes as i64)
    );
    if held.outside_bytes > 0 {
        let outside = Bytes(held.outside_bytes);
        text += &format!("besides, {outside} in use in segments from before recording began\n");
    }
    if held.is_inferred {
        text += "inferred from usage reports and driver calls: pending frees count as free here\n";
    }
    if held.lost_count > 0 {
        text += &format!(
            "note: {} of its events were lost before: segments may have come or gone meanwhile\n",
            held.lost_count
        );
    }
    for (fault, count) in &held.faults {
        text += &format!("note: {count} × {fault}\n");
    }
    for difference in held.differences.iter().take(top) {
        let Difference { addr, said, replayed, .. } = difference;
        text += &format!("note: at {addr:#x} the snapshot has {said}; its events make {replayed}\n");
    }
    for setting in &held.unknown_settings {
        text += &format!("note: setting not understood: {}\n", text::harmless(setting));
    }
    if !held.pinned.is_empty() {
        text += &format!("\npinned: {} of {} segments\n", held.pinned.len().min(top), held.pinned.len());
        text += &pinned_table(held, top);
    }
    text
}

fn pinned_table(held: &Held, top: usize) -> String {
    let mut rows = Vec::new();
    for segment in held.pinned.iter().take(top) {
        let mut start = vec![
            format!("{:#x}", segment.addr),
            Bytes(segment.size_bytes as i64).to_string(),
            Bytes(segment.pinned_bytes as i64).to_string(),
        ];
        for pin in &segment.pins {
            let mut row = std::mem::replace(&mut start, vec![String::new(); 3]);
            row.push(format!("{:#x}", pin.addr));
            row.push(Bytes(pin.size_bytes as i64).to_string());
            row.push(pin.age_ns.map_or_else(|| "not known".to_owned(), |age| Nanos(age).to_string()));
            rows.push(row);
        }
        let more = segment.in_use_count.saturating_sub(segment.pins.len());
        if more > 0 {
            let mut row = vec![String::new(); 6];
            row[3] = format!("and {more} more");
            rows.push(row);
        }
    }
    let mut text =
        output::columns(&["segment", "size", "pinned", "by block", "size", "age"], &rows, &[1, 2, 4, 5]);
    let largest = held.pinned.iter().take(top).filter_map(|segment| segment.pins.first());
    for pin in largest {
        let frames =
            pin.frames.as_deref().map(|frames| symbols::innermost(frames, FRAMES)).unwrap_or_default();
        if !frames.is_empty() {
            text += &format!("{:#x} came from {}\n", pin.addr, text::harmless(&frames));
        }
    }
    text
}
