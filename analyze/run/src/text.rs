//! Text from traces, made harmless where it reaches a terminal.

use std::io::{self, Write};

pub use trace_schema::harmless;

/// Passes text on: made harmless to a terminal, and exact to anything else.
#[derive(Debug)]
pub struct Shown<W: Write> {
    out: W,
    is_terminal: bool,
    /// The bytes of a character that is not whole so far.
    begun: Vec<u8>,
}

impl<W: Write> Shown<W> {
    /// Creates a writer to `out`, which is a terminal or not.
    pub fn new(out: W, is_terminal: bool) -> Self {
        Self { out, is_terminal, begun: Vec::new() }
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        self.begun.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.begun) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.begun.len(),
        };
        let text: Vec<u8> = self.begun.drain(..whole).collect();
        self.out.write_all(harmless(&String::from_utf8_lossy(&text)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out if a text is written in pieces of `size` bytes.
    fn written(text: &str, is_terminal: bool, size: usize) -> String {
        let mut found = Vec::new();
        let mut out = Shown::new(&mut found, is_terminal);
        text.as_bytes().chunks(size).for_each(|piece| out.write_all(piece).expect("written"));
        String::from_utf8(found).expect("text")
    }

    #[test]
    fn a_terminal_gets_no_escape_sequence_and_a_file_every_byte() {
        let text = "op,größe\n\"\u{1b}[2J\u{202e}日本\u{9b}\",1\n";
        for size in [1, 2, 3, 5, 100] {
            assert_eq!(written(text, true, size), "op,größe\n\"\\u001b[2J\\u202e日本\\u009b\",1\n", "{size}");
            assert_eq!(written(text, false, size), text, "{size}");
        }
    }
}
