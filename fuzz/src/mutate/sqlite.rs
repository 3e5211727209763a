//! Changes of SQLite databases: of a page's header, of where its cells are, and of the cells themselves.
//!
//! ```text
//! page   │ kind, counts (8 or 12 bytes) │ places of the cells (2 bytes each) │ … free … │ cells │
//! ```
//! The first page has the file's header of 100 bytes before its own. Nothing in a database has a checksum.

use analyze_run::random::Random;

use super::{bytes, text};

/// Size of the file's header in bytes.
const FILE_HEAD_BYTES: usize = 100;
/// The largest size of a page's header in bytes.
const PAGE_HEAD_BYTES: usize = 12;

/// Changes a database.
pub fn sqlite(data: &mut Vec<u8>, random: &mut Random) {
    let Some(size) = data.get(16..18).map(|size| usize::from(size[0]) << 8 | usize::from(size[1])) else {
        return bytes::bytes(data, random);
    };
    // 1 stands for 65,536.
    let size = if size < 512 { 65_536 } else { size };
    let count = data.len() / size;
    if count == 0 || random.below(10) == 0 {
        return bytes::bytes(data, random);
    }
    let page = random.below(count);
    let start = page * size;
    let head = if page == 0 { FILE_HEAD_BYTES } else { 0 };
    match random.below(8) {
        0 => bytes::put(data, random.below(FILE_HEAD_BYTES), random),
        1 => {
            let copy = data[start..start + size].to_vec();
            let other = random.below(count) * size;
            data[other..other + size].copy_from_slice(&copy);
        }
        2 => bytes::put(data, start + head + random.below(PAGE_HEAD_BYTES), random),
        3 => {
            let cells = usize::from(data[start + head + 3]) << 8 | usize::from(data[start + head + 4]);
            let at = start + head + 8 + 2 * random.below(cells.clamp(1, 64));
            bytes::put(data, at, random);
        }
        4 => {
            // The statements that created the tables.
            let mut first: Vec<u8> = data[..size].to_vec();
            let words = text::runs(&first, |byte| byte.is_ascii_alphabetic() || byte == b'_');
            if let Some(word) = words.get(random.below(words.len().max(1))) {
                first[word.clone()].rotate_left(1);
            }
            data[..size].copy_from_slice(&first);
        }
        _ => {
            // Cells grow from the end of the page.
            let at = start + size - 1 - random.below(size / 2);
            match random.below(3) {
                0 => bytes::put(data, at, random),
                1 => data[at] ^= 1 << random.below(8),
                _ => data[at] = random.below(256) as u8,
            }
        }
    }
}
