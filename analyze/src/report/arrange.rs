//! A report's data as blocks.

use super::{data::Report, document::Document, section};

impl Report {
    /// Arranges the report as blocks.
    pub fn document(&self) -> Document {
        let sections = section::ALL.iter().filter_map(|build| build(self)).collect();
        let verdict = section::headline(self);
        Document { title: self.info.run.clone(), verdict, sections, is_overview: true }
    }
}
