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
    use proptest::prelude::*;

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

    /// Unicode's characters of the property Bidi_Control and of the category Cc, without line break and tab.
    const HARMFUL: [std::ops::RangeInclusive<u32>; 7] = [
        0x0..=0x8,
        0xb..=0x1f,
        0x7f..=0x9f,
        0x61c..=0x61c,
        0x200e..=0x200f,
        0x202a..=0x202e,
        0x2066..=0x2069,
    ];

    /// The character of an escape, and what follows it.
    fn unescaped(text: &str) -> Option<(char, &str)> {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, &text[6..]))
    }

    proptest! {
        #[test]
        fn each_harmful_character_is_escaped_and_no_other(
            chars in prop::collection::vec(
                prop_oneof![any::<char>(), prop::char::range('\0', '\u{a0}'), prop::char::range('\u{2000}', '\u{2070}')],
                0..30,
            )
        ) {
            let text: String = chars.iter().collect();
            let shown = harmless(&text);
            let is_harmful = |c: char| HARMFUL.iter().any(|range| range.contains(&u32::from(c)));
            let mut rest = shown.as_str();
            for c in chars {
                rest = match unescaped(rest).filter(|_| is_harmful(c)) {
                    Some((escaped, after)) => {
                        prop_assert_eq!(escaped, c);
                        after
                    }
                    None => {
                        prop_assert!(!is_harmful(c) && rest.starts_with(c), "{:?}", rest);
                        &rest[c.len_utf8()..]
                    }
                };
            }
            prop_assert_eq!(rest, "");
            prop_assert_eq!(harmless(&shown), shown);
        }
    }
}
