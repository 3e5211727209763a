//! What `capture` reads of traced processes and their neighbours. It has privileges when it does.

use capture::foreign;
use trace_schema::Redaction;

use crate::{mutate::frames, scratch, target::Outcome};

/// The longest name of a mark, in bytes.
const NAME_BYTES: usize = 200;

/// A file in which probes are to be placed, and whose symbols name the frames of stacks.
pub fn elf(bytes: &[u8]) -> Outcome {
    Outcome::of(foreign::elf(&scratch::write("libcudart.so", bytes)))
}

/// The map of generated code that a runtime writes.
pub fn perf_map(bytes: &[u8]) -> Outcome {
    let addresses = [0, 0x12, 0x7f_0010, 0x7f_0100, 1 << 47, u64::MAX];
    Outcome::of(foreign::perf_map(&String::from_utf8_lossy(bytes), &addresses))
}

/// Datagrams at the socket for marks, one a frame: the process, the microseconds since the one before, the text.
pub fn marks(bytes: &[u8]) -> Outcome {
    let mut ts_ns = 0;
    let datagrams: Vec<(i64, u32, String)> = frames::split(bytes)
        .into_iter()
        .filter_map(|frame| {
            let (&[pid, low, high], text) = frame.split_first_chunk()?;
            ts_ns += 1000 * i64::from(i16::from_le_bytes([low, high]));
            Some((ts_ns, u32::from(pid) % 4, String::from_utf8_lossy(text).into_owned()))
        })
        .collect();
    let rows = foreign::marks(datagrams.iter().map(|(ts_ns, pid, text)| (*ts_ns, *pid, text.as_str())));
    for row in &rows {
        assert!(row.dur.is_none_or(|dur| dur >= 0), "a range ends before it begins: {row:?}");
        let name = row.detail.as_deref().unwrap_or_default();
        assert!(name.len() <= NAME_BYTES, "a name of {} bytes is kept", name.len());
    }
    Outcome::of(!rows.is_empty())
}

/// What the eBPF programs put into the ring buffer, one event a frame.
pub fn kernel_events(bytes: &[u8]) -> Outcome {
    Outcome::of(foreign::events(frames::split(bytes).into_iter()) > 0)
}

/// Texts that describe a process.
pub fn process_texts(bytes: &[u8]) -> Outcome {
    Outcome::of(foreign::process_texts(bytes))
}

/// The command line of a process, of which secrets are taken out.
pub fn command_line(bytes: &[u8]) -> Outcome {
    let words: Vec<String> = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    for redaction in [Redaction::Secrets, Redaction::Text("a".to_owned()), Redaction::All, Redaction::Off] {
        let shown = redaction.words(&words);
        assert!(shown.len() <= words.len().max(2), "{redaction}: {words:?} becomes {shown:?}");
    }
    Outcome::of(!words.is_empty())
}
