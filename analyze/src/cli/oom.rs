//! `analyze oom`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::{memory::shown_moment, print, print_json};
use crate::{
    questions::memory::history::{self, OomReport},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Why requests for GPU memory failed: what was free, in what pieces, who had the rest, and what would have made room
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Pinned segments shown of each moment
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let ooms = history::run(&trace).await?.ooms;
        if self.json {
            return print_json(&ooms);
        }
        let mut text = match ooms.len() {
            0 => "no request failed, or no allocator of PyTorch was probed: see `analyze info`\n".to_owned(),
            1 => "1 request failed\n".to_owned(),
            count => format!("{count} requests failed\n"),
        };
        for (number, oom) in ooms.iter().enumerate() {
            text += &shown(number + 1, oom, self.top);
        }
        print(&text)
    }
}

fn shown(number: usize, oom: &OomReport, top: usize) -> String {
    let bytes = |value: u64| Bytes(value as i64).to_string();
    let mut text = format!(
        "\n#{number}, {} after recording began: process {}, thread {}, device {}\n",
        Nanos(oom.since_start_ns),
        oom.pid,
        oom.tid,
        oom.device
    );
    text += &format!(
        "asked for {} ({} bytes); free in its pool and stream: {}, the largest block {}\n",
        bytes(oom.requested_bytes),
        oom.requested_bytes,
        bytes(oom.pool_free_bytes),
        bytes(oom.largest_free_bytes)
    );
    text += &match oom.is_limited {
        true => format!(
            "the device had {} free: a limit of the process forbade a segment of {} (set_per_process_memory_fraction)\n",
            bytes(oom.device_free_bytes),
            bytes(oom.segment_bytes)
        ),
        false => format!(
            "the device had {} free, for a segment of {}\n",
            bytes(oom.device_free_bytes),
            bytes(oom.segment_bytes)
        ),
    };
    text += &match oom.verdict {
        "fragmentation" => "verdict: fragmentation: enough was free, in pieces\n".to_owned(),
        "other_stream" => {
            format!(
                "verdict: other_stream: another stream had a free block of {}\n",
                bytes(oom.other_stream_bytes)
            )
        }
        _ => "verdict: capacity: more was in use than left room\n".to_owned(),
    };
    if let (Some(addr), Some(size), Some(count)) =
        (oom.hole_addr, oom.hole_in_use_bytes, oom.hole_in_use_count)
    {
        text += &format!(
            "room would have been at {addr:#x}, without {count} blocks in use there ({})\n",
            bytes(size)
        );
    }
    if let (Some(segments), Some(size), Some(count)) =
        (oom.segments_count, oom.segments_in_use_bytes, oom.segments_in_use_count)
    {
        text += &format!(
            "or in {segments} whole segments, without the {count} blocks in use in them ({})\n",
            bytes(size)
        );
    }
    text += match (oom.is_expandable, oom.expandable_helps) {
        (true, _) => "segments were expandable\n",
        (_, Some(true)) => "expandable segments would have had room, wherever the blocks had lain\n",
        (_, Some(false)) => "expandable segments would have had no room either\n",
        (_, None) => {
            "expandable segments: not known, it depends on where the blocks would have lain; `analyze what-if RUN` lays them\n"
        }
    };
    match &oom.moment {
        Some(moment) => text += &shown_moment(moment, top),
        None => text += "(the whole moment: `analyze memory RUN --at TIME`)\n",
    }
    text
}
