//! Detects the format of another tool's trace: that of a file by its first bytes, that of a folder by its
//! files.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::{Format, compressed, events, nsys, perfetto, sched, sqlite};

/// Number of decompressed bytes that are examined.
const LOOK_BYTES: u64 = 1 << 16;
const SQLITE: &[u8] = b"SQLite format 3\0";
const PARQUET: &[u8] = b"PAR1";

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Returns the format of a file or folder that can be imported, or `None` if it is not recognized.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn sniff(path: &Path) -> io::Result<Option<Format>> {
    if path.is_dir() {
        return Ok(nsys::is_export(path).then_some(Format::Nsys));
    }
    let mut first = Vec::new();
    File::open(path)?.take(SQLITE.len() as u64).read_to_end(&mut first)?;
    if first.starts_with(PARQUET) {
        return Ok(None);
    }
    if first == SQLITE {
        return Ok(sqlite::sniff(path));
    }
    let mut bytes = Vec::new();
    // A file that cannot be decompressed is not recognized.
    if let Err(error) = compressed::open(path)?.0.take(LOOK_BYTES).read_to_end(&mut bytes) {
        let is_damage = matches!(
            error.kind(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        );
        return if is_damage { Ok(None) } else { Err(error) };
    }
    Ok(text_or_pickle(&bytes))
}

fn text_or_pickle(bytes: &[u8]) -> Option<Format> {
    let is_snapshot = || ["device_traces", "segments"].iter().any(|word| contains(bytes, word));
    match bytes {
        // A pickle of protocol 2 or later begins with the protocol's number; an earlier one begins with a
        // dict.
        [0x80, 2..=5, ..] if is_snapshot() => Some(Format::TorchSnapshot),
        [b'(', b'd', ..] | [b'}', ..] if is_snapshot() => Some(Format::TorchSnapshot),
        _ => {
            let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace())?;
            if matches!(bytes[start], b'{' | b'[')
                && (contains(bytes, "\"traceEvents\"") || contains(bytes, "\"ph\""))
            {
                return Some(Format::Kineto);
            }
            if events::is_text(&bytes[start..]) {
                return Some(Format::Events);
            }
            if perfetto::sniff(bytes) {
                return Some(Format::Perfetto);
            }
            sched::sniff(bytes).map(|source| match source {
                sched::Source::Perf => Format::Perf,
                sched::Source::Ftrace => Format::Ftrace,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_content() {
        let cases: [(&[u8], Option<Format>); 12] = [
            (b" {\n\"schemaVersion\": 1, \"traceEvents\": [", Some(Format::Kineto)),
            (b"[{\"ph\": \"X\"", Some(Format::Kineto)),
            (b"{\"a\": 1}", None),
            (b"{\"ts\":1,\"kind\":\"call\",\"op\":\"\",\"pid\":1,\"tid\":1}\n", Some(Format::Events)),
            (b"ts,dur,kind,op,pid,tid\n", Some(Format::Events)),
            (b"ts,dur,op\nkind,pid,tid\n", None),
            (b"", None),
            (b"   ", None),
            (b"\x80\x04\x95}\x8c\x08segments", Some(Format::TorchSnapshot)),
            (b"(dp0\nVdevice_traces\n", Some(Format::TorchSnapshot)),
            (b"\x80\x04K\x01.", None),
            (b"segments of a text", None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text_or_pickle(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
