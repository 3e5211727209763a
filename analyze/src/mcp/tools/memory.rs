//! `memory`: where the GPU's memory was at an instant, to the byte.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::question::{Question, own};
use crate::{
    mcp::{
        answer::{self, Answer, with_id},
        id::Id,
        runs::Runs,
    },
    questions::{
        info,
        memory::state::{self, At, Held, Moment},
        thing::Thing,
    },
};
use analyze_run::error::AnalyzeError;

/// The arguments of `memory`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Path of the run, as open lists it; not needed if there is only one.
    run: Option<String>,
    /// The instant: peak (when most was reserved, the default), end, a time since recording began (1.5s), or the name of a mark.
    at: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "Where the GPU's memory was at an instant, to the byte: allocated, pending free, reclaimable, unused in \
        private pools, and pinned by live blocks, which are named with their call stacks; and who had the rest of the device. The \
        parts of each allocator sum to what it reserved.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        let opened = runs.get(self.run.as_deref()).await?;
        let (run, at) = (opened.name.as_str(), self.at.as_deref().unwrap_or("peak"));
        let at = (at, At::parse(at));
        let moment = state::run(&opened.trace, &at.1).await?;
        // Everything before the instant has happened; what happens at it has not, except at the end.
        let at_ns = if matches!(at.1, At::End) { moment.ts_ns } else { moment.ts_ns.saturating_sub(1) };
        let mut shown = answer::json(&moment)?;
        add_ids(&mut shown, &moment, run, at_ns);
        with_id(&mut shown, &own("memory", json!({ "run": run, "at": at.0 })));
        let warnings: Vec<String> =
            opened.trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        let data = json!({ "run": run, "moment": shown, "warnings": warnings });
        let mut answer = Answer::about(run, data);
        if moment.allocators.is_empty() {
            answer
                .open_without_rows("what PyTorch's allocator held", &opened.trace, "memory_timeline")
                .await?;
        }
        moment.allocators.iter().for_each(|held| say_open(&mut answer, held));
        Ok(answer)
    }
}

/// Says what the record leaves open about one allocator.
fn say_open(answer: &mut Answer, held: &Held) {
    let what = |what: &str| format!("{what} of process {} on device {}", held.pid, held.device);
    if held.is_inferred {
        answer.open(
            what("streams and pending frees"),
            "the source reports only usage: the state was inferred from it and from driver calls",
        );
    }
    if held.reserved_bytes.is_none() {
        answer.open(what("the reserved bytes"), "the source does not record segments");
    }
    if held.lost_count > 0 {
        answer.open(what("the exact state"), format!("{} events were lost until then", held.lost_count));
    }
}

/// Adds ids to what a moment shows: the event that led to the state of an allocator, the segments, the blocks, and the readings
/// of devices.
fn add_ids(shown: &mut Value, moment: &Moment, run: &str, at_ns: i64) {
    let lives = format!("ts <= {at_ns} AND (dur IS NULL OR ts + dur > {at_ns})");
    for (place, held) in moment.allocators.iter().enumerate() {
        let (pid, device) = (held.pid, held.device);
        let of = format!("pid = {pid} AND device = {device}");
        let shown = &mut shown["allocators"][place];
        let last =
            format!("SELECT * FROM memory_timeline WHERE {of} AND ts <= {at_ns} ORDER BY ts DESC LIMIT 1");
        with_id(shown, &Id::sql(run, last));
        for (place, pinned) in held.pinned.iter().enumerate() {
            let shown = &mut shown["pinned"][place];
            let addr = pinned.addr;
            with_id(
                shown,
                &Id::sql(
                    run,
                    format!("SELECT * FROM memory_segments WHERE {of} AND addr = {addr} AND {lives}"),
                ),
            );
            for (place, pin) in pinned.pins.iter().enumerate() {
                let block = Thing::Block { pid, device, addr: pin.addr, at_ns };
                with_id(&mut shown["pins"][place], &Id::Thing(run.to_owned(), block));
            }
        }
    }
    for (place, driver) in moment.drivers.iter().enumerate() {
        let query = format!(
            "SELECT * FROM driver_allocations WHERE pid = {} AND {lives} ORDER BY size_bytes DESC",
            driver.pid
        );
        with_id(&mut shown["drivers"][place], &Id::sql(run, query));
    }
    for (place, device) in moment.devices.iter().enumerate() {
        let query = format!(
            "SELECT * FROM memory_breakdown WHERE device = {} AND ts <= {at_ns} ORDER BY ts DESC LIMIT 20",
            device.device
        );
        with_id(&mut shown["devices"][place], &Id::sql(run, query));
    }
}
