//! Changes of Parquet files: of the footer, whose length is made right again, and of the pages.
//!
//! ```text
//! PAR1 │ pages … │ footer │ length of the footer │ PAR1
//!   4                            4 (LE)             4
//! ```

use analyze_run::random::Random;

use super::bytes;

const MAGIC: &[u8] = b"PAR1";
/// Size of what follows the footer, in bytes.
const TAIL_BYTES: usize = 8;

/// Returns where the footer begins and ends.
fn footer(data: &[u8]) -> Option<(usize, usize)> {
    let end = data.len().checked_sub(TAIL_BYTES)?;
    let length = u32::from_le_bytes(*data[end..].first_chunk()?) as usize;
    Some((end.checked_sub(length).filter(|start| *start >= MAGIC.len())?, end))
}

/// Changes a number of the footer, which has seven bits a byte.
fn varint(data: &mut Vec<u8>, random: &mut Random) {
    if data.is_empty() {
        return;
    }
    let at = random.below(data.len());
    let old_bytes = data[at..].iter().position(|byte| byte & 0x80 == 0).map_or(1, |end| end + 1);
    let mut new = Vec::new();
    let mut left = bytes::number(random);
    while left >= 0x80 {
        new.push(left as u8 | 0x80);
        left >>= 7;
    }
    new.push(left as u8);
    data.splice(at..(at + old_bytes.min(10)).min(data.len()), new);
}

/// Changes a file.
pub fn parquet(data: &mut Vec<u8>, random: &mut Random) {
    let Some((start, end)) = footer(data) else { return bytes::bytes(data, random) };
    match random.below(10) {
        0 => bytes::bytes(data, random),
        1..=3 => {
            let at = MAGIC.len() + random.below((start - MAGIC.len()).max(1));
            match random.below(4) {
                0 => bytes::change(data, at..at + 1, random),
                _ => bytes::put(data, at, random),
            }
        }
        change => {
            let mut content = data[start..end].to_vec();
            if change < 7 {
                varint(&mut content, random)
            } else {
                bytes::bytes(&mut content, random)
            }
            data.truncate(start);
            data.extend(&content);
            data.extend((content.len() as u32).to_le_bytes());
            data.extend(MAGIC);
        }
    }
}
