//! Changes of what is within gzip, and of gzip itself.

use std::io::{Read, Write};

use analyze_run::random::Random;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

use super::bytes;

/// The largest content that is unpacked, in bytes.
const UNPACKED_BYTES: u64 = 1 << 20;

/// Packs bytes.
pub fn packed(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(content).and_then(|()| packed.finish()).expect("memory takes all bytes")
}

/// Unpacks bytes, as far as they can be unpacked.
pub fn unpacked(data: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    // What was read before an error stays.
    let _ = MultiGzDecoder::new(data).take(UNPACKED_BYTES).read_to_end(&mut content);
    content
}

/// Changes gzip, or what is within with another mutator.
pub fn with(data: &mut Vec<u8>, mutate: fn(&mut Vec<u8>, &mut Random), random: &mut Random) {
    if !data.starts_with(&[0x1f, 0x8b]) {
        return mutate(data, random);
    }
    let mut content = unpacked(data);
    match random.below(8) {
        0 => bytes::bytes(data, random),
        // Two members, one after the other.
        1 => {
            let (first, second) = content.split_at(random.below(content.len() + 1));
            *data = [packed(first), packed(second)].concat();
        }
        2 => *data = content,
        _ => {
            mutate(&mut content, random);
            *data = packed(&content);
        }
    }
}
