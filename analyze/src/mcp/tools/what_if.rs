//! `what_if`: what PyTorch would have reserved with other settings of its allocator.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::question::{Question, own};
use crate::{
    mcp::{
        answer::{self, Answer, with_id},
        runs::Runs,
    },
    questions::what_if,
};
use analyze_run::error::AnalyzeError;

/// The arguments of `what_if`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Path of the run, as open lists it; not needed if there is only one.
    run: Option<String>,
    /// Settings as in PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True. Without them, some usual ones are tried.
    conf: Option<String>,
    /// Leave out the program's calls of torch.cuda.empty_cache().
    no_empty_cache: Option<bool>,
    /// Most bytes that the device has for segments; by default what it had when a request failed, if one did.
    capacity_bytes: Option<u64>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "What PyTorch would have reserved with another PYTORCH_CUDA_ALLOC_CONF: the run's requests are replayed by \
        the allocator's own rules. A control with the run's own settings says how far to believe it; a result whose is_known is \
        false proves nothing.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        let opened = runs.get(self.run.as_deref()).await?;
        let run = opened.name.as_str();
        let own = own(
            "what_if",
            json!({
                "run": run,
                "conf": self.conf,
                "no_empty_cache": self.no_empty_cache,
                "capacity_bytes": self.capacity_bytes,
            }),
        );
        let params = what_if::Params {
            settings: self.conf.into_iter().collect(),
            capacity_bytes: self.capacity_bytes,
            no_empty_cache: self.no_empty_cache.unwrap_or(false),
            empty_cache_after: Vec::new(),
            mem_pool: None,
        };
        let found = what_if::run(&opened.trace, &params).await?;
        let mut shown = answer::json(&found)?;
        for allocator in shown.as_array_mut().into_iter().flatten() {
            for outcome in allocator["outcomes"].as_array_mut().into_iter().flatten() {
                with_id(outcome, &own);
            }
            with_id(&mut allocator["control"], &own);
            with_id(allocator, &own);
        }
        let mut answer = Answer::about(run, json!({ "run": run, "allocators": shown }));
        if found.is_empty() {
            answer
                .open_without_rows("what other settings would reserve", &opened.trace, "memory_timeline")
                .await?;
        }
        for allocator in &found {
            for outcome in allocator.outcomes.iter().filter(|outcome| !outcome.is_known) {
                let what = format!("what process {} would reserve with {}", allocator.pid, outcome.settings);
                let reason = match allocator.notes.is_empty() {
                    true => "the control does not reproduce the record, and the difference is larger than what is saved".to_owned(),
                    false => allocator.notes.join("; "),
                };
                answer.open(what, reason);
            }
        }
        Ok(answer)
    }
}
