//! The report that users share: what was slow, why, what was not a factor, and where the memory was.
//!
//! ```text
//! analyses ──► Report (data, versioned) ──► sections ──► Document ──► form: HTML, Markdown, terminal
//!                   └──► JSON, also inside the page              └──► SVG files
//! ```
//! [`Report::of`] runs every analysis once; a section turns their results into blocks without further
//! queries; a form renders blocks without knowing what they mean.

pub mod answer;
mod arrange;
mod chart;
mod data;
mod document;
mod form;
mod memory_svg;
mod section;
mod svg;
mod time_svg;

pub use chart::trend::draw as trend;
pub use data::{Report, VERSION};
pub use document::{Block, Document, Table, whole, word};
pub use form::{
    html::page,
    markdown::text as markdown,
    terminal::{Screen, text as terminal},
};
pub use section::comparison::document as comparison;
