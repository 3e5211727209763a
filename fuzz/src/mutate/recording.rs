//! Changes of recordings: of what stands in a frame, with its length and its checksum made right again.

use analyze_run::random::Random;
use trace_writer::RECORDING_START;

use super::bytes;

/// Size of what precedes the content of a frame: its beginning, its length and its checksum.
const HEAD_BYTES: usize = 12;

/// Returns the contents of the frames, and what follows the last whole one.
fn split(data: &[u8]) -> (Vec<Vec<u8>>, &[u8]) {
    let mut frames = Vec::new();
    let mut rest = data;
    while let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>()
        && head.starts_with(RECORDING_START)
    {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some((frame, later)) = after.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = later;
    }
    (frames, rest)
}

fn join(frames: &[Vec<u8>], rest: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    for frame in frames {
        data.extend(RECORDING_START);
        data.extend((frame.len() as u32).to_le_bytes());
        data.extend(crc32fast::hash(frame).to_le_bytes());
        data.extend(frame);
    }
    data.extend(rest);
    data
}

/// Changes a recording.
pub fn recording(data: &mut Vec<u8>, random: &mut Random) {
    let (mut frames, rest) = split(data);
    if frames.is_empty() || random.below(10) == 0 {
        return bytes::bytes(data, random);
    }
    let (at, other) = (random.below(frames.len()), random.below(frames.len()));
    match random.below(10) {
        0 => drop(frames.remove(at)),
        1 => {
            let copy = frames[at].clone();
            frames.insert(other, copy);
        }
        2 => frames.swap(at, other),
        3 | 4 => bytes::words(&mut frames[at], random),
        _ => bytes::bytes(&mut frames[at], random),
    }
    *data = join(&frames, rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_right_length_and_checksum() {
        let whole = join(&[b"one".to_vec(), Vec::new()], b"rest");
        assert_eq!(split(&whole), (vec![b"one".to_vec(), Vec::new()], &b"rest"[..]));
        assert_eq!(&whole[..8], b"INQr\x03\0\0\0");
        assert_eq!(whole[8..12], crc32fast::hash(b"one").to_le_bytes());
    }
}
