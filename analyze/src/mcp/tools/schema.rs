//! `schema`: the views of the SQL library, and their columns.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::question::Question;
use crate::mcp::{answer::Answer, library, runs::Runs};
use analyze_run::error::AnalyzeError;

/// The arguments of `schema`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Words that the view's name, purpose or columns must have.
    search: Option<String>,
    /// Name of a view whose columns are wanted.
    view: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "The views of the SQL library, for the tool sql: list them, search them by words, or describe one with the \
        type, unit and meaning of each column. Needs no run.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, _: &Runs) -> Result<Answer, AnalyzeError> {
        match &self.view {
            Some(view) => library::view(view),
            None => library::list(self.search.as_deref()),
        }
    }
}
