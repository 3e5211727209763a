//! Changes of ELF files: of the headers, which say where everything is, and of the tables of symbols.

use analyze_run::random::Random;

use super::bytes;

/// Size of the file's header in bytes; program headers follow it.
const HEAD_BYTES: usize = 64;
/// Size of a section's header in bytes.
const SECTION_BYTES: usize = 64;

/// Changes a file.
pub fn elf(data: &mut Vec<u8>, random: &mut Random) {
    let sections =
        data.get(40..48).and_then(|bytes| usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok());
    let sections = sections.filter(|start| *start < data.len());
    match (random.below(4), sections) {
        (0, _) => bytes::bytes(data, random),
        (1, _) if data.len() > 2 * HEAD_BYTES => bytes::put(data, 16 + random.below(HEAD_BYTES + 40), random),
        (2, Some(start)) => {
            let field = start + random.below((data.len() - start).div_ceil(8)) * 8;
            bytes::put(data, field, random);
        }
        (3, Some(start)) if start + SECTION_BYTES <= data.len() => {
            let mut table = data.split_off(start);
            bytes::records(&mut table, SECTION_BYTES, random);
            data.extend(table);
        }
        _ => bytes::words(data, random),
    }
}
