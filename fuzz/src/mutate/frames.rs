//! Changes of a sequence of frames, each of which begins with its length in two bytes: what the ring buffer of the eBPF programs
//! hands over, one event a frame.

use analyze_run::random::Random;

use super::bytes;

/// Returns the contents of the frames; the last one may be cut off.
pub fn split(data: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk() {
        let (frame, later) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
        found.push(frame);
        rest = later;
    }
    found
}

/// Returns frames with these contents.
pub fn join<T: AsRef<[u8]>>(frames: &[T]) -> Vec<u8> {
    let mut data = Vec::new();
    for frame in frames {
        let frame = frame.as_ref();
        let frame = &frame[..frame.len().min(usize::from(u16::MAX))];
        data.extend((frame.len() as u16).to_le_bytes());
        data.extend(frame);
    }
    data
}

/// Changes a frame within its length, or the sequence.
pub fn frames(data: &mut Vec<u8>, random: &mut Random) {
    let mut frames: Vec<Vec<u8>> = split(data).into_iter().map(<[u8]>::to_vec).collect();
    if frames.is_empty() || random.below(12) == 0 {
        return bytes::bytes(data, random);
    }
    let (at, other) = (random.below(frames.len()), random.below(frames.len()));
    match random.below(8) {
        0 => drop(frames.remove(at)),
        1 => {
            let copy = frames[at].clone();
            frames.insert(other, copy);
        }
        2 => frames.swap(at, other),
        3 => bytes::bytes(&mut frames[at], random),
        _ if !frames[at].is_empty() => {
            let place = random.below(frames[at].len());
            bytes::put(&mut frames[at], place, random);
        }
        _ => {}
    }
    *data = join(&frames);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_and_joined() {
        let whole = join(&[&b"one"[..], b"", b"three"]);
        assert_eq!(split(&whole), [&b"one"[..], b"", b"three"]);
        assert_eq!(split(&whole[..whole.len() - 2]), [&b"one"[..], b"", b"thr"]);
        assert_eq!(split(b"\x05"), Vec::<&[u8]>::new());
    }
}
