//! Flags to library calls; a verb never computes. One file and one line in the list below a verb.

mod print;
mod program;
mod shell;

use print::{answer, create_folder, print, print_json, show, stem, write, write_all, written};
pub use program::{command, main};

/// Declares the modules of the verbs, in the order in which the help lists them, and the enum that clap parses.
macro_rules! verbs {
    ($($module:ident => $verb:ident),* $(,)?) => {
        $(mod $module;)*

        #[derive(clap::Subcommand)]
        enum Verb {
            $($verb($module::Args),)*
        }

        impl Verb {
            async fn run(self) -> Result<(), analyze_run::error::AnalyzeError> {
                match self {
                    $(Self::$verb(args) => args.run().await,)*
                }
            }
        }
    };
}

verbs! {
    findings => Findings,
    check => Check,
    info => Info,
    summary => Summary,
    chains => Chains,
    memory => Memory,
    releases => Releases,
    oom => Oom,
    leaks => Leaks,
    alerts => Alerts,
    what_if => WhatIf,
    sql => Sql,
    queries => Queries,
    report => Report,
    compare => Compare,
    baseline => Baseline,
    trend => Trend,
    export => Export,
    mcp => Mcp,
    head => Head,
    verify => Verify,
    slice => Slice,
    merge => Merge,
    import => Import,
    align => Align,
    recover => Recover,
    demo => Demo,
}
