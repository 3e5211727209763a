//! Text that somebody else wrote, such as names of files, threads and functions, made harmless for terminals and pages.

use std::fmt::Write;

/// Writes control and bidirectional characters as `\u001b`, because they could change what a terminal or a page shows. Line
/// breaks and tabs stay. Within a string of JSON, this notation stands for the character itself.
pub fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let is_harmful = match c {
            '\n' | '\t' => false,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
            c => c.is_control(),
        };
        if is_harmful {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_not_fooled() {
        assert_eq!(harmless("a\u{1b}[31mb\u{202e}c\td\n"), "a\\u001b[31mb\\u202ec\td\n");
        assert_eq!(
            harmless("\u{9b}1m\u{7f}\r\u{2066}\u{2069}\u{61c}"),
            "\\u009b1m\\u007f\\u000d\\u2066\\u2069\\u061c"
        );
        assert_eq!(harmless("größer 日本 \\u001b"), "größer 日本 \\u001b");
    }

    #[test]
    fn what_is_harmless_stays_so() {
        let once = harmless("\u{1b}]0;title\u{7}");
        assert_eq!(harmless(&once), once);
    }
}
