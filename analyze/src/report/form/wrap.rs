//! Wraps text into lines of a terminal, whose width counts wide characters as two columns.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

use analyze_run::text;

/// Returns the number of terminal columns that the text takes.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Makes text from a trace harmless and one line long. Invisible tag characters go, because the renderer marks
/// coloured words with them.
pub(super) fn one_line(text: &str) -> String {
    let mut text = text::harmless(text).replace(['\n', '\t'], " ");
    text.retain(|c| !('\u{e0000}'..='\u{e0fff}').contains(&c));
    text
}

/// Truncates text to a width, and marks the truncation with an ellipsis.
pub(super) fn cut(text: &str, to: usize) -> Cow<'_, str> {
    if width(text) <= to {
        return Cow::Borrowed(text);
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if width(&short) >= to {
            short.pop();
            break;
        }
    }
    Cow::Owned(short + "…")
}

/// Units that stay on the line of their number.
const UNITS: [&str; 16] =
    ["%", "ns", "µs", "us", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB", "TiB", "MHz", "W", "°C"];

/// Splits text into words; a number and its unit are one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_unit = UNITS.contains(&word.trim_end_matches(|c: char| ",.;:)*".contains(c)));
        match words.last_mut().filter(|last| is_unit && last.ends_with(|c: char| c.is_ascii_digit())) {
            Some(number) => *number += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Wraps text into lines of at most `to` columns, of which the first begins with `first` and the others with as
/// many spaces. No word is broken, and no number parted from its unit: one that is longer than a line has a line of its own.
pub(super) fn wrapped(text: &str, first: &str, to: usize) -> String {
    let indent = " ".repeat(width(first));
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in words(&text::harmless(text)) {
        if !is_empty && width(&line) + width(&word) > to {
            lines += line.trim_end();
            lines.push('\n');
            line.clone_from(&indent);
        }
        line += &word;
        line.push(' ');
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(wrapped("日本 日本", "- ", 7), "- 日本\n  日本\n");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("abc", 3), "abc");
    }

    #[test]
    fn no_word_is_broken() {
        let long = "x".repeat(200);
        assert_eq!(wrapped(&format!("a {long} b"), "  ", 40), format!("  a\n  {long}\n  b\n"));
        assert_eq!(wrapped("it took 99.3 %, so", "", 12), "it took\n99.3 %, so\n");
        assert_eq!(wrapped("call s took 3", "", 6), "call s\ntook 3\n");
    }
}
