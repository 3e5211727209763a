//! A pull parser for JSON: it reads value by value, and its memory does not grow with the size of the file.
//!
//! Numbers are returned as their text, so that none is rounded. Every error carries its byte offset. `NaN`
//! and `Infinity` are accepted as numbers, as they are by Python's `json` module.

use std::{
    io::{ErrorKind, Read},
    ops::Range,
};

use super::{
    compressed::is_damage,
    limits::{NESTING_COUNT, STRING_BYTES},
};

/// Size of one read from the source, in bytes.
const READ_BYTES: usize = 1 << 18;
/// The first halves of surrogate pairs, which stand for one character with the second half that follows. One
/// that stands alone is read as U+FFFD.
const HIGH: Range<u32> = 0xd800..0xdc00;
/// The second halves of surrogate pairs.
const LOW: Range<u32> = 0xdc00..0xe000;

/// The reason why a file could not be read further.
#[derive(Debug)]
pub(super) enum JsonError {
    /// The operating system reported an I/O error.
    Io(std::io::Error),
    /// The text is invalid or not of the expected shape at byte `offset`, counted after decompression.
    At { offset: u64, reason: String },
}

/// The type of a value, known from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An object: keys and values.
    Object,
    /// A list of values.
    List,
    /// A string.
    Text,
    /// A number, `NaN` or an infinity.
    Number,
    /// One of `true`, `false` and `null`.
    Word,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::List => "a list",
            Self::Text => "a string",
            Self::Number => "a number",
            Self::Word => "true, false or null",
        }
    }
}

/// A parser that reads one JSON text from `R`.
pub(super) struct Json<R> {
    source: R,
    buffer: Vec<u8>,
    at: usize,
    /// Number of bytes of the text before the buffer.
    passed: u64,
    bytes: Vec<u8>,
    word: String,
}

impl<R: Read> Json<R> {
    /// Creates a parser at the start of `source`.
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), at: 0, passed: 0, bytes: Vec::new(), word: String::new() }
    }

    /// Returns the byte offset of the parser in the text.
    pub(super) fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Returns an error with `reason` at the current offset.
    pub(super) fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, JsonError> {
        Err(JsonError::At { offset: self.offset(), reason: reason.into() })
    }

    /// Makes sure that the buffer has a byte left, reading more if necessary. Returns `false` at the end of
    /// the file.
    #[inline]
    fn fill(&mut self) -> Result<bool, JsonError> {
        if self.at < self.buffer.len() { Ok(true) } else { self.read() }
    }

    #[cold]
    fn read(&mut self) -> Result<bool, JsonError> {
        self.passed += self.buffer.len() as u64;
        self.at = 0;
        self.buffer.resize(READ_BYTES, 0);
        let count = loop {
            match self.source.read(&mut self.buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buffer.clear();
                    return if is_damage(&error) {
                        self.wrong(format!("the compressed data is damaged or cut off: {error}"))
                    } else {
                        Err(JsonError::Io(error))
                    };
                }
            }
        };
        self.buffer.truncate(count);
        Ok(count > 0)
    }

    /// Returns the next byte without consuming it. Errs at the end of the file.
    #[inline]
    fn byte(&mut self) -> Result<u8, JsonError> {
        if !self.fill()? {
            return self.wrong("the file is cut off");
        }
        Ok(self.buffer[self.at])
    }

    /// Skips white space and returns the byte after it without consuming that byte.
    fn token(&mut self) -> Result<u8, JsonError> {
        loop {
            self.byte()?;
            let rest = &self.buffer[self.at..];
            let spaces = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
            self.at += spaces.unwrap_or(rest.len());
            if spaces.is_some() {
                return Ok(self.buffer[self.at]);
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), JsonError> {
        let found = self.token()?;
        if found != wanted {
            return self.wrong(format!("`{}` where `{}` belongs", char::from(found), char::from(wanted)));
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the type of the next value. Errs if its first byte begins no value.
    pub(super) fn shape(&mut self) -> Result<Shape, JsonError> {
        Ok(match self.token()? {
            b'{' => Shape::Object,
            b'[' => Shape::List,
            b'"' => Shape::Text,
            b'-' | b'0'..=b'9' | b'N' | b'I' => Shape::Number,
            b't' | b'f' | b'n' => Shape::Word,
            byte => return self.wrong(format!("`{}` begins no value", char::from(byte).escape_default())),
        })
    }

    /// Consumes the first byte of a value. Errs if the value is not of the type `wanted`; `what` names the
    /// value in the error.
    pub(super) fn begin(&mut self, wanted: Shape, what: &str) -> Result<(), JsonError> {
        let found = self.shape()?;
        if found != wanted {
            return self.wrong(format!("{what} is {}, not {}", found.name(), wanted.name()));
        }
        self.at += 1;
        Ok(())
    }

    /// Moves to the next element, or past the closing bracket `end`, in which case it returns `false`.
    /// `is_first` is `true` until the first element was reached.
    fn step(&mut self, is_first: &mut bool, end: u8) -> Result<bool, JsonError> {
        if self.token()? == end {
            self.at += 1;
            return Ok(false);
        }
        if !*is_first {
            self.expect(b',')?;
        }
        *is_first = false;
        Ok(true)
    }

    /// Moves to the next element of a list. Returns `false` if the list has ended.
    pub(super) fn next_element(&mut self, is_first: &mut bool) -> Result<bool, JsonError> {
        self.step(is_first, b']')
    }

    /// Moves to the next value of an object and stores its key in `key`. Returns `false` if the object has
    /// ended.
    pub(super) fn next_key(&mut self, is_first: &mut bool, key: &mut String) -> Result<bool, JsonError> {
        if !self.step(is_first, b'}')? {
            return Ok(false);
        }
        self.text(key, "a key")?;
        self.expect(b':')?;
        Ok(true)
    }

    /// Reads a string into `into`, with its escapes resolved. `what` names the value in errors.
    pub(super) fn text(&mut self, into: &mut String, what: &str) -> Result<(), JsonError> {
        self.begin(Shape::Text, what)?;
        into.clear();
        // Most strings lie in the buffer completely and have no escapes.
        let rest = &self.buffer[self.at..];
        if let Some(length) = rest.iter().position(|byte| ends_plain(*byte))
            && rest[length] == b'"'
            && !STRING_BYTES.is_exceeded_by(length)
            && let Ok(text) = std::str::from_utf8(&rest[..length])
        {
            into.push_str(text);
            self.at += length + 1;
            return Ok(());
        }
        let start = self.offset();
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let result = self.string(Some(&mut bytes));
        let whole = result.and_then(|()| match std::str::from_utf8(&bytes) {
            Ok(text) => {
                into.push_str(text);
                Ok(())
            }
            Err(error) => Err(JsonError::At {
                offset: start,
                reason: format!("a string that begins here is no UTF-8: {error}"),
            }),
        });
        self.bytes = bytes;
        whole
    }

    /// Reads the rest of a string and its closing quote, and appends the content to `into` if that is given.
    fn string(&mut self, mut into: Option<&mut Vec<u8>>) -> Result<(), JsonError> {
        // The last escape, if it is the first half of a surrogate pair.
        let mut high = None;
        loop {
            self.byte()?;
            let rest = &self.buffer[self.at..];
            let plain = rest.iter().position(|byte| ends_plain(*byte)).unwrap_or(rest.len());
            let end = rest.get(plain).copied();
            let unpaired = if plain > 0 || end != Some(b'\\') { high.take() } else { None };
            if let Some(into) = into.as_deref_mut() {
                if unpaired.is_some() {
                    push(into, char::REPLACEMENT_CHARACTER);
                }
                into.extend_from_slice(&rest[..plain]);
                if STRING_BYTES.is_exceeded_by(into.len()) {
                    return self.wrong(STRING_BYTES.over("a string is longer"));
                }
            }
            self.at += plain;
            match end {
                None => {}
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let unit = self.escape()?;
                    let first = high.take();
                    let pair = first.filter(|_| LOW.contains(&unit));
                    let code = pair.map_or(unit, |first| {
                        0x10000_u32 + ((first - HIGH.start) << 10) + (unit - LOW.start)
                    });
                    if let Some(into) = into.as_deref_mut() {
                        if first.is_some() && pair.is_none() {
                            push(into, char::REPLACEMENT_CHARACTER);
                        }
                        if !HIGH.contains(&code) {
                            push(into, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                        }
                    }
                    high = HIGH.contains(&code).then_some(code);
                }
                Some(byte) => return self.wrong(format!("byte {byte:#04x} within a string")),
            }
        }
    }

    /// Reads an escape and returns its code point, which may be half of a surrogate pair.
    fn escape(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let found = match self.byte()? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'u' => {
                self.at += 1;
                return self.four_digits();
            }
            byte => return self.wrong(format!("`\\{}` is no escape", char::from(byte).escape_default())),
        };
        self.at += 1;
        Ok(u32::from(found))
    }

    fn four_digits(&mut self) -> Result<u32, JsonError> {
        let mut value = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.byte()?).to_digit(16) else {
                return self.wrong("`\\u` without four hexadecimal digits");
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }

    /// Reads a number and stores its text in `into`. `what` names the value in errors.
    pub(super) fn number(&mut self, into: &mut String, what: &str) -> Result<(), JsonError> {
        let found = self.shape()?;
        if found != Shape::Number {
            return self.wrong(format!("{what} is {}, not a number", found.name()));
        }
        let start = self.offset();
        into.clear();
        self.letters(into, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))?;
        let is_right = into.len() <= 400 && is_number(into.as_bytes());
        if !is_right && !matches!(into.as_str(), "NaN" | "Infinity" | "-Infinity") {
            let shown: String = into.chars().take(40).collect();
            return Err(JsonError::At { offset: start, reason: format!("`{shown}` is no number") });
        }
        Ok(())
    }

    fn word(&mut self, into: &mut String) -> Result<(), JsonError> {
        let start = self.offset();
        into.clear();
        self.letters(into, |byte| byte.is_ascii_alphanumeric())?;
        if !matches!(into.as_str(), "true" | "false" | "null") {
            return Err(JsonError::At { offset: start, reason: format!("`{into}` is no value") });
        }
        Ok(())
    }

    /// Appends ASCII characters to `into` while `belongs` accepts them, up to 512 bytes; no valid number or
    /// word is that long.
    fn letters(&mut self, into: &mut String, belongs: impl Fn(u8) -> bool) -> Result<(), JsonError> {
        while into.len() < 512 && self.fill()? {
            let rest = &self.buffer[self.at..];
            let rest = &rest[..rest.len().min(512 - into.len())];
            let count = rest.iter().position(|byte| !belongs(*byte)).unwrap_or(rest.len());
            into.extend(rest[..count].iter().map(|byte| char::from(*byte)));
            self.at += count;
            if count < rest.len() {
                break;
            }
        }
        Ok(())
    }

    /// Reads and checks one value, and discards it.
    pub(super) fn skip(&mut self) -> Result<(), JsonError> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: u64) -> Result<(), JsonError> {
        if depth > NESTING_COUNT.value {
            return self.wrong(NESTING_COUNT.over("objects and lists within each other are more"));
        }
        let shape = self.shape()?;
        match shape {
            Shape::Text => {
                self.at += 1;
                self.string(None)
            }
            Shape::Number | Shape::Word => {
                let mut text = std::mem::take(&mut self.word);
                let result = match shape {
                    Shape::Number => self.number(&mut text, "a value"),
                    _ => self.word(&mut text),
                };
                self.word = text;
                result
            }
            Shape::List => {
                self.at += 1;
                let mut is_first = true;
                while self.next_element(&mut is_first)? {
                    self.skip_at(depth + 1)?;
                }
                Ok(())
            }
            Shape::Object => {
                self.at += 1;
                let mut is_first = true;
                while self.step(&mut is_first, b'}')? {
                    self.begin(Shape::Text, "a key")?;
                    self.string(None)?;
                    self.expect(b':')?;
                    self.skip_at(depth + 1)?;
                }
                Ok(())
            }
        }
    }

    /// Checks that only white space follows. Errs if anything else does.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        while self.fill()? {
            if !self.buffer[self.at].is_ascii_whitespace() {
                return self.wrong("something after the end of the JSON text");
            }
            self.at += 1;
        }
        Ok(())
    }
}

fn push(into: &mut Vec<u8>, letter: char) {
    into.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Returns whether a byte within a string does not stand for itself.
#[inline]
fn ends_plain(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

/// Returns whether a text is a number by JSON's grammar.
fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    let mut rest = &text[whole..];
    if whole == 0 || (whole > 1 && text[0] == b'0') {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent =
            exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
        let count = digits(exponent);
        return count > 0 && count == exponent.len();
    }
    rest.is_empty()
}

/// Multiplies a decimal number by 10 to the power `power` and truncates it to an integer. Returns `None` if
/// the text is not a number, or if the result does not fit into an `i64`.
pub(super) fn scaled(text: &str, power: i32) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    // Number of digits after the decimal point that are kept.
    let kept = exponent.checked_add(power)?;
    let mut value: i128 = 0;
    for (place, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if place as i64 >= whole.len() as i64 + i64::from(kept) {
            break;
        }
        value = value.checked_mul(10)?.checked_add(i128::from(char::from(digit).to_digit(10)?))?;
    }
    for _ in fraction.len() as i64..i64::from(kept) {
        if value == 0 {
            break;
        }
        value = value.checked_mul(10)?;
    }
    i64::try_from(if is_negative { -value } else { value }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let ns = |text| scaled(text, 3);
        assert_eq!(ns("4329410542873.928"), Some(4_329_410_542_873_928));
        assert_eq!(ns("1790857026123456.789"), Some(1_790_857_026_123_456_789));
        assert_eq!(ns("0.0004"), Some(0));
        assert_eq!(ns("1.5e3"), Some(1_500_000));
        assert_eq!(ns("15E-1"), Some(1_500));
        assert_eq!(ns("123456e-5"), Some(1_234));
        assert_eq!(ns("-0.25"), Some(-250));
        assert_eq!(ns("7"), Some(7_000));
        assert_eq!(ns("0e999999999"), Some(0));
        for bad in ["1e30", "9223372036854775807", "1e2147483647", "NaN", "Infinity", "", "-"] {
            assert_eq!(ns(bad), None, "{bad}");
        }
        assert_eq!(scaled("9223372036854775807", 0), Some(i64::MAX));
    }

    fn skipped(text: &str) -> Result<(), (u64, String)> {
        let mut json = Json::new(text.as_bytes());
        match json.skip().and_then(|()| json.end()) {
            Ok(()) => Ok(()),
            Err(JsonError::At { offset, reason }) => Err((offset, reason)),
            Err(JsonError::Io(error)) => Err((0, error.to_string())),
        }
    }

    #[test]
    fn what_is_skipped_is_checked() {
        for good in [r#" {"a": [1, -2.5e+3, NaN, true, null, "\u00e9\"\ud83d\ude00"], "b": {}} "#, "[]", "0"]
        {
            assert_eq!(skipped(good), Ok(()), "{good}");
        }
        let bad = [
            ("", 0),
            ("{", 1),
            ("[1 2]", 3),
            ("[01]", 1),
            ("[1.]", 1),
            ("[nul]", 1),
            ("[\"\\x\"]", 3),
            ("[\"a\n\"]", 3),
            ("{1: 2}", 1),
            ("{\"a\" 2}", 5),
            ("[] x", 3),
            ("[--1]", 1),
        ];
        for (text, byte) in bad {
            assert_eq!(skipped(text).map_err(|(offset, _)| offset), Err(byte), "{text}");
        }
        assert!(skipped(&"[".repeat(100_000)).is_err_and(|(_, reason)| reason.contains("128")));
    }

    #[test]
    fn strings_are_unescaped() {
        let read = |text: &str| {
            let (mut json, mut into) = (Json::new(text.as_bytes()), String::new());
            json.text(&mut into, "it").map(|()| into).ok()
        };
        assert_eq!(read(r#""a\n\u00e9\ud83d\ude00\/""#).as_deref(), Some("a\né😀/"));
        for (text, expected) in [
            (r#""\ud83d!""#, "\u{fffd}!"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ude00!""#, "\u{fffd}!"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\ud83d\ud83d\ude00\ude00""#, "\u{fffd}😀\u{fffd}"),
            (r#""\ud83da\ude00""#, "\u{fffd}a\u{fffd}"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
            assert_eq!(skipped(text), Ok(()), "{text}");
        }
        assert_eq!(read(&format!("\"{}\"", "x".repeat(2 << 20))), None);
    }
}
