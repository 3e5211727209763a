//! What a report says, as blocks that every form of it can show: HTML, Markdown, terminal. A block holds words and
//! numbers for reading; each form escapes what comes from the trace in its own one place.

use crate::questions::chains::Share;

use super::section::{percent, time};

/// The whole.
pub struct Document {
    pub title: String,
    pub verdict: Headline,
    pub sections: Vec<Section>,
}

/// The first lines.
pub struct Headline {
    /// The main one.
    pub scheduler: String,
    pub sentences: Vec<String>,
    /// The questions that everybody has, in order, before the sentences.
    pub answers: Vec<Answer>,
    pub tone: Tone,
}

/// An answer in a sentence or two.
pub struct Answer {
    pub question: &'static str,
    pub text: String,
    /// Where there is more of it.
    pub links: Vec<Link>,
}

/// A link within the document.
#[derive(Clone)]
pub struct Link {
    pub href: String,
    pub text: String,
}

impl Link {
    /// To a section, by its id.
    pub fn to_section(id: &str, text: &str) -> Self {
        Self { href: format!("#{id}"), text: text.to_owned() }
    }

    /// To a slow call and its chain, by its number.
    pub fn to_chain(number: usize) -> Self {
        Self { href: format!("#chain-{number}"), text: number.to_string() }
    }
}

/// What a figure says of a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Cleared,
    Guilty,
    Open,
}

impl Tone {
    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Cleared => "cleared",
            Self::Guilty => "guilty",
            Self::Open => "open",
        }
    }
}

/// One question and its answer.
pub struct Section {
    /// Of links to it.
    pub id: &'static str,
    /// In the list of contents.
    pub short: &'static str,
    pub question: String,
    pub blocks: Vec<Block>,
}

/// A piece of a section.
pub enum Block {
    Heading(&'static str),
    Note(String),
    List(Vec<String>),
    /// A bar of parts that sum to a whole.
    Parts(Vec<Part>),
    Table(Table),
    Figure(Figure),
    Calls(Vec<Call>),
}

/// One part of a whole.
#[derive(Clone)]
pub struct Part {
    pub name: String,
    /// Class in the style sheet: what colour it has.
    pub class: String,
    pub meaning: &'static str,
    pub percent: String,
    /// Width in percent, for style.
    pub width: String,
    pub total: String,
}

impl Part {
    /// A part of `total_ns` in some time.
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

    /// The shares of causes in an excess.
    pub fn of_shares(shares: &[Share]) -> Vec<Self> {
        let part = |share: &Share| {
            let name = share.cause.name();
            // `blocked:futex` has the colour of `blocked`.
            let class = name.split(':').next().unwrap_or(name);
            Self::of_time(name, class, share.cause.meaning(), share.total_ns, share.share_ratio)
        };
        shares.iter().map(part).collect()
    }
}

/// A column of a table.
#[derive(Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub is_number: bool,
}

/// A column of words.
pub const fn word(name: &'static str) -> Column {
    Column { name, is_number: false }
}

/// A column of numbers.
pub const fn number(name: &'static str) -> Column {
    Column { name, is_number: true }
}

/// A cell of a table.
pub struct Cell {
    pub text: String,
    pub tone: Tone,
    /// A colour's class, shown before the text.
    pub swatch: Option<String>,
    /// In place of the text, where links work.
    pub links: Vec<Link>,
}

impl Cell {
    /// Links, or what to say if there is none.
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
    pub cells: Vec<Cell>,
    /// Shown below it.
    pub parts: Vec<Part>,
    pub note: String,
    /// Slow calls of it.
    pub links: Vec<Link>,
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Self {
        Self { cells, ..Self::default() }
    }
}

/// A table; bounded, with the number of all its rows, and the query that has them all.
pub struct Table {
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    pub all_count: usize,
    pub sql: String,
    /// Shown when asked for.
    pub is_folded: bool,
}

impl Table {
    /// A table with all its rows.
    pub fn new(columns: &[Column], rows: Vec<Row>, sql: &str) -> Self {
        let (columns, all_count) = (columns.to_vec(), rows.len());
        Self { caption: String::new(), columns, rows, all_count, sql: sql.to_owned(), is_folded: false }
    }

    /// What the parts of a bar are, in its colours. `name`: what a part is.
    pub fn of_parts(name: &'static str, parts: &[Part], sql: &str) -> Self {
        let row = |part: &Part| -> Row {
            let name = Cell { swatch: Some(part.class.clone()), ..Cell::from(&part.name) };
            vec![name, part.meaning.into(), (&part.total).into(), (&part.percent).into()].into()
        };
        let columns = [word(name), word("What it means"), number("Time"), number("Share")];
        Self::new(&columns, parts.iter().map(row).collect(), sql)
    }

    /// With one more column.
    pub fn with(mut self, column: Column, cells: impl Iterator<Item = Cell>) -> Self {
        self.columns.push(column);
        self.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.cells.push(cell));
        self
    }

    /// Under these words.
    pub fn caption(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }

    /// Of so many rows.
    pub fn of(self, all_count: usize) -> Self {
        Self { all_count, ..self }
    }

    /// Only shown when asked for.
    pub fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }
}

/// A drawing.
pub struct Figure {
    /// Of its file, without ending.
    pub name: String,
    pub caption: String,
    pub svg: String,
    /// Colours' classes and what they mean.
    pub legend: Vec<(&'static str, String)>,
    /// The same in one line of text: values from 0 to 1; empty: there is none.
    pub spark: Vec<f64>,
    pub is_folded: bool,
}

/// A slow call and its chain.
pub struct Call {
    pub number: usize,
    pub op: String,
    pub dur: String,
    pub facts: String,
    pub parts: Vec<Part>,
    /// `None`: it was on CPU all the time.
    pub chain: Option<Figure>,
    /// The chain in words.
    pub links: Vec<String>,
    /// Selects exactly this call.
    pub sql: String,
}
