//! ELF files as they are linked: a library with its symbols and its build id, and the object with the eBPF programs.

use super::files::file;

const NAMES: &[u8] = b"\0cudaMalloc\0cudaLaunchKernel\0_dl_debug_state\0_r_debug\0";
/// Where the names begin in [`NAMES`], and the kinds of the symbols: functions, and one variable.
const SYMBOLS: [(u32, u8); 4] = [(1, 0x12), (12, 0x12), (29, 0x12), (45, 0x11)];

/// Appends little-endian numbers.
struct Image(Vec<u8>);

impl Image {
    fn u16(&mut self, numbers: &[u16]) -> &mut Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        self
    }

    fn u32(&mut self, numbers: &[u32]) -> &mut Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        self
    }

    fn u64(&mut self, numbers: &[u64]) -> &mut Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        self
    }

    /// Appends bytes, fills up to a multiple of 8, and returns where the bytes are and how many they are.
    fn part(&mut self, bytes: &[u8]) -> (u64, u64) {
        let start = self.0.len();
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        (start as u64, bytes.len() as u64)
    }
}

/// Returns a shared library: one segment, names, both tables of symbols, a note with the build id, the sections.
fn library() -> Vec<u8> {
    let mut image = Image(vec![0; 64 + 56]);
    let names = image.part(NAMES);
    let mut table = Image(vec![0; 24]);
    for (number, (name, kind)) in SYMBOLS.into_iter().enumerate() {
        table.u32(&[name]).u16(&[kind.into(), 1]).u64(&[0x1100 + 0x40 * number as u64, 32]);
    }
    let (own, dynamic) = (image.part(&table.0), image.part(&table.0));
    let mut note = Image(Vec::new());
    note.u32(&[4, 20, 3]).0.extend(b"GNU\0");
    note.0.extend([0xab; 20]);
    let note = image.part(&note.0);
    let sections_at = image.0.len() as u64;
    // Kind, place, link to the names, size of an entry.
    let sections =
        [(0, (0, 0), 0, 0), (3, names, 0, 0), (2, own, 1, 24), (11, dynamic, 1, 24), (7, note, 0, 0)];
    for (kind, (offset, size), link, entry) in sections {
        image.u32(&[0, kind]).u64(&[0, 0, offset, size]).u32(&[link, u32::from(link > 0)]).u64(&[8, entry]);
    }
    let mut head = Image(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    head.u16(&[3, 62]).u32(&[1]).u64(&[0, 64, sections_at]).u32(&[0]).u16(&[64, 56, 1, 64, 5, 1]);
    head.u32(&[1, 5]).u64(&[0, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000]);
    image.0[..head.0.len()].copy_from_slice(&head.0);
    image.0
}

/// Returns files.
pub fn elf() -> Vec<Vec<u8>> {
    vec![library(), file("capture/ebpf/capture-ebpf.o")]
}
