//! Renders tables for a terminal. comfy-table arranges the columns; a table that does not fit is reduced in
//! steps: the last column goes below its row, then long names are cut, and finally every row becomes a record
//! of one line per column. Numbers, verdicts, gates and outcomes are never cut.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table as Grid, TableComponent, Width, presets,
};

use super::{
    paint::Palette,
    wrap::{cut, one_line, width, wrapped},
};
use crate::report::document::{Cell, Column, Row, Table, Tone};

/// Number of spaces between two columns.
const GAP: usize = 2;
/// Length to which long names are cut at most.
const SHORTEST: usize = 16;
/// Width that the last column needs at least to stay in the table if its text is longer.
const PROSE: usize = 24;
/// Width up to which a number with its unit stays on one line.
const NUMBER: usize = 24;
/// Stands between the rows of the arranged table. No cell contains it, because cells have no control characters.
const SEPARATOR: char = '\u{1f}';
/// Space that is no place to wrap a line.
const HARD_SPACE: &str = "\u{a0}";

/// The cells of a table as they are arranged.
struct Cells {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// Text below each row, with the name of its column.
    below: Vec<String>,
}

/// Returns the width of the longest word.
fn longest_word(text: &str) -> usize {
    text.split(' ').map(width).max().unwrap_or(0)
}

impl Cells {
    fn of(table: &Table, rows: &[Row]) -> Self {
        let text = |(cell, column): (&Cell, &Column)| {
            let text = one_line(&cell.text);
            let is_short = column.is_number && width(&text) <= NUMBER;
            if is_short { text.replace(' ', HARD_SPACE) } else { text }
        };
        let cells = |row: &Row| row.cells.iter().zip(&table.columns).map(text).collect();
        Self {
            columns: table.columns.clone(),
            rows: rows.iter().map(cells).collect(),
            below: vec![String::new(); rows.len()],
        }
    }

    /// Returns the largest of a measure over the header and the cells of a column.
    fn most(&self, at: usize, measure: fn(&str) -> usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| measure(cell));
        cells.chain([measure(&self.columns[at].name)]).max().unwrap_or(0)
    }

    fn sum(&self, measure: fn(&str) -> usize) -> usize {
        let widths = (0..self.columns.len()).map(|at| self.most(at, measure));
        widths.sum::<usize>() + GAP * self.columns.len().saturating_sub(1)
    }

    /// Returns true if the table fits when lines are wrapped between words only.
    fn fits(&self, room: usize) -> bool {
        self.sum(longest_word) <= room
    }

    /// Returns true if the last column is text that does better below its row.
    fn is_prose_last(&self, room: usize) -> bool {
        let last = self.columns.len() - 1;
        let text = self.most(last, width);
        let left = room.saturating_sub(self.sum(width) - text);
        last > 1 && !self.columns[last].is_number && text > left && left < PROSE
    }

    /// Moves the last column below the rows.
    fn drop_last(&mut self) {
        let Some(column) = self.columns.pop() else { return };
        for (row, below) in self.rows.iter_mut().zip(&mut self.below) {
            let cell = row.pop().filter(|cell| !cell.is_empty());
            let name = if column.name.is_empty() { String::new() } else { format!("{}: ", column.name) };
            *below = cell.map_or_else(String::new, |cell| name + &cell);
        }
    }

    /// Cuts the words of names, as little as is needed for the table to fit.
    fn shorten(&mut self, room: usize, is_whole: impl Fn(usize, usize) -> bool) {
        let longest = (0..self.columns.len()).map(|at| self.most(at, longest_word)).max().unwrap_or(0);
        for to in (SHORTEST..longest).rev() {
            for (number, row) in self.rows.iter_mut().enumerate() {
                for (at, cell) in row.iter_mut().enumerate() {
                    if !is_whole(number, at) && longest_word(cell) > to {
                        *cell = cell.split(' ').map(|word| cut(word, to)).collect::<Vec<_>>().join(" ");
                    }
                }
            }
            if self.fits(room) {
                return;
            }
        }
    }

    /// Arranges the header, if any column has a name, and the rows.
    fn arranged(&self, room: usize) -> (Option<String>, Vec<String>) {
        let mut grid = Grid::new();
        grid.load_preset(presets::NOTHING)
            .set_style(TableComponent::HorizontalLines, SEPARATOR)
            .set_style(TableComponent::HeaderLines, SEPARATOR)
            .set_content_arrangement(ContentArrangement::Disabled);
        if let Some(room) = u16::try_from(room).ok().filter(|_| self.sum(width) > room) {
            grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(room);
        }
        let has_header = self.columns.iter().any(|column| !column.name.is_empty());
        if has_header {
            grid.set_header(self.columns.iter().map(|column| column.name.as_ref()));
        }
        grid.add_rows(&self.rows);
        let last = self.columns.len().saturating_sub(1);
        for (at, column) in grid.column_iter_mut().enumerate() {
            let gap = if at == last { 0 } else { GAP as u16 };
            let least = u16::try_from(self.most(at, longest_word)).unwrap_or(u16::MAX - gap) + gap;
            column.set_padding((0, gap)).set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            if self.columns[at].is_number {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut groups = vec![String::new()];
        for line in grid.lines() {
            match (line.starts_with(SEPARATOR), groups.last_mut()) {
                (false, Some(group)) => {
                    *group += &(line.replace(HARD_SPACE, " ").trim_end().to_owned() + "\n")
                }
                _ => groups.push(String::new()),
            }
        }
        let header = has_header.then(|| groups.remove(0));
        (header, groups)
    }

    /// Returns each row as a record of one line per column.
    fn records(&self, room: usize) -> Vec<String> {
        let names = self.columns.iter().map(|column| width(&column.name)).max().unwrap_or(0);
        let line = |(column, cell): (&Column, &String)| {
            let name = format!("{}{}", column.name, " ".repeat(names + GAP - width(&column.name)));
            if names + GAP + longest_word(cell) <= room {
                return wrapped(&cell.replace(HARD_SPACE, " "), &name, room);
            }
            format!("{}\n{}", column.name, wrapped(cell, "  ", room))
        };
        self.rows.iter().map(|row| self.columns.iter().zip(row).map(line).collect()).collect()
    }
}

/// Renders the first `rows` rows of a table into lines of `room` columns, which only unbreakable words exceed.
pub(super) fn text(table: &Table, room: usize, rows: usize, palette: Palette) -> String {
    let shown = &table.rows[..table.rows.len().min(rows)];
    let mut text = String::new();
    if !table.caption.is_empty() {
        text += &wrapped(&table.caption, "", room);
    }
    let mut cells = Cells::of(table, shown);
    if !cells.columns.is_empty()
        && (cells.is_prose_last(room) || !cells.fits(room) && cells.columns.len() > 2)
    {
        let is_text = cells.columns.last().is_some_and(|column| !column.is_number);
        if is_text {
            cells.drop_last();
        }
    }
    if !cells.fits(room) {
        let is_whole = |row: usize, at: usize| {
            let column = &table.columns[at];
            column.is_number || column.is_whole || shown[row].cells[at].tone != Tone::Plain
        };
        cells.shorten(room, is_whole);
    }
    let is_table = cells.fits(room);
    if !is_table {
        cells = Cells::of(table, shown);
    }
    for (row, cells) in shown.iter().zip(&mut cells.rows) {
        for (cell, text) in row.cells.iter().zip(cells) {
            let class = match (&cell.swatch, cell.tone) {
                (Some(class), _) => class.as_str(),
                (None, Tone::Plain | Tone::Open) => "",
                (None, tone) => tone.class(),
            };
            *text = palette.marked(text, class);
        }
    }
    let (header, lines) = if is_table { cells.arranged(room) } else { (None, cells.records(room)) };
    if let Some(header) = header {
        header.lines().for_each(|line| text += &(palette.bold(line) + "\n"));
    }
    for (at, ((row, line), below)) in shown.iter().zip(&lines).zip(&cells.below).enumerate() {
        if at > 0 && !is_table {
            text.push('\n');
        }
        text += &palette.painted_marks(line);
        let calls: Vec<&str> = row.links.iter().map(|link| link.text.as_str()).collect();
        let calls = if calls.is_empty() { String::new() } else { format!("chains {}", calls.join(", ")) };
        for words in [below, &row.note, &calls].into_iter().filter(|words| !words.is_empty()) {
            text += &palette.painted_marks(&wrapped(words, "    ", room));
        }
    }
    if shown.is_empty() {
        text += "none\n";
    }
    if shown.len() < table.all_count {
        text += &format!("{} of {} shown\n", shown.len(), table.all_count);
    }
    if let Some(note) = table.footnote(shown.len()) {
        text += &wrapped(note, "", room);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::{number, whole, word};

    const PLAIN: Palette = Palette { is_coloured: false };

    fn sample() -> Table {
        let row = |gate: &str, outcome: &str| {
            let outcome = Cell { tone: Tone::Bad, ..Cell::from(outcome) };
            Row::from(vec![gate.into(), outcome, "12.3 µs".into(), "日本語 a sentence of some length".into()])
        };
        let rows =
            vec![row("p99(cudaLaunchKernel) < +5%", "inconclusive"), row("wall_ns < +2%", "regression")];
        Table::new(&[whole("Gate"), word("Outcome"), number("Change"), word("Reason")], rows, "")
    }

    #[test]
    fn tables_fit_every_terminal() {
        for room in [40, 60, 80, 120, 200] {
            let text = text(&sample(), room, 8, PLAIN);
            assert!(text.lines().all(|line| width(line) <= room), "{room}:\n{text}");
            for word in ["p99(cudaLaunchKernel)", "inconclusive", "12.3 µs", "日本語", "sentence"] {
                assert!(text.contains(word), "{room}: {word}:\n{text}");
            }
        }
    }

    #[test]
    fn columns_line_up_without_a_terminal() {
        let rows = vec![
            Row::from(vec!["a".into(), 10.into()]),
            Row { note: "why".to_owned(), ..vec![Cell::from("long"), 7.into()].into() },
        ];
        let table = Table::new(&[word("name"), number("n")], rows, "").of(900);
        assert_eq!(
            text(&table, usize::MAX, 8, PLAIN),
            "name   n\na     10\nlong   7\n    why\n2 of 900 shown\n"
        );
    }

    #[test]
    fn long_names_are_cut_before_the_table_becomes_records() {
        let cells = vec!["x".repeat(300).into(), 12.into(), "y".repeat(90).into()];
        let table =
            Table::new(&[word("Function"), number("Calls"), word("Group")], vec![Row::from(cells)], "");
        let text = text(&table, 200, 8, PLAIN);
        assert!(text.contains('…') && text.contains(&"y".repeat(90)), "{text}");
        assert!(text.lines().all(|line| width(line) <= 200), "{text}");
    }

    #[test]
    fn colour_takes_no_room() {
        let coloured = text(&sample(), 80, 8, Palette { is_coloured: true });
        assert!(coloured.contains("\x1b[38;5;167mregression\x1b[0m"), "{coloured:?}");
    }
}
