//! `leaks`: whether memory leaks, and from which site.

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
    questions::info,
};
use analyze_memory::leaks::{
    driver,
    growth::{self, Params as Epochs},
    measured::Verdict,
};
use analyze_run::error::AnalyzeError;

/// The arguments of `leaks`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Path of the run, as open lists it; not needed if there is only one.
    run: Option<String>,
    /// Marks that divide the run into epochs, by the name of one of them, or `allocations` for epochs of equal numbers of allocations.
    epochs: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

/// Fields of an allocator that only charts need.
const OF_CHARTS: [&str; 3] = ["points", "ages", "sizes"];

impl Question for Params {
    const ABOUT: &'static str = "Whether memory leaks, and from which allocation site, or why else it grows: an account of the allocated \
        bytes at the end, block by block. Verdicts: leak, one-off growth, fragmentation, caching, none, inconclusive. Memory that \
        others took from the driver is judged by the same rule.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        let opened = runs.get(self.run.as_deref()).await?;
        let (run, trace) = (opened.name.as_str(), &opened.trace);
        let own = own("leaks", json!({ "run": run, "epochs": self.epochs }));
        let growths = growth::run(&trace.events(), trace.files(), &Epochs { epochs: self.epochs }).await?;
        let drivers = driver::run(&trace.events(), trace.files()).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        let (mut shown, mut shown_drivers) = (answer::json(&growths)?, answer::json(&drivers)?);
        for (place, growth) in growths.iter().enumerate() {
            let shown = &mut shown[place];
            let query =
                format!("SELECT * FROM leaks WHERE pid = {} AND device = {}", growth.pid, growth.device);
            with_id(shown, &Id::sql(run, query));
            if let Value::Object(fields) = shown {
                fields.retain(|name, _| !OF_CHARTS.contains(&name.as_str()));
            }
            for site in shown["sites"].as_array_mut().into_iter().flatten() {
                with_id(site, &own);
            }
        }
        for (place, driver) in drivers.iter().enumerate() {
            let query = format!(
                "SELECT * FROM driver_allocations WHERE pid = {} AND dur IS NULL ORDER BY ts",
                driver.pid
            );
            with_id(&mut shown_drivers[place], &Id::sql(run, query));
        }
        let data = json!({ "run": run, "allocators": shown, "drivers": shown_drivers, "warnings": warnings });
        let mut answer = Answer::about(run, data);
        if growths.is_empty() {
            answer.open_without_rows("whether memory of PyTorch leaks", trace, "memory_timeline").await?;
        }
        let verdicts = growths.iter().map(|growth| (growth.pid, growth.verdict, &growth.reasons));
        let verdicts =
            verdicts.chain(drivers.iter().map(|driver| (driver.pid, driver.verdict, &driver.reasons)));
        for (pid, verdict, reasons) in verdicts {
            if matches!(verdict, Verdict::Inconclusive) {
                answer.open(format!("whether memory of process {pid} leaks"), reasons.join("; "));
            }
        }
        Ok(answer)
    }
}
