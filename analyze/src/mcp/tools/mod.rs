//! The tools, one a file: arguments to a question of the library, and its data to an answer with ids. A tool computes nothing.

mod question;

use rmcp::model::Tool;
use serde_json::{Map, Value};

use super::{answer::Reply, runs::Runs};
use analyze_run::error::AnalyzeError;

/// Declares the modules of the tools, in the order in which clients list them, and the enum of their names.
macro_rules! tools {
    ($($module:ident => $tool:ident),* $(,)?) => {
        $(mod $module;)*

        /// A tool of the server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ToolName {
            $(
                #[doc = concat!("The tool `", stringify!($module), "`.")]
                $tool,
            )*
        }

        impl ToolName {
            /// All tools, in the order in which clients list them.
            pub const ALL: &'static [Self] = &[$(Self::$tool,)*];

            /// Returns the name by which clients call the tool.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$tool => stringify!($module),)*
                }
            }

            /// Returns the tool as clients list it.
            pub fn described(self) -> Tool {
                match self {
                    $(Self::$tool => question::described::<$module::Params>(self.name()),)*
                }
            }

            /// Answers a call of the tool.
            ///
            /// # Errors
            /// Returns an error if the arguments are wrong, or if the run cannot be opened or read.
            pub async fn ask(self, runs: &Runs, arguments: Map<String, Value>) -> Result<Reply, AnalyzeError> {
                match self {
                    $(Self::$tool => question::asked::<$module::Params>(self.name(), runs, arguments).await,)*
                }
            }
        }
    };
}

tools! {
    open => Open,
    findings => Findings,
    explain => Explain,
    memory => Memory,
    leaks => Leaks,
    what_if => WhatIf,
    compare => Compare,
    schema => Schema,
    sql => Sql,
    next_evidence => NextEvidence,
}
