//! Content of a report as blocks that every form (HTML, Markdown, terminal) can render. Blocks hold formatted
//! words and numbers; each form escapes text from the trace in one place.

use std::borrow::Cow;

use super::section::{FEW, FEW_NOTE, percent, time};
use crate::questions::share::Share;

/// A whole report.
pub struct Document {
    /// Title.
    pub title: String,
    /// First lines, with the verdict.
    pub verdict: Headline,
    /// Sections, in order.
    pub sections: Vec<Section>,
    /// True for a report, of whose tables a terminal shows the first rows: the page has the others. The answer to a
    /// single question is shown as it is.
    pub is_overview: bool,
}

impl Document {
    /// Creates the answer to a single question from its blocks.
    pub fn answer(blocks: Vec<Block>) -> Self {
        let verdict =
            Headline { main: String::new(), sentences: Vec::new(), answers: Vec::new(), tone: Tone::Plain };
        let section = Section { id: "answer", short: "Answer", question: String::new(), blocks };
        Self { title: String::new(), verdict, sections: vec![section], is_overview: false }
    }
}

/// First lines of a report.
pub struct Headline {
    /// The main sentence: the first finding, or the verdict of a comparison.
    pub main: String,
    /// Further sentences, after the answers.
    pub sentences: Vec<String>,
    /// Answers to the questions that every reader has, in order.
    pub answers: Vec<Answer>,
    /// Tone of the main sentence.
    pub tone: Tone,
}

/// An answer of one or two sentences.
pub struct Answer {
    /// The question.
    pub question: &'static str,
    /// The answer.
    pub text: String,
    /// Links to details.
    pub links: Vec<Link>,
}

/// A link within the document.
#[derive(Clone)]
pub struct Link {
    /// Target: `#` and the ID of an element.
    pub href: String,
    /// Text of the link.
    pub text: String,
}

impl Link {
    /// Creates a link to the section with this ID.
    pub fn to_section(id: &str, text: &str) -> Self {
        Self { href: format!("#{id}"), text: text.to_owned() }
    }

    /// Creates a link to the slow call with this number, and to its chain.
    pub fn to_chain(number: usize) -> Self {
        Self { href: format!("#chain-{number}"), text: number.to_string() }
    }
}

/// Emphasis of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Neutral.
    Plain,
    /// Not a factor, or passed.
    Good,
    /// A cause, or failed.
    Bad,
    /// Inconclusive, or a minor part.
    Open,
}

impl Tone {
    /// Class in the style sheet; empty for neutral text.
    pub fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Open => "open",
        }
    }
}

/// A section: a question, and blocks that answer it.
pub struct Section {
    /// ID that links refer to.
    pub id: &'static str,
    /// Title in the table of contents.
    pub short: &'static str,
    /// The question.
    pub question: String,
    /// The blocks.
    pub blocks: Vec<Block>,
}

/// A block of a section.
pub enum Block {
    /// A subheading.
    Heading(String),
    /// A paragraph.
    Note(String),
    /// A bulleted list.
    List(Vec<String>),
    /// What weakens the answer: lost events, missing probes, rounding.
    Warnings(Vec<String>),
    /// A bar whose parts sum to a whole.
    Parts(Vec<Part>),
    /// A table.
    Table(Table),
    /// A drawing.
    Figure(Figure),
    /// Slow calls with their chains.
    Calls(Vec<Call>),
    /// Source text, line by line as it is.
    Code(String),
}

/// One part of a whole.
#[derive(Clone)]
pub struct Part {
    /// Name.
    pub name: String,
    /// Class in the style sheet, which determines the colour.
    pub class: String,
    /// Explanation of the name.
    pub meaning: &'static str,
    /// Share of the whole, formatted in percent.
    pub percent: String,
    /// Share of the whole in percent, as a number for CSS.
    pub width: String,
    /// Amount, formatted with its unit.
    pub total: String,
}

impl Part {
    /// Creates the part of a time that takes `ns` nanoseconds, the share `ratio` of the whole.
    pub fn of_time(name: &str, class: &str, meaning: &'static str, ns: f64, ratio: f64) -> Self {
        Self {
            name: name.to_owned(),
            class: class.to_owned(),
            meaning,
            percent: percent(ratio),
            width: format!("{:.3}", 100.0 * ratio),
            total: time(ns),
        }
    }

    /// Creates the parts of an excess latency, one per cause.
    pub fn of_shares(shares: &[Share]) -> Vec<Self> {
        let part = |share: &Share| {
            let name = share.cause.name();
            // All of `blocked:…` have the colour of `blocked`.
            let class = name.split(':').next().unwrap_or(name);
            Self::of_time(
                share.cause.label(),
                class,
                share.cause.meaning(),
                share.total_ns,
                share.share_ratio,
            )
        };
        shares.iter().map(part).collect()
    }
}

/// A column of a table.
#[derive(Clone)]
pub struct Column {
    /// Heading.
    pub name: Cow<'static, str>,
    /// True if the cells are numbers, which are aligned to the right.
    pub is_number: bool,
    /// True if the cells are shown in full however narrow the terminal is, as verdicts, gates and outcomes are.
    pub is_whole: bool,
}

/// Creates a column of text, whose long words may be cut on a narrow terminal.
pub const fn word(name: &'static str) -> Column {
    Column { name: Cow::Borrowed(name), is_number: false, is_whole: false }
}

/// Creates a column of text that is never cut.
pub const fn whole(name: &'static str) -> Column {
    Column { name: Cow::Borrowed(name), is_number: false, is_whole: true }
}

/// Creates a column of numbers, which are never cut.
pub(super) const fn number(name: &'static str) -> Column {
    Column { name: Cow::Borrowed(name), is_number: true, is_whole: true }
}

/// A cell of a table.
pub struct Cell {
    /// Text.
    pub text: String,
    /// Emphasis of the text.
    pub tone: Tone,
    /// Class of a colour that is shown before the text.
    pub swatch: Option<String>,
    /// Links that replace the text in forms that support them.
    pub links: Vec<Link>,
}

impl Cell {
    /// Creates a cell of links; its text is `none` if there are none.
    pub fn of_links(links: Vec<Link>, none: &str) -> Self {
        let texts: Vec<&str> = links.iter().map(|link| link.text.as_str()).collect();
        let text = if links.is_empty() { none.to_owned() } else { texts.join(", ") };
        Self { links, ..Self::from(text) }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.to_string(), tone: Tone::Plain, swatch: None, links: Vec::new() }
    }
}

/// A row of a table.
#[derive(Default)]
pub struct Row {
    /// Cells, one per column.
    pub cells: Vec<Cell>,
    /// Bar shown below the row; empty for none.
    pub parts: Vec<Part>,
    /// Text shown below the row; empty for none.
    pub note: String,
    /// Links to slow calls of the row.
    pub links: Vec<Link>,
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Self {
        Self { cells, ..Self::default() }
    }
}

/// A table of the first rows of a result, with the number of all rows and the query that returns them.
pub struct Table {
    /// Caption; empty for none.
    pub caption: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows that are shown.
    pub rows: Vec<Row>,
    /// Number of rows of the whole result.
    pub all_count: usize,
    /// Query that returns the whole result; empty for none.
    pub sql: String,
    /// True if the table is collapsed until the reader opens it.
    pub is_folded: bool,
}

impl Table {
    /// Creates a table that shows all of its rows.
    pub fn new(columns: &[Column], rows: Vec<Row>, sql: &str) -> Self {
        let (columns, all_count) = (columns.to_vec(), rows.len());
        Self { caption: String::new(), columns, rows, all_count, sql: sql.to_owned(), is_folded: false }
    }

    /// Creates the table that explains the parts of a bar in its colours. `name` heads the column of their
    /// names.
    pub fn of_parts(name: &'static str, parts: &[Part], sql: &str) -> Self {
        let row = |part: &Part| -> Row {
            let name = Cell { swatch: Some(part.class.clone()), ..Cell::from(&part.name) };
            vec![name, part.meaning.into(), (&part.total).into(), (&part.percent).into()].into()
        };
        let columns = [word(name), word("What it means"), number("Time"), number("Share")];
        Self::new(&columns, parts.iter().map(row).collect(), sql)
    }

    /// Creates a table of texts.
    pub fn texts<R: IntoIterator<Item = String>>(
        columns: &[Column],
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let row = |row: R| Row::from(row.into_iter().map(Cell::from).collect::<Vec<_>>());
        Self::new(columns, rows.into_iter().map(row).collect(), "")
    }

    /// Creates a table of names and values, without a header. Rows without a value are left out.
    pub fn facts(facts: Vec<(&str, String)>) -> Self {
        let shown = facts.into_iter().filter(|(_, value)| !value.is_empty());
        let rows = shown.map(|(name, value)| Row::from(vec![name.into(), value.into()])).collect();
        Self::new(&[whole(""), whole("")], rows, "")
    }

    /// Appends a column.
    pub fn with(mut self, column: Column, cells: impl Iterator<Item = Cell>) -> Self {
        self.columns.push(column);
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.cells.push(cell));
        self
    }

    /// Sets the caption.
    pub fn caption(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }

    /// Sets the number of rows of the whole result.
    pub fn of(self, all_count: usize) -> Self {
        Self { all_count, ..self }
    }

    /// Returns the note on the marked percentiles among the first `rows` rows; `None` if none is marked.
    pub fn footnote(&self, rows: usize) -> Option<&'static str> {
        let is_marked = |(cell, column): (&Cell, &Column)| column.is_number && cell.text.ends_with(FEW);
        let mut shown = self.rows.iter().take(rows);
        shown.any(|row| row.cells.iter().zip(&self.columns).any(is_marked)).then_some(FEW_NOTE)
    }

    /// Collapses the table until the reader opens it.
    pub fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }
}

/// A drawing.
pub struct Figure {
    /// Name of its file, without extension.
    pub name: String,
    /// Caption.
    pub caption: String,
    /// Drawing as SVG.
    pub svg: String,
    /// Classes of the colours, with their meanings.
    pub legend: Vec<(&'static str, String)>,
    /// Values from 0 to 1 for a one-line chart of text; empty if there is none.
    pub spark: Vec<f64>,
    /// True if the drawing is collapsed until the reader opens it.
    pub is_folded: bool,
}

/// A slow call and its chain.
pub struct Call {
    /// Number within the report, from 1.
    pub number: usize,
    /// Name of the function.
    pub op: String,
    /// Duration, formatted.
    pub dur: String,
    /// Facts about the call: thread, time, usual duration, …
    pub facts: String,
    /// Excess latency by cause.
    pub parts: Vec<Part>,
    /// Drawing of the chain; `None` if the call has none.
    pub chain: Option<Figure>,
    /// Longest links of the chain, as sentences.
    pub links: Vec<String>,
    /// Query that selects exactly this call.
    pub sql: String,
}
