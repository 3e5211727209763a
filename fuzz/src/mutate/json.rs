//! Changes of JSON texts: of whole values and keys.

use std::ops::Range;

use analyze_run::random::Random;

use super::text;

/// Values that a reader may not expect in the place of another.
const VALUES: [&str; 24] = [
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "\"x\"",
    "0",
    "-1",
    "1.5",
    "-0.0",
    "1e400",
    "1e-400",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "2305843009213693.953",
    "-9223372036854775808",
    "4294967296",
    "NaN",
    "Infinity",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\\u0000\"",
    "[[[[[[[[1]]]]]]]]",
    "{\"a\": {\"a\": {\"a\": 1}}}",
];

/// Returns where the tokens of a text are: strings with their quotes, numbers and words, brackets.
fn tokens(data: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let start = at;
        match data[at] {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'"' => {
                at += 1;
                while at < data.len() && data[at] != b'"' {
                    at += if data[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'{' | b'}' | b'[' | b']' | b',' | b':' => at += 1,
            _ => {
                while at < data.len() && !b" \t\r\n\"{}[],:".contains(&data[at]) {
                    at += 1;
                }
            }
        }
        at = at.min(data.len());
        found.push(start..at);
    }
    found
}

/// Returns where the value ends that begins with a token.
fn end_of(data: &[u8], tokens: &[Range<usize>], first: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(first) {
        match data[token.start] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len() - 1
}

/// Changes a text.
pub fn json(data: &mut Vec<u8>, random: &mut Random) {
    let tokens = tokens(data);
    if tokens.is_empty() || random.below(6) == 0 {
        return text::text(data, random);
    }
    let mut any = || random.below(tokens.len());
    let (first, other) = (any(), any());
    let whole = |first: usize| tokens[first].start..tokens[end_of(data, &tokens, first)].end;
    let (value, other) = (whole(first), whole(other));
    match random.below(7) {
        0..=2 => drop(data.splice(value, VALUES[random.below(VALUES.len())].bytes())),
        3 => drop(data.drain(value)),
        4 => {
            let copy = data[other].to_vec();
            data.splice(value, copy);
        }
        5 => {
            // The value is there twice, with a comma, as an element or as a key is.
            let copy = [&data[value.clone()], b", "].concat();
            data.splice(value.start..value.start, copy);
        }
        _ => {
            let depth = 1 << random.below(10);
            let copy = [&b"[".repeat(depth)[..], &data[value.clone()], &b"]".repeat(depth)[..]].concat();
            data.splice(value, copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_whole() {
        let text = br#"{"a\"b": [1, {"c": null}], "d": -2.5e3}"#;
        let tokens = tokens(text);
        let shown: Vec<_> =
            tokens.iter().map(|token| String::from_utf8_lossy(&text[token.clone()])).collect();
        let expected = [
            "{",
            "\"a\\\"b\"",
            ":",
            "[",
            "1",
            ",",
            "{",
            "\"c\"",
            ":",
            "null",
            "}",
            "]",
            ",",
            "\"d\"",
            ":",
            "-2.5e3",
            "}",
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            (end_of(text, &tokens, 0), end_of(text, &tokens, 3), end_of(text, &tokens, 4)),
            (16, 11, 4)
        );
    }
}
