//! Bytes from the ring buffer to events.

use bytemuck::AnyBitPattern;
use capture_wire::{Call, Fault, Name, OffCpu, Process, Run, tag};

use crate::error::CaptureError;

/// One event from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A call with its return, or an entry-only probe's hit.
    Call(Call),
    /// An off-CPU interval.
    OffCpu(OffCpu),
    /// A stint of another task.
    Run(Run),
    /// Life of a process.
    Process(Process),
    /// A string.
    Name(Name),
    /// A major page fault or an out-of-memory kill.
    Fault(Fault),
}

fn read<T: AnyBitPattern>(bytes: &[u8]) -> Option<T> {
    bytemuck::try_pod_read_unaligned(bytes).ok()
}

/// Reads one event.
///
/// # Errors
/// If its tag or size is unknown: the embedded object and this program would not belong together.
pub(crate) fn decode(bytes: &[u8]) -> Result<Event, CaptureError> {
    let tag = bytes.first().copied().unwrap_or_default();
    let event = match tag {
        tag::CALL | tag::POINT => read(bytes).map(Event::Call),
        tag::OFF_CPU => read(bytes).map(Event::OffCpu),
        tag::RUN => read(bytes).map(Event::Run),
        tag::PROCESS => read(bytes).map(Event::Process),
        tag::NAME => read(bytes).map(Event::Name),
        tag::FAULT => read(bytes).map(Event::Fault),
        _ => None,
    };
    event.ok_or(CaptureError::UnknownEvent { tag, bytes: bytes.len() })
}

/// A kernel thread name: bytes up to the first NUL.
pub(crate) fn comm(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_tags_are_checked() {
        let mut bytes = vec![0u8; size_of::<Run>()];
        assert!(decode(&[]).is_err());
        assert!(decode(&bytes).is_err(), "tag 0 is no event");
        bytes[0] = tag::RUN;
        assert!(matches!(decode(&bytes), Ok(Event::Run(_))));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err(), "a short event is refused");
    }

    #[test]
    fn names_end_at_nul() {
        assert_eq!(comm(b"python3\0junk"), "python3");
        assert_eq!(comm(b"sixteen-bytes-xx"), "sixteen-bytes-xx");
    }
}
