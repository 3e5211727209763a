//! Decodes the bytes of the ring buffer into events.

use bytemuck::AnyBitPattern;
use capture_wire::{Call, Fault, Name, OffCpu, Process, Run, ShortCall, tag};

use crate::error::CaptureError;

/// One event from the kernel.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A call with its return, or an entry-only probe's hit.
    Call(Call),
    /// An off-CPU interval.
    OffCpu(OffCpu),
    /// A scheduling slice of another task.
    Run(Run),
    /// A fork, exec, exit or library load of a process.
    Process(Process),
    /// A name that a function was given.
    Name(Box<Name>),
    /// A major page fault or an out-of-memory kill.
    Fault(Fault),
}

fn read<T: AnyBitPattern>(bytes: &[u8]) -> Result<T, CaptureError> {
    bytemuck::try_pod_read_unaligned(bytes).map_err(|_| unknown(bytes))
}

#[cold]
fn unknown(bytes: &[u8]) -> CaptureError {
    CaptureError::UnknownEvent { tag: bytes.first().copied().unwrap_or_default(), bytes: bytes.len() }
}

/// Reads a call, with or without the words from memory that most functions do not have.
#[inline(always)]
fn call(bytes: &[u8]) -> Result<Call, CaptureError> {
    // Sizes that the compiler knows are copied in place.
    if let Ok(short) = bytemuck::try_pod_read_unaligned::<ShortCall>(bytes) {
        let mut call: Call = bytemuck::Zeroable::zeroed();
        bytemuck::bytes_of_mut(&mut call)[..size_of::<ShortCall>()]
            .copy_from_slice(bytemuck::bytes_of(&short));
        return Ok(call);
    }
    read(bytes)
}

/// Decodes one event.
///
/// # Errors
/// If its tag or size is unknown: the embedded object and this program would not belong together.
// Inlined, because an event moved is an event copied.
#[inline(always)]
pub(crate) fn decode(bytes: &[u8]) -> Result<Event, CaptureError> {
    Ok(match bytes.first().copied().unwrap_or_default() {
        tag::CALL | tag::POINT => Event::Call(call(bytes)?),
        tag::OFF_CPU => Event::OffCpu(read(bytes)?),
        tag::RUN => Event::Run(read(bytes)?),
        tag::PROCESS => Event::Process(read(bytes)?),
        tag::NAME => Event::Name(Box::new(read(bytes)?)),
        tag::FAULT => Event::Fault(read(bytes)?),
        _ => return Err(unknown(bytes)),
    })
}

/// Reads a thread name of the kernel: the bytes up to the first NUL.
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
