//! Changes of pickles: of whole opcodes and of their arguments.

use std::ops::Range;

use analyze_run::random::Random;

use super::bytes;

/// What follows an opcode.
#[derive(Clone, Copy)]
enum Argument {
    /// So many bytes.
    Bytes(usize),
    /// A length of so many bytes, and as many bytes as it says.
    Counted(usize),
    /// So many lines.
    Lines(usize),
}

/// Every opcode of protocols 0 to 5, and what follows it.
const OPCODES: [(u8, Argument); 68] = {
    use Argument::{Bytes, Counted, Lines};
    [
        (b'(', Bytes(0)),
        (b'.', Bytes(0)),
        (b'0', Bytes(0)),
        (b'1', Bytes(0)),
        (b'2', Bytes(0)),
        (b'F', Lines(1)),
        (b'I', Lines(1)),
        (b'J', Bytes(4)),
        (b'K', Bytes(1)),
        (b'L', Lines(1)),
        (b'M', Bytes(2)),
        (b'N', Bytes(0)),
        (b'P', Lines(1)),
        (b'Q', Bytes(0)),
        (b'R', Bytes(0)),
        (b'S', Lines(1)),
        (b'T', Counted(4)),
        (b'U', Counted(1)),
        (b'V', Lines(1)),
        (b'X', Counted(4)),
        (b'a', Bytes(0)),
        (b'b', Bytes(0)),
        (b'c', Lines(2)),
        (b'd', Bytes(0)),
        (b'}', Bytes(0)),
        (b'e', Bytes(0)),
        (b'g', Lines(1)),
        (b'h', Bytes(1)),
        (b'i', Lines(2)),
        (b'j', Bytes(4)),
        (b'l', Bytes(0)),
        (b']', Bytes(0)),
        (b'o', Bytes(0)),
        (b'p', Lines(1)),
        (b'q', Bytes(1)),
        (b'r', Bytes(4)),
        (b's', Bytes(0)),
        (b't', Bytes(0)),
        (b')', Bytes(0)),
        (b'u', Bytes(0)),
        (b'G', Bytes(8)),
        (b'B', Counted(4)),
        (b'C', Counted(1)),
        (0x80, Bytes(1)),
        (0x81, Bytes(0)),
        (0x82, Bytes(1)),
        (0x83, Bytes(2)),
        (0x84, Bytes(4)),
        (0x85, Bytes(0)),
        (0x86, Bytes(0)),
        (0x87, Bytes(0)),
        (0x88, Bytes(0)),
        (0x89, Bytes(0)),
        (0x8a, Counted(1)),
        (0x8b, Counted(4)),
        (0x8c, Counted(1)),
        (0x8d, Counted(8)),
        (0x8e, Counted(8)),
        (0x8f, Bytes(0)),
        (0x90, Bytes(0)),
        (0x91, Bytes(0)),
        (0x92, Bytes(0)),
        (0x93, Bytes(0)),
        (0x94, Bytes(0)),
        (0x95, Bytes(8)),
        (0x96, Counted(8)),
        (0x97, Bytes(0)),
        (0x98, Bytes(0)),
    ]
};

/// Returns the length of an opcode with its argument; `None` if it is cut off or is no opcode.
fn length(data: &[u8]) -> Option<usize> {
    let code = data.first()?;
    let (_, argument) = OPCODES.iter().find(|(known, _)| known == code)?;
    let after = &data[1..];
    let argument_bytes = match *argument {
        Argument::Bytes(count) => count,
        Argument::Counted(width) => {
            let count =
                after.get(..width)?.iter().rev().fold(0_u64, |count, byte| count << 8 | u64::from(*byte));
            width.checked_add(usize::try_from(count).ok()?)?
        }
        Argument::Lines(count) => {
            let ends = after.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            ends.map(|(at, _)| at + 1).nth(count - 1)?
        }
    };
    (argument_bytes <= after.len()).then_some(1 + argument_bytes)
}

/// Returns where the opcodes are, up to the first that is none.
fn opcodes(data: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(length) = data.get(at..).and_then(length) {
        found.push(at..at + length);
        at += length;
    }
    found
}

/// Returns an opcode with an argument.
fn made(random: &mut Random) -> Vec<u8> {
    let (code, argument) = OPCODES[random.below(OPCODES.len())];
    let number = bytes::number(random);
    let mut made = vec![code];
    match argument {
        Argument::Bytes(count) => made.extend(&number.to_le_bytes()[..count]),
        Argument::Counted(width) => {
            let count = random.below(12);
            // Now and then it says more than there is.
            let said = if random.below(6) == 0 { number } else { count as u64 };
            made.extend(&said.to_le_bytes()[..width]);
            made.extend((0..count).map(|_| random.below(256) as u8));
        }
        Argument::Lines(count) => {
            (0..count).for_each(|_| made.extend(format!("{}\n", number as i64).bytes()))
        }
    }
    made
}

/// Changes a pickle.
pub fn pickle(data: &mut Vec<u8>, random: &mut Random) {
    let opcodes = opcodes(data);
    if opcodes.is_empty() || random.below(10) == 0 {
        return bytes::bytes(data, random);
    }
    let mut any = || opcodes[random.below(opcodes.len())].clone();
    let (at, other) = (any(), any());
    let some = at.start.min(other.start)..at.end.max(other.end);
    match random.below(8) {
        0 => drop(data.drain(at)),
        1 => {
            let copy = data[at].to_vec();
            data.splice(other.start..other.start, copy);
        }
        2 => {
            let copy = data[at].to_vec();
            data.splice(other, copy);
        }
        3 if some.len() < 4096 => {
            // A part of the program runs again.
            let copy = data[some].to_vec();
            data.splice(at.start..at.start, copy);
        }
        4 | 5 => {
            let new = made(random);
            data.splice(at.start..at.start, new);
        }
        6 => {
            let new = made(random);
            data.splice(at, new);
        }
        _ => bytes::put(data, at.start + random.below(at.len()), random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pickle_is_split_into_its_opcodes() {
        let pickle = b"\x80\x04\x8c\x03abc\x94I12\n(cos\nsystem\nK\x07t.";
        let lengths: Vec<usize> = opcodes(pickle).into_iter().map(|opcode| opcode.len()).collect();
        assert_eq!(lengths, [2, 5, 1, 4, 1, 11, 2, 1, 1]);
        assert!(opcodes(b"\x8c\xffabc").is_empty());
    }
}
