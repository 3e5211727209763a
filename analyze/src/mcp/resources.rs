//! Resources: ids of evidence that clients read, as JSON; what can be listed of them, and the forms of the others.

use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde_json::{Map, json};

use super::{
    budget,
    id::Id,
    resolve::{SKILL, resolve},
    runs::Runs,
    tools::ToolName,
};
use analyze_run::error::AnalyzeError;

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";

/// Returns the resources that can be listed: the open runs, the SQL library, and how to investigate.
pub fn list(runs: &Runs) -> Vec<Resource> {
    let opened = runs.names().into_iter().map(|name| {
        let id = Id::Run(name.clone()).to_string();
        Resource::new(id, name).with_description("An open run: what it recorded.").with_mime_type(JSON)
    });
    let own = [
        Resource::new(Id::Library.to_string(), "library")
            .with_description("The views that SQL can query.")
            .with_mime_type(JSON),
        Resource::new(Id::Skill.to_string(), "skill")
            .with_description("How to investigate a run with these tools.")
            .with_mime_type(MARKDOWN),
    ];
    opened.chain(own).collect()
}

/// Returns the forms of the ids of evidence.
pub fn templates() -> Vec<ResourceTemplate> {
    let form = |form: &str, name: &str, about: &str| {
        ResourceTemplate::new(form, name).with_description(about).with_mime_type(JSON)
    };
    vec![
        form("inquest://{run}", "run", "A run: what it recorded."),
        form(
            "inquest://{run}/call/{pid}/{tid}/{ts}/{depth}",
            "call",
            "A call: the division of its time, its causes and its chain.",
        ),
        form("inquest://{run}/chain/{pid}/{tid}/{ts}/{depth}", "chain", "The wakeup chain of a slow call."),
        form("inquest://{run}/gap/{pid}/{tid}/{ts}", "gap", "The time of a thread between two launches."),
        form(
            "inquest://{run}/block/{pid}/{device}/{addr}/{ts}",
            "block",
            "A block of PyTorch's allocator at an instant.",
        ),
        form("inquest://{run}/finding/{kind}/{pid}", "finding", "A finding of a process."),
        form("inquest://{run}/sql{?q}", "sql", "The first rows of a query."),
        form("inquest://-/ask/{tool}{?arguments}", "ask", "The answer of a tool to arguments in JSON."),
        form("inquest://-/library/{view}", "view", "A view of the SQL library, with its columns."),
    ]
}

/// Reads a resource.
///
/// # Errors
/// Returns an error if the text is no id, or if what it stands for cannot be opened or read.
pub async fn read(runs: &Runs, uri: String) -> Result<ResourceContents, AnalyzeError> {
    let id: Result<Id, String> = uri.parse();
    let id = id.map_err(|why| {
        AnalyzeError::Query(format!(
            "{uri:?} is no resource: {why}; resources/templates/list has the forms of ids"
        ))
    })?;
    let reply = match &id {
        Id::Skill => return Ok(ResourceContents::text(SKILL, uri).with_mime_type(MARKDOWN)),
        Id::Run(run) => {
            let arguments = Map::from_iter([("run".to_owned(), json!(run))]);
            ToolName::Open.ask(runs, arguments).await?
        }
        Id::Ask { tool, arguments } => {
            let named = ToolName::ALL.iter().find(|known| known.name() == tool);
            let named = named.ok_or_else(|| AnalyzeError::Query(format!("there is no tool {tool:?}")))?;
            named.ask(runs, arguments.clone()).await?
        }
        other => resolve(runs, other).await?.within(other, budget::DEFAULT_BYTES),
    };
    let text = serde_json::to_string(&reply).map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    Ok(ResourceContents::text(text, uri).with_mime_type(JSON))
}
