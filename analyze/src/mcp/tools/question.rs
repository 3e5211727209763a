//! What the tools have in common: arguments with a schema, a budget, and an answer with an id that asks the same again.

use rmcp::{
    handler::server::common::schema_for_type,
    model::{Tool, ToolAnnotations},
    schemars::JsonSchema,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::mcp::{
    answer::{Answer, Reply},
    budget,
    id::Id,
    runs::Runs,
};
use analyze_run::error::AnalyzeError;

/// The arguments of a tool.
pub(super) trait Question: DeserializeOwned + JsonSchema + 'static {
    /// What the tool answers, for clients.
    const ABOUT: &'static str;

    /// Returns the budget that the client asks for, in bytes.
    fn budget_bytes(&self) -> Option<usize>;

    /// Answers the question.
    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError>;
}

/// Returns a tool as clients list it. All of them only read.
pub(super) fn described<Q: Question>(name: &'static str) -> Tool {
    let reads = ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
    Tool::new(name, Q::ABOUT, schema_for_type::<Q>()).with_output_schema::<Reply>().with_annotations(reads)
}

/// Returns the id of the answer to a question with these arguments, for figures that no view has.
pub(super) fn own(name: &str, arguments: Value) -> Id {
    let mut arguments = match arguments {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    };
    arguments.retain(|_, value| !value.is_null());
    Id::Ask { tool: name.to_owned(), arguments }
}

/// Answers a call.
pub(super) async fn asked<Q: Question>(
    name: &'static str,
    runs: &Runs,
    mut arguments: Map<String, Value>,
) -> Result<Reply, AnalyzeError> {
    let params: Q = serde_json::from_value(Value::Object(arguments.clone())).map_err(|error| {
        AnalyzeError::Query(format!(
            "the arguments of {name} are wrong: {error}; tools/list has their schema"
        ))
    })?;
    let budget_bytes = budget::bytes(params.budget_bytes());
    let answer = params.ask(runs).await?;
    arguments.remove("budget_bytes");
    arguments.retain(|_, value| !value.is_null());
    if let Some(run) = &answer.run {
        arguments.insert("run".to_owned(), Value::String(run.clone()));
    }
    Ok(answer.within(&Id::Ask { tool: name.to_owned(), arguments }, budget_bytes))
}
