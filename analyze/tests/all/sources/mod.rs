//! `analyze/SOURCES.md`: what each source lets each question, view and metric answer. The page is what the program itself said
//! about small samples of every source; nobody writes its cells.
//!
//! ```text
//! samples ──► observe, ask ──► answer (computed, bounded, inconclusive) ──► page ──► compared with SOURCES.md
//! ```

mod answer;
mod ask;
mod observe;
mod page;
mod samples;
mod table;
