//! Renders text for a terminal: 80 columns, a line of block characters per figure, and optional colours.

use crate::report::document::{Block, Call, Column, Document, Figure, Part, Table, Tone};
use analyze_run::text;

/// Width of the output in columns.
const WIDTH: usize = 80;
/// Largest number of rows of a table; the page and the JSON have more.
const ROWS: usize = 8;
/// Largest number of slow calls.
const CALLS: usize = 3;
/// Width below which columns are not narrowed.
const NARROW: usize = 6;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

struct Terminal {
    is_coloured: bool,
}

/// Index of the colour for a class of the style sheet in the terminal's palette of 256: the nearest one to
/// its meaning.
fn colour(class: &str) -> u8 {
    match class {
        "scheduler" | "guilty" => 167,
        "blocked" | "page-fault" | "private" => 97,
        "gpu-wait" => 66,
        "size" | "cleared" | "in-calls" | "busy" => 36,
        "first-call" | "pinned" => 136,
        "nested" | "allocation" => 101,
        "host" | "on-cpu" => 67,
        "in-use" => 24,
        "nccl" => 133,
        "throttled" => 173,
        _ => 245,
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Truncates text to a width, and marks the truncation with an ellipsis.
fn cut(text: &str, to: usize) -> String {
    if width(text) <= to {
        return text.to_owned();
    }
    text.chars().take(to.saturating_sub(1)).chain(['…']).collect()
}

/// Wraps text into lines of at most the terminal's width.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = indent.to_owned();
    for word in text::harmless(text).split_whitespace() {
        let room = WIDTH - width(indent);
        let word = cut(word, room);
        if width(&line) + width(&word) + 1 > WIDTH && line.len() > indent.len() {
            lines += line.trim_end();
            lines.push('\n');
            line = indent.to_owned();
        }
        line += &word;
        line.push(' ');
    }
    lines + line.trim_end() + "\n"
}

/// Computes the widths of columns. If their contents are too wide together, the widest text column is
/// narrowed until they fit. On ties the last column is narrowed, because the first one identifies the row.
fn widths(columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
    let of = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max().unwrap_or(0);
    let mut widths: Vec<usize> =
        columns.iter().enumerate().map(|(at, column)| of(at).max(width(column.name).min(NARROW))).collect();
    loop {
        let excess = (widths.iter().sum::<usize>() + 2 * widths.len()).saturating_sub(WIDTH + 2);
        let words =
            columns.iter().enumerate().filter(|(at, column)| !column.is_number && widths[*at] > NARROW);
        let widest = words.max_by_key(|(at, _)| widths[*at]).map(|(at, _)| at);
        let (Some(widest), true) = (widest, excess > 0) else { return widths };
        widths[widest] -= 1;
    }
}

impl Terminal {
    fn painted(&self, text: &str, class: &str) -> String {
        match self.is_coloured && !class.is_empty() {
            true => format!("\x1b[38;5;{}m{text}\x1b[0m", colour(class)),
            false => text.to_owned(),
        }
    }

    fn bold(&self, text: &str) -> String {
        if self.is_coloured { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Draws a bar of parts by their shares. Without colours, each part is drawn with the first letter of its
    /// name.
    fn parts(&self, parts: &[Part], indent: &str) -> String {
        let room = (WIDTH - indent.len()) as f64;
        let mut bar = String::new();
        let (mut sum, mut drawn) = (0.0, 0);
        for part in parts {
            sum += part.width.parse::<f64>().unwrap_or(0.0) / 100.0;
            let end = (sum * room).round() as usize;
            let letter = part.name.chars().next().unwrap_or('?');
            let fill: String = if self.is_coloured { "█".to_owned() } else { letter.to_string() };
            bar += &self.painted(&fill.repeat(end.saturating_sub(drawn)), &part.class);
            drawn = end.max(drawn);
        }
        let words: Vec<String> =
            parts.iter().map(|part| format!("{} {} ({})", part.name, part.total, part.percent)).collect();
        format!("{indent}{bar}\n{}", wrapped(&words.join(", "), indent))
    }

    fn table(&self, table: &Table) -> String {
        let mut text = String::new();
        if !table.caption.is_empty() {
            text += &wrapped(&table.caption, "");
        }
        let shown = &table.rows[..table.rows.len().min(ROWS)];
        let clean = |text: &str| text::harmless(text).replace(['\n', '\t'], " ");
        let mut rows: Vec<Vec<String>> =
            shown.iter().map(|row| row.cells.iter().map(|cell| clean(&cell.text)).collect()).collect();
        let mut widths = widths(&table.columns, &rows);
        // Sentences in the last column go below their rows if they do not fit.
        let last = table.columns.len().saturating_sub(1);
        let is_cut = rows.iter().filter_map(|row| row.get(last)).any(|cell| width(cell) > widths[last]);
        let mut sentences = vec![None; rows.len()];
        if is_cut && last > 1 {
            sentences = rows.iter_mut().map(Vec::pop).collect();
            widths = self::widths(&table.columns[..last], &rows);
        }
        let padded = |text: &str, at: usize| {
            let text = cut(text, widths[at]);
            let room = " ".repeat(widths[at].saturating_sub(width(&text)));
            if table.columns[at].is_number { room + &text } else { text + &room }
        };
        let header: Vec<String> = table
            .columns
            .iter()
            .take(widths.len())
            .enumerate()
            .map(|(at, column)| padded(column.name, at))
            .collect();
        text += &format!("{}\n", self.bold(header.join("  ").trim_end()));
        for ((row, cells), sentence) in shown.iter().zip(&rows).zip(sentences) {
            let paint = |(at, text): (usize, &String)| {
                let class = match (&row.cells[at].swatch, row.cells[at].tone) {
                    (Some(class), _) => class,
                    (None, Tone::Plain | Tone::Open) => "",
                    (None, tone) => tone.class(),
                };
                self.painted(&padded(text, at), class)
            };
            let cells: Vec<String> = cells.iter().enumerate().map(paint).collect();
            text += &format!("{}\n", cells.join("  ").trim_end());
            let chains: Vec<&str> = row.links.iter().map(|link| link.text.as_str()).collect();
            let chains =
                if chains.is_empty() { String::new() } else { format!("chains {}", chains.join(", ")) };
            for words in sentence.iter().chain([&row.note, &chains]).filter(|words| !words.is_empty()) {
                text += &wrapped(words, "    ");
            }
        }
        if shown.is_empty() {
            text += "none\n";
        }
        if shown.len() < table.all_count {
            text += &format!("{} of {} shown\n", shown.len(), table.all_count);
        }
        text + "\n"
    }

    fn figure(&self, figure: &Figure) -> String {
        if figure.spark.is_empty() {
            return String::new();
        }
        let line = spark(&figure.spark, WIDTH);
        let class = figure.legend.first().map_or("", |(class, _)| class);
        format!("{}\n{}\n", self.painted(&line, class), wrapped(&figure.caption, ""))
    }

    fn call(&self, call: &Call) -> String {
        let head = format!("{}. {} {}", call.number, text::harmless(&call.op), call.dur);
        let mut text = format!("{}\n{}", self.bold(&head), wrapped(&call.facts, "   "));
        text += &self.parts(&call.parts, "   ");
        for link in &call.links {
            text += &wrapped(&format!("- {link}"), "   ");
        }
        text + "\n"
    }

    fn block(&self, block: &Block) -> String {
        match block {
            Block::Heading(words) => format!("{}\n", self.bold(words)),
            Block::Note(words) => wrapped(words, "") + "\n",
            Block::List(all) => {
                all.iter().map(|one| wrapped(&format!("- {one}"), "")).collect::<String>() + "\n"
            }
            Block::Parts(parts) => self.parts(parts, "") + "\n",
            Block::Table(table) if table.is_folded => String::new(),
            Block::Table(table) => self.table(table),
            Block::Figure(figure) => self.figure(figure),
            Block::Calls(calls) => calls.iter().take(CALLS).map(|call| self.call(call)).collect(),
        }
    }
}

/// Draws values from 0 to 1 as a line of `width` characters. Of the values that share a character the largest
/// is drawn, so that no peak is lost.
pub fn spark(values: &[f64], width: usize) -> String {
    let of = |at: usize| {
        let (from, to) = (at * values.len() / width, (at + 1) * values.len() / width);
        let most = values[from..to.max(from + 1)].iter().copied().fold(0.0, f64::max);
        SPARKS[((most * 8.0).ceil() as usize).clamp(1, 8) - 1]
    };
    if values.is_empty() { String::new() } else { (0..width).map(of).collect() }
}

/// Renders the document for a terminal.
pub fn text(document: &Document, is_coloured: bool) -> String {
    let terminal = Terminal { is_coloured };
    let verdict = &document.verdict;
    let mut text = format!("{}\n\n", terminal.bold(&cut(&text::harmless(&document.title), WIDTH)));
    text += &terminal.painted(wrapped(&verdict.scheduler, "").trim_end(), verdict.tone.class());
    text += "\n\n";
    for answer in &verdict.answers {
        text += &wrapped(&format!("{}: {}", answer.question, answer.text), "");
    }
    for sentence in &verdict.sentences {
        text += &wrapped(sentence, "");
    }
    for section in &document.sections {
        text +=
            &format!("\n{}\n{}\n\n", terminal.bold(&section.question), "─".repeat(width(&section.question)));
        for block in &section.blocks {
            text += &terminal.block(block);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::{Row, number, word};

    #[test]
    fn tables_fit() {
        let cells = vec![
            "a function with a name as long as they are in C++ ".repeat(4).into(),
            12.into(),
            "x".repeat(90).into(),
        ];
        let table =
            Table::new(&[word("Function"), number("Calls"), word("Stratum")], vec![Row::from(cells)], "");
        let text = Terminal { is_coloured: false }.table(&table.of(900));
        assert!(text.lines().all(|line| width(line) <= WIDTH), "{text}");
        assert!(text.contains("1 of 900 shown") && text.contains(" 12\n"), "{text}");
    }

    #[test]
    fn words_that_do_not_fit_are_cut() {
        let text = wrapped(&format!("a {} b", "x".repeat(200)), "  ");
        assert!(text.lines().all(|line| width(line) <= WIDTH), "{text}");
    }
}
