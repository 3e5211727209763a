//! Renders Markdown for CI job summaries and issue trackers. Figures are reduced to their captions, because
//! tables have the same numbers.

use crate::report::document::{Block, Call, Document, Part, Table};
use analyze_run::text;

/// Escapes text such that Markdown shows it literally.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Markdown turns addresses into links even without markup.
    let text = text::harmless(text).replace("://", ":\u{200b}//").replace("www.", "www\u{200b}.");
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            // These would become mentions or references to issues.
            '@' | '#' => out += &format!("&#{};", u32::from(c)),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn table(table: &Table) -> String {
    let mut text = String::new();
    if !table.caption.is_empty() {
        text += &format!("{}\n\n", escaped(&table.caption));
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &line(table.columns.iter().map(|column| escaped(&column.name)).collect());
    text += &line(table.columns.iter().map(|c| if c.is_number { "--:" } else { "---" }.to_owned()).collect());
    for row in &table.rows {
        text += &line(row.cells.iter().map(|cell| escaped(&cell.text)).collect());
    }
    if table.rows.len() < table.all_count {
        text += &format!("\n{} of {} shown.\n", table.rows.len(), table.all_count);
    }
    if let Some(note) = table.footnote(table.rows.len()) {
        text += &format!("\n{}\n", escaped(note));
    }
    let notes = table.rows.iter().filter(|row| !row.note.is_empty());
    let notes: Vec<String> = notes
        .map(|row| {
            let name = row.cells.first().map_or_else(String::new, |cell| escaped(&cell.text));
            let chains: Vec<&str> = row.links.iter().map(|link| link.text.as_str()).collect();
            let chains =
                if chains.is_empty() { String::new() } else { format!("; chains {}", chains.join(", ")) };
            format!("- {name}: {}{chains}\n", escaped(&row.note))
        })
        .collect();
    if !notes.is_empty() {
        text += &format!("\n{}", notes.concat());
    }
    if table.sql.is_empty() {
        return text + "\n";
    }
    text + &format!("\n<details><summary>SQL</summary>\n\n```sql\n{}\n```\n\n</details>\n\n", table.sql)
}

fn parts(parts: &[Part]) -> String {
    let all: Vec<String> = parts.iter().map(|part| format!("{} {}", part.name, part.percent)).collect();
    escaped(&all.join(", "))
}

fn call(call: &Call) -> String {
    let mut text = format!(
        "{}. **{}** {}: {}. {}\n",
        call.number,
        escaped(&call.op),
        escaped(&call.dur),
        escaped(&call.facts),
        parts(&call.parts)
    );
    for link in &call.links {
        text += &format!("   - {}\n", escaped(link));
    }
    text += &format!("   - SQL: {}\n", escaped(&call.sql));
    text
}

/// Renders the document as Markdown.
pub fn text(document: &Document) -> String {
    let mut text = String::new();
    if !document.title.is_empty() {
        text += &format!("# {}\n\n**{}**\n\n", escaped(&document.title), escaped(&document.verdict.main));
    }
    for answer in &document.verdict.answers {
        text += &format!("**{}:** {}\n\n", escaped(answer.question), escaped(&answer.text));
    }
    for sentence in &document.verdict.sentences {
        text += &format!("{}\n\n", escaped(sentence));
    }
    for section in &document.sections {
        if !section.question.is_empty() {
            text += &format!("## {}\n\n", escaped(&section.question));
        }
        for block in &section.blocks {
            match block {
                Block::Heading(words) => text += &format!("### {}\n\n", escaped(words)),
                Block::Note(words) => text += &format!("{}\n\n", escaped(words)),
                Block::List(all) => {
                    all.iter().for_each(|one| text += &format!("- {}\n", escaped(one)));
                    text.push('\n');
                }
                Block::Warnings(all) => {
                    all.iter().for_each(|one| text += &format!("> note: {}\n", escaped(one)));
                    text.push('\n');
                }
                Block::Parts(all) => text += &format!("{}\n\n", parts(all)),
                Block::Table(one) => text += &table(one),
                Block::Figure(figure) => text += &format!("{}\n\n", escaped(&figure.caption)),
                Block::Code(code) => text += &format!("```sql\n{}\n```\n\n", text::harmless(code)),
                Block::Calls(calls) => {
                    calls.iter().for_each(|one| text += &call(one));
                    text.push('\n');
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let hostile = "a|b <img src=x> [x](http://y) `c` *d* @e #1 \u{202e}\u{1b}[31m\nnew";
        let text = escaped(hostile);
        assert!(!text.contains(['<', '>', '\u{202e}', '\u{1b}', '\n', '@']), "{text}");
        assert!(text.contains("a\\|b") && !text.contains("://"), "{text}");
    }
}
