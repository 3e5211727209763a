//! Sections of the report. Each turns the results of an analysis into blocks, and none runs a query.

pub(super) mod comparison;
pub(super) mod findings;
mod headline;
mod leaks;
mod next_steps;
mod text;

pub(super) use headline::build as headline;
pub(in crate::report) use leaks::Leak;
pub(in crate::report) use memory::amount;
pub(in crate::report) use strata::cells;
pub(in crate::report) use text::{
    FEW, FEW_NOTE, at_least, if_known, is_few, percent, percentile, size, time,
};

/// Declares the modules of the sections and lists their builders in the order of the report.
macro_rules! sections {
    ($($section:ident),* $(,)?) => {
        $(mod $section;)*

        /// The builders of all sections, in order. A builder returns `None` if the run has nothing for its section.
        pub(super) const ALL: &[fn(&super::Report) -> Option<super::document::Section>] = &[findings::build, $($section::build),*];
    };
}

sections! {
    run_time,
    steps,
    causes,
    functions,
    culprits,
    chains,
    gaps,
    kernels,
    nccl,
    phases,
    memory,
    timeline,
    devices,
    strata,
    provenance,
}
