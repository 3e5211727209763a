//! `compare`: whether a set of runs is slower than another one, or uses more memory.

use std::path::PathBuf;

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::question::{Question, own};
use crate::{
    compare::{
        baseline,
        figure::Key,
        gate::Rules,
        judge::{self, Outcome},
    },
    library::LIBRARY,
    mcp::{
        answer::{self, Answer, with_id},
        id::Id,
        runs::Runs,
    },
    trace::Options,
};
use analyze_engine::{catalog::Query, session::string_literal};
use analyze_run::error::AnalyzeError;

/// The arguments of `compare`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Paths of the runs before the change, or one baseline; 5 runs or more if possible.
    baseline: Vec<String>,
    /// Paths of the runs with the change.
    candidate: Vec<String>,
    /// Gates such as `wall_ns < +2%` or `p99(cudaLaunchKernel) < +5%`; without any, the usual ones.
    gates: Option<Vec<String>>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "Whether runs with a change are slower than those without, or use more memory, and what the difference is \
        made of. The unit is the run: one or two runs a side allow no verdict (at most suspect). Outcomes: pass, regression, \
        suspect, inconclusive; pass means that a change beyond the limit is excluded.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        let gates = self.gates.clone().unwrap_or_default();
        // Elsewhere such a text names a file with gates.
        if let Some(gate) = gates.iter().find(|gate| !gate.contains(['<', '>'])) {
            return Err(AnalyzeError::Query(format!(
                "{gate:?} is no gate: write METRIC < +LIMIT, as in 'wall_ns < +2%'"
            )));
        }
        let rules = Rules::new(&gates, None, None)?;
        let found = |names: &[String]| -> Result<(Vec<String>, Vec<PathBuf>), AnalyzeError> {
            let found = names.iter().map(|name| runs.roots.find(name)).collect::<Result<Vec<_>, _>>()?;
            Ok(found.into_iter().map(|allowed| (allowed.name, allowed.path)).unzip())
        };
        let ((base_names, base), (new_names, new)) = (found(&self.baseline)?, found(&self.candidate)?);
        if base.is_empty() || new.is_empty() {
            return Err(AnalyzeError::Query(
                "give at least one run each as baseline and candidate".to_owned(),
            ));
        }
        let options = Options::default();
        let (base, new) = (baseline::load(&base, &options).await?, baseline::load(&new, &options).await?);
        let comparison = judge::compare(&base, &new, &rules, &[])?;
        let own =
            own("compare", json!({ "baseline": base_names, "candidate": new_names, "gates": self.gates }));
        let sides = (base_names.first().cloned(), new_names.first().cloned());
        let library = LIBRARY.queries(None)?;
        let mut shown = answer::json(&comparison)?;
        with_id(&mut shown, &own);
        for (place, gate) in comparison.gates.iter().enumerate() {
            let shown = &mut shown["gates"][place];
            with_id(shown, &own);
            shown["figures"] = figures(runs, &library, &gate.key, &sides).await;
        }
        for (place, change) in comparison.changes.iter().enumerate() {
            let shown = &mut shown["changes"][place];
            with_id(shown, &own);
            shown["figures"] = figures(runs, &library, &change.key, &sides).await;
        }
        let mut answer = Answer { data: json!({ "comparison": shown }), ..Answer::default() };
        for gate in &comparison.gates {
            if matches!(gate.outcome, Outcome::Inconclusive | Outcome::Suspect) {
                answer.open(format!("the gate {} for {}", gate.gate.text, gate.key), gate.reason.clone());
            }
        }
        if comparison.gates.is_empty() {
            answer.open("the gates", "the runs measure none of their figures");
        }
        Ok(answer)
    }
}

/// Returns the ids of a figure's rows in the first run of each side; a side that is a baseline has none.
async fn figures(
    runs: &Runs,
    library: &[Query],
    key: &Key,
    (base, new): &(Option<String>, Option<String>),
) -> Value {
    let name = key.metric.name();
    let is_of =
        |query: &&Query| query.alias_of.is_none() && query.metrics.iter().any(|metric| metric.name == name);
    let Some(view) = library.iter().find(is_of) else { return Value::Null };
    let of = |column: &str, value: &Option<String>| {
        let has = view.columns.iter().any(|other| other.name == column);
        value.as_deref().filter(|_| has).map(|value| format!("{column} = {}", string_literal(value)))
    };
    let conditions: Vec<String> =
        of("subject", &key.subject).into_iter().chain(of("stratum", &key.stratum)).collect();
    let filter =
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let query = format!("SELECT * FROM {}{filter}", view.name);
    let mut sides = Vec::new();
    for (side, run) in [("baseline", base), ("candidate", new)] {
        // A baseline has figures, and no rows that could be asked.
        let Some(run) = run.as_deref() else { continue };
        if let Ok(opened) = runs.get(Some(run)).await {
            sides.push(json!({ "side": side, "id": Id::sql(&opened.name, query.clone()).to_string() }));
        }
    }
    Value::Array(sides)
}
