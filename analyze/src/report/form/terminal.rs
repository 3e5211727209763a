//! Renders text for a terminal of any width, with a line of block characters per figure and optional colours.

use super::{
    paint::Palette,
    table,
    wrap::{cut, width, wrapped},
};
use crate::report::document::{Block, Call, Document, Figure, Part};
use analyze_run::text;

/// Width of a report that is not shown on a terminal.
const WIDTH: usize = 80;
/// Smallest width that text is wrapped to.
const NARROWEST: usize = 20;
/// Largest number of rows of a table in a report; the page and the JSON have more.
const ROWS: usize = 8;
/// Largest number of slow calls in a report.
const CALLS: usize = 3;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The terminal that text is rendered for.
#[derive(Clone, Copy, Default)]
pub struct Screen {
    /// Number of columns; `None` if it is no terminal but a file or a pipe. Then a report has 80 columns, and the
    /// answer to a single question one line per row and sentence.
    pub width: Option<usize>,
    /// True if colours are shown.
    pub is_coloured: bool,
}

struct Terminal {
    width: usize,
    rows: usize,
    calls: usize,
    palette: Palette,
}

impl Terminal {
    fn of(document: &Document, screen: Screen) -> Self {
        let (width, rows, calls) =
            if document.is_overview { (WIDTH, ROWS, CALLS) } else { (usize::MAX, usize::MAX, usize::MAX) };
        let width = screen.width.map_or(width, |width| width.max(NARROWEST));
        Self { width, rows, calls, palette: Palette { is_coloured: screen.is_coloured } }
    }

    fn wrapped(&self, text: &str, first: &str) -> String {
        wrapped(text, first, self.width)
    }

    /// Wraps text of which words that are longer than a line, such as names of kernels, are cut.
    fn cut(&self, text: &str, first: &str) -> String {
        let room = self.width - width(first);
        let text = text::harmless(text);
        let words: Vec<_> = text.split_whitespace().map(|word| cut(word, room)).collect();
        self.wrapped(&words.join(" "), first)
    }

    /// Draws a bar of parts by their shares. Without colours, each part is drawn with the first letter of its
    /// name.
    fn parts(&self, parts: &[Part], indent: &str) -> String {
        let room = (self.width.min(WIDTH) - indent.len()) as f64;
        let mut bar = String::new();
        let (mut sum, mut drawn) = (0.0, 0);
        for part in parts {
            sum += part.width.parse::<f64>().unwrap_or(0.0) / 100.0;
            let end = (sum * room).round() as usize;
            let letter = part.name.chars().next().unwrap_or('?');
            let fill: String = if self.palette.is_coloured { "█".to_owned() } else { letter.to_string() };
            bar += &self.palette.painted(&fill.repeat(end.saturating_sub(drawn)), &part.class);
            drawn = end.max(drawn);
        }
        let words: Vec<String> =
            parts.iter().map(|part| format!("{} {} ({})", part.name, part.total, part.percent)).collect();
        format!("{indent}{bar}\n{}", self.wrapped(&words.join(", "), indent))
    }

    fn figure(&self, figure: &Figure) -> String {
        if figure.spark.is_empty() {
            return String::new();
        }
        let line = spark(&figure.spark, self.width.min(WIDTH));
        let class = figure.legend.first().map_or("", |(class, _)| class);
        format!("{}\n{}\n", self.palette.painted(&line, class), self.cut(&figure.caption, ""))
    }

    fn call(&self, call: &Call) -> String {
        let head = format!("{}. {} {}", call.number, call.op, call.dur);
        let mut text = format!("{}\n", self.palette.bold(self.cut(&head, "").trim_end()));
        text += &self.cut(&call.facts, "   ");
        text += &self.parts(&call.parts, "   ");
        for link in &call.links {
            text += &self.cut(link, "   - ");
        }
        text + "\n"
    }

    fn block(&self, block: &Block) -> String {
        match block {
            Block::Heading(words) => format!("{}\n", self.palette.bold(self.wrapped(words, "").trim_end())),
            Block::Note(words) => self.cut(words, "") + "\n",
            Block::List(all) => all.iter().map(|one| self.cut(one, "- ")).collect::<String>() + "\n",
            Block::Warnings(all) => all.iter().map(|one| self.cut(one, "note: ")).collect(),
            Block::Code(code) => text::harmless(code) + "\n",
            Block::Parts(parts) => self.parts(parts, "") + "\n",
            Block::Table(table) if table.is_folded => String::new(),
            Block::Table(table) => table::text(table, self.width, self.rows, self.palette) + "\n",
            Block::Figure(figure) => self.figure(figure),
            Block::Calls(calls) => calls.iter().take(self.calls).map(|call| self.call(call)).collect(),
        }
    }
}

/// Draws values from 0 to 1 as a line of `width` characters. Of the values that share a character the largest
/// is drawn, so that no peak is lost.
pub(crate) fn spark(values: &[f64], width: usize) -> String {
    let of = |at: usize| {
        let (from, to) = (at * values.len() / width, (at + 1) * values.len() / width);
        let most = values[from..to.max(from + 1)].iter().copied().fold(0.0, f64::max);
        SPARKS[((most * 8.0).ceil() as usize).clamp(1, 8) - 1]
    };
    if values.is_empty() { String::new() } else { (0..width).map(of).collect() }
}

/// Renders the document for a terminal.
pub fn text(document: &Document, screen: Screen) -> String {
    let terminal = Terminal::of(document, screen);
    let (palette, verdict) = (terminal.palette, &document.verdict);
    let mut text = String::new();
    if !document.title.is_empty() {
        text += &format!("{}\n\n", palette.bold(&cut(&text::harmless(&document.title), terminal.width)));
    }
    if !verdict.main.is_empty() {
        let main = terminal.wrapped(&verdict.main, "");
        text += &format!("{}\n\n", palette.painted(main.trim_end(), verdict.tone.class()));
    }
    for answer in &verdict.answers {
        text += &terminal.cut(&answer.text, &format!("{}: ", answer.question));
    }
    for sentence in &verdict.sentences {
        text += &terminal.wrapped(sentence, "");
    }
    for section in &document.sections {
        if !section.question.is_empty() {
            let rule = "─".repeat(width(&section.question).min(terminal.width));
            let question = terminal.wrapped(&section.question, "");
            text += &format!("\n{}\n{rule}\n\n", palette.bold(question.trim_end()));
        }
        section.blocks.iter().for_each(|block| text += &terminal.block(block));
    }
    if !document.is_overview {
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::{Row, Table, number, whole, word};

    #[test]
    fn documents_fit_every_terminal() {
        let verdict = "a verdict that is long enough for more than one line of a narrow terminal";
        let row = Row::from(vec!["wall_ns".into(), "regression".into(), "+12.3 %".into()]);
        let columns = [whole("Gate"), word("Outcome"), number("Change")];
        let blocks = || {
            vec![
                Block::Heading("GPU 0".to_owned()),
                Block::Note(verdict.to_owned()),
                Block::Table(Table::new(&columns, vec![row_of(&row)], "")),
                Block::Warnings(vec![verdict.to_owned()]),
            ]
        };
        for columns in [40, 60, 80, 120, 200] {
            let screen = Screen { width: Some(columns), is_coloured: false };
            let text = text(&Document::answer(blocks()), screen);
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}:\n{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(verdict) && words.contains("regression"), "{columns}:\n{text}");
        }
        let piped = text(&Document::answer(blocks()), Screen::default());
        assert!(piped.contains(&format!("\nnote: {verdict}\n")), "{piped}");
    }

    fn row_of(row: &Row) -> Row {
        row.cells.iter().map(|cell| (&cell.text).into()).collect::<Vec<_>>().into()
    }
}
