//! The strings of a pickle, each distinct one kept once.

use std::{collections::HashMap, sync::Arc};

/// Id of a string in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TextId(pub(crate) u32);

/// Estimated memory of a string besides its own bytes.
const OVERHEAD_BYTES: usize = 80;

/// All distinct strings that were read.
pub(super) struct Texts {
    words: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl Texts {
    /// Creates a table in which the strings in `known` have the first ids, in their order.
    pub(super) fn new(known: &[&str]) -> Self {
        let mut texts = Self { words: Vec::new(), numbers: HashMap::new(), bytes: 0 };
        for word in known {
            texts.number(word);
        }
        texts
    }

    /// Returns the id of a string; a string that is new gets the next one.
    pub(super) fn number(&mut self, word: &str) -> TextId {
        if let Some(number) = self.numbers.get(word) {
            return TextId(*number);
        }
        let number = self.words.len() as u32;
        let word: Arc<str> = word.into();
        self.bytes += word.len() + OVERHEAD_BYTES;
        self.words.push(Arc::clone(&word));
        self.numbers.insert(word, number);
        TextId(number)
    }

    /// Returns the string that has an id.
    pub(super) fn word(&self, id: TextId) -> &Arc<str> {
        &self.words[id.0 as usize]
    }

    /// Returns an estimate of the memory in use, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }
}

/// Decodes up to eight hexadecimal digits, and nothing else: no sign.
fn from_hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}

/// Decodes a string of a text opcode (protocol 0): Latin-1 with `\uXXXX` and `\UXXXXXXXX`. Returns `None` if
/// it is malformed.
pub(super) fn unescape_unicode(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [byte, after @ ..] = rest {
        let digits = match (byte, after) {
            (b'\\', [b'u', ..]) => 4,
            (b'\\', [b'U', ..]) => 8,
            _ => {
                text.push(char::from(*byte));
                rest = after;
                continue;
            }
        };
        let code = from_hex(after.get(1..=digits)?)?;
        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &after[1 + digits..];
    }
    Some(text)
}

/// Decodes a quoted string of Python 2. Returns `None` if it is malformed.
pub(super) fn unquote(line: &[u8]) -> Option<String> {
    let (quote, inner) = match line {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => (*first, inner),
        _ => return None,
    };
    let mut bytes = inner.iter();
    let mut text = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        let byte = match *byte {
            b'\\' => match *bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => from_hex(&[*bytes.next()?, *bytes.next()?])? as u8,
                other @ (b'\\' | b'\'' | b'"') => other,
                _ => return None,
            },
            byte if byte == quote => return None,
            byte => byte,
        };
        text.push(byte);
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_take_digits_only() {
        assert_eq!(unescape_unicode(b"a\\u00e9\\U0001f600").as_deref(), Some("aé😀"));
        assert_eq!(unquote(b"'\\x41'").as_deref(), Some("A"));
        for bad in [&b"\\u+0e9"[..], b"\\U+001f600", b"\\u12"] {
            assert_eq!(unescape_unicode(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(unquote(b"'\\x+f'"), None);
    }
}
