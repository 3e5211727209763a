//! Prompts: how to investigate a run, and how to review a regression.

use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

use super::resolve::SKILL;

/// The text on how to review a regression.
const REVIEW: &str = include_str!("review_regression.md");

/// A prompt: its name, its text, and its arguments with what they are.
struct Offered {
    name: &'static str,
    about: &'static str,
    text: &'static str,
    arguments: &'static [(&'static str, &'static str)],
}

static OFFERED: [Offered; 2] = [
    Offered {
        name: "investigate",
        about: "Find out why a run was slow, ran out of memory or failed, by evidence.",
        text: SKILL,
        arguments: &[("run", "Path of the run, as open lists it"), ("question", "What is to be found out")],
    },
    Offered {
        name: "review_regression",
        about: "Find out whether a change made runs slower or larger, and why.",
        text: REVIEW,
        arguments: &[
            ("baseline", "Paths of the runs before the change, separated by spaces"),
            ("candidate", "Paths of the runs with the change, separated by spaces"),
        ],
    },
];

/// Returns the prompts as clients list them.
pub fn list() -> Vec<Prompt> {
    let listed = |offered: &Offered| {
        let argument = |(name, about): &(&str, &str)| {
            PromptArgument::new(*name).with_description(*about).with_required(false)
        };
        let arguments = offered.arguments.iter().map(argument).collect();
        Prompt::new(offered.name, Some(offered.about), Some(arguments))
    };
    OFFERED.iter().map(listed).collect()
}

/// Returns a prompt with the values of its arguments; `None` if there is none of that name.
pub fn get(name: &str, arguments: Option<&JsonObject>) -> Option<GetPromptResult> {
    let offered = OFFERED.iter().find(|offered| offered.name == name)?;
    let mut text = offered.text.to_owned();
    for (argument, _) in offered.arguments {
        let value = arguments.and_then(|all| all.get(*argument)).and_then(Value::as_str);
        if let Some(value) = value {
            text.push_str(&format!("\n{argument}: {value}\n"));
        }
    }
    let message = PromptMessage::new_text(Role::User, text);
    Some(GetPromptResult::new(vec![message]).with_description(offered.about))
}
