//! Reads the files that a person writes: gates, queries, requests. A file that is none of these is refused before it takes all
//! memory.

use std::{fs::File, io::Read, path::Path};

use crate::error::AnalyzeError;

/// The largest size of such a file, in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

/// Reads the file at `path`.
///
/// # Errors
/// Returns an error if the file cannot be read, is longer than [`MAX_BYTES`], or is not UTF-8.
pub fn read(path: &Path) -> Result<String, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    from(&mut File::open(path).map_err(io)?, path)
}

/// Reads a text from `source`, which errors call `path`.
///
/// # Errors
/// Returns an error if the source cannot be read, is longer than [`MAX_BYTES`], or is not UTF-8.
pub fn from(source: &mut impl Read, path: &Path) -> Result<String, AnalyzeError> {
    let mut bytes = Vec::new();
    source
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })?;
    let wrong = |why: String| AnalyzeError::Query(format!("{}: {why}", path.display()));
    if bytes.len() as u64 > MAX_BYTES {
        return Err(wrong(format!("the text is longer than the limit text_file_bytes of {MAX_BYTES}")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        wrong(format!("byte {offset}: the text is no UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let said =
            |bytes: &mut dyn Read| from(&mut { bytes }, Path::new("a.sql")).map_err(|why| why.to_string());
        assert_eq!(said(&mut &b"SELECT 1"[..]), Ok("SELECT 1".to_owned()));
        assert_eq!(said(&mut &b"SEL\xff"[..]), Err("a.sql: byte 3: the text is no UTF-8".to_owned()));
        let why = said(&mut std::io::repeat(b'x')).unwrap_err();
        assert!(why.contains("the limit text_file_bytes of 16777216"), "{why}");
    }
}
