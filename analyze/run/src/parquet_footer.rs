//! Checks the footer of a Parquet file before Parquet's own reader decodes it.
//!
//! That reader takes memory for as many row groups and columns as a footer states, follows nested columns by recursion, and
//! passes over fields that it does not know as often as they say. Whoever made the file could so end the program, which no
//! error reports, or keep it busy for years. The walk here reads the same fields as that reader does, and with the same types;
//! a field that it knows and that has another type is refused, so that both agree on where every field begins.
//!
//! ```text
//! FileMetaData { version, [SchemaElement …], rows, [RowGroup { [ColumnChunk …] … } …], [KeyValue …], … }   (Thrift, compact)
//! ```

use std::{fs::File, os::unix::fs::FileExt};

/// Size in bytes of what follows the footer: its length and the magic.
const TAIL_BYTES: u64 = 8;
/// The last bytes of a file.
const MAGIC: &[u8] = b"PAR1";
/// The longest footer that is read, in bytes. A run of a billion rows has a few mebibytes.
const FOOTER_BYTES: u64 = 256 << 20;
/// Columns and groups of columns. A run has 45.
const SCHEMA_ELEMENTS_COUNT: usize = 4096;
/// Groups of columns within each other. A run has none.
const SCHEMA_NESTING_COUNT: usize = 16;
/// Row groups: Parquet numbers them with 16 bits.
const ROW_GROUPS_COUNT: usize = i16::MAX as usize;
/// Structs and lists within each other. Parquet's own have at most ten.
const NESTING_COUNT: u32 = 32;

/// The type of a field that Parquet's reader knows.
pub(crate) enum Ty {
    Bool,
    Byte,
    /// An integer or an enum.
    Number,
    /// A number that the walk keeps at this place of `kept`.
    Kept(usize),
    Double,
    Binary,
    List(&'static Ty),
    Struct(&'static [(i16, Ty)]),
    /// The list of all columns and groups of columns.
    Schema,
    /// The list of all row groups.
    RowGroups,
}

use Ty::{Binary, Bool, Byte, Double, Kept, List, Number, RowGroups, Schema, Struct};

/// The place of the number of columns in a group of columns.
const CHILDREN: usize = 0;

const EMPTY: Ty = Struct(&[]);
const TIME_UNIT: Ty = Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]);
const TIME: Ty = Struct(&[(1, Bool), (2, TIME_UNIT)]);
const LOGICAL_TYPE: Ty = Struct(&[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Struct(&[(1, Number), (2, Number)])),
    (6, EMPTY),
    (7, TIME),
    (8, TIME),
    (10, Struct(&[(1, Byte), (2, Bool)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Struct(&[(1, Byte)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, Number)])),
]);
const SCHEMA_ELEMENT: &[(i16, Ty)] = &[
    (1, Number),
    (2, Number),
    (3, Number),
    (4, Binary),
    (5, Kept(CHILDREN)),
    (6, Number),
    (7, Number),
    (8, Number),
    (9, Number),
    (10, LOGICAL_TYPE),
];
const KEY_VALUE: Ty = Struct(&[(1, Binary), (2, Binary)]);
/// The statistics of a column or a page.
pub(crate) const STATISTICS: Ty = Struct(&[
    (1, Binary),
    (2, Binary),
    (3, Number),
    (4, Number),
    (5, Binary),
    (6, Binary),
    (7, Bool),
    (8, Bool),
]);
const BOUNDING_BOX: Ty = Struct(&[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
]);
const COLUMN: Ty = Struct(&[
    (1, Number),
    (2, List(&Number)),
    (3, List(&Binary)),
    (4, Number),
    (5, Number),
    (6, Number),
    (7, Number),
    (8, List(&KEY_VALUE)),
    (9, Number),
    (10, Number),
    (11, Number),
    (12, STATISTICS),
    (13, List(&Struct(&[(1, Number), (2, Number), (3, Number)]))),
    (14, Number),
    (15, Number),
    (16, Struct(&[(1, Number), (2, List(&Number)), (3, List(&Number))])),
    (17, Struct(&[(1, BOUNDING_BOX), (2, List(&Number))])),
]);
const COLUMN_CHUNK: Ty =
    Struct(&[(1, Binary), (2, Number), (3, COLUMN), (4, Number), (5, Number), (6, Number), (7, Number)]);
const ROW_GROUP: Ty = Struct(&[
    (1, List(&COLUMN_CHUNK)),
    (2, Number),
    (3, Number),
    (4, List(&Struct(&[(1, Number), (2, Bool), (3, Bool)]))),
    (5, Number),
    (6, Number),
    (7, Number),
]);
const FILE: &[(i16, Ty)] = &[
    (1, Number),
    (2, Schema),
    (3, Number),
    (4, RowGroups),
    (5, List(&KEY_VALUE)),
    (6, Binary),
    (7, List(&Struct(&[(1, EMPTY)]))),
];

/// Types as they are written.
mod wire {
    pub(super) const STOP: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

/// The number of numbers that a walk can keep.
pub(crate) const KEPT_COUNT: usize = 4;

/// The part of a structure that has not been read yet.
pub(crate) struct Walk<'a> {
    pub(crate) rest: &'a [u8],
    /// The numbers that were read last of those that are kept, and 0 for the others.
    pub(crate) kept: [i64; KEPT_COUNT],
}

/// Decodes a number whose sign is in its last bit.
fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn deeper(depth: u32) -> Result<u32, String> {
    match depth < NESTING_COUNT {
        true => Ok(depth + 1),
        false => Err(format!("more structs and lists are within each other than {NESTING_COUNT}")),
    }
}

impl<'a> Walk<'a> {
    /// Begins at the first of some bytes.
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest, kept: [0; KEPT_COUNT] }
    }

    fn skip(&mut self, count: u64) -> Result<(), String> {
        let all = self.rest;
        let rest = usize::try_from(count).ok().and_then(|count| all.get(count..));
        self.rest = rest.ok_or_else(|| format!("{count} bytes where {} are left", all.len()))?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (byte, rest) = self.rest.split_first().ok_or("it is cut off")?;
        self.rest = rest;
        Ok(*byte)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for place in 0..10 {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number has more than ten bytes".to_owned())
    }

    fn binary(&mut self) -> Result<(), String> {
        let length = self.varint()?;
        self.skip(length)
    }

    /// Reads the head of a list, and returns the type and the number of its elements, each of which takes at least a byte.
    fn list(&mut self) -> Result<(u8, usize), String> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        match usize::try_from(count).ok().filter(|count| *count <= self.rest.len()) {
            Some(count) => Ok((head & 0xf, count)),
            None => Err(format!("a list of {count} elements where {} bytes are left", self.rest.len())),
        }
    }

    /// Reads the fields of a struct up to its end.
    pub(crate) fn fields(&mut self, known: &[(i16, Ty)], depth: u32) -> Result<(), String> {
        let depth = deeper(depth)?;
        let mut last = 0_i16;
        loop {
            let head = self.byte()?;
            let found = head & 0xf;
            if found == wire::STOP {
                return Ok(());
            }
            last = match head >> 4 {
                // Parquet's reader keeps the low bits of a longer number, too.
                0 => signed(self.varint()?) as i16,
                step => last.checked_add(step.into()).ok_or("a field has a number beyond all")?,
            };
            match known.iter().find(|(id, _)| *id == last) {
                Some((_, ty)) => self.known(ty, found, depth)?,
                None => self.unknown(found, depth)?,
            }
        }
    }

    /// Reads the value of a field, or an element of a list, of which Parquet's reader expects a type.
    fn known(&mut self, ty: &Ty, found: u8, depth: u32) -> Result<(), String> {
        let is_expected = match ty {
            Bool => matches!(found, wire::TRUE | wire::FALSE),
            Byte => found == wire::BYTE,
            Number | Kept(_) => (wire::I16..=wire::I64).contains(&found),
            Double => found == wire::DOUBLE,
            Binary => found == wire::BINARY,
            List(_) | Schema | RowGroups => found == wire::LIST,
            Struct(_) => found == wire::STRUCT,
        };
        if !is_expected {
            return Err(format!("a field has the type {found}, which it cannot have"));
        }
        match ty {
            Bool => Ok(()),
            Byte => self.skip(1),
            Number => self.varint().map(drop),
            Kept(place) => {
                let number = signed(self.varint()?);
                if let Some(kept) = self.kept.get_mut(*place) {
                    *kept = number;
                }
                Ok(())
            }
            Double => self.skip(8),
            Binary => self.binary(),
            List(element) => {
                let depth = deeper(depth)?;
                let (found, count) = self.list()?;
                (0..count).try_for_each(|_| self.known(element, found, depth))
            }
            Struct(fields) => self.fields(fields, depth),
            Schema => self.schema(depth),
            RowGroups => {
                let (found, count) = self.list()?;
                if count > ROW_GROUPS_COUNT {
                    return Err(format!("{count} row groups are more than the limit of {ROW_GROUPS_COUNT}"));
                }
                (0..count).try_for_each(|_| self.known(&ROW_GROUP, found, depth))
            }
        }
    }

    /// Reads the columns, which stand in the order of a walk through their groups.
    fn schema(&mut self, depth: u32) -> Result<(), String> {
        let (found, count) = self.list()?;
        if count > SCHEMA_ELEMENTS_COUNT {
            return Err(format!("{count} columns are more than the limit of {SCHEMA_ELEMENTS_COUNT}"));
        }
        // How many columns are still to come in each group that is open.
        let mut open: Vec<usize> = Vec::new();
        for _ in 0..count {
            self.kept[CHILDREN] = 0;
            self.known(&Struct(SCHEMA_ELEMENT), found, depth)?;
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            // Parquet's reader keeps the low bits of a longer number.
            let said = self.kept[CHILDREN] as i32;
            let children = usize::try_from(said).ok().filter(|children| *children < count);
            let children = children.ok_or_else(|| format!("a group has {said} columns"))?;
            if children > 0 {
                open.push(children);
            }
            if open.len() > SCHEMA_NESTING_COUNT {
                return Err(format!("more columns are within each other than {SCHEMA_NESTING_COUNT}"));
            }
        }
        Ok(())
    }

    /// Reads the value of a field that Parquet's reader passes over.
    fn unknown(&mut self, found: u8, depth: u32) -> Result<(), String> {
        match found {
            wire::TRUE | wire::FALSE => Ok(()),
            wire::BYTE => self.skip(1),
            wire::I16..=wire::I64 => self.varint().map(drop),
            wire::DOUBLE => self.skip(8),
            wire::BINARY => self.binary(),
            wire::LIST | wire::SET => {
                let depth = deeper(depth)?;
                let (found, count) = self.list()?;
                // Those readers that exist disagree on how many bytes such an element has.
                if count > 0 && matches!(found, wire::TRUE | wire::FALSE) {
                    return Err("a list has truth values, which no list of Parquet's has".to_owned());
                }
                (0..count).try_for_each(|_| self.unknown(found, depth))
            }
            wire::STRUCT => self.fields(&[], depth),
            _ => Err(format!("a field has the type {found}, which no field of Parquet's has")),
        }
    }
}

/// Checks that the footer of a file can be decoded in memory and time that are in proportion to its size. A file that has no
/// footer passes: Parquet's reader says what it is instead.
///
/// # Errors
/// Returns what is wrong with the footer.
pub fn check(file: &File) -> Result<(), String> {
    let wrong = |why: String| format!("its footer: {why}");
    let io = |error: std::io::Error| wrong(error.to_string());
    let Some(tail_start) = file.metadata().map_err(io)?.len().checked_sub(TAIL_BYTES) else { return Ok(()) };
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_start).map_err(io)?;
    let Some((length, MAGIC)) = tail.split_first_chunk() else { return Ok(()) };
    let length = u64::from(u32::from_le_bytes(*length));
    let Some(start) = tail_start.checked_sub(length) else { return Ok(()) };
    if length > FOOTER_BYTES {
        return Err(wrong(format!("{length} bytes are more than the limit footer_bytes of {FOOTER_BYTES}")));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start).map_err(io)?;
    let mut walk = Walk::new(&bytes);
    walk.fields(FILE, 0).map_err(|why| wrong(format!("byte {}: {why}", bytes.len() - walk.rest.len())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trace_schema::{Kind, Row, Run};
    use trace_writer::Recorder;

    use super::*;

    /// Checks a file that has nothing but this footer.
    fn checked(footer: &[u8]) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.parquet");
        let length = (footer.len() as u32).to_le_bytes();
        fs::write(&path, [&b"PAR1"[..], footer, &length[..], MAGIC].concat()).expect("a file");
        check(&File::open(&path).expect("the file"))
    }

    fn refused(footer: &[u8], words: &str) {
        let why = checked(footer).expect_err(words);
        assert!(why.starts_with("its footer: byte ") && why.contains(words), "{why}");
    }

    /// The version, and the head of a list of this field with this type and number of elements.
    fn begin(field: u8, element: u8, count: u32) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x02, (field - 1) << 4 | wire::LIST, 0xf0 | element];
        let mut left = count;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    }

    #[test]
    fn what_the_writer_writes_passes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.parquet");
        let mut recorder = Recorder::create(&path, false, &Run::default()).expect("a recorder");
        for ts in 0..10 {
            recorder.push(&Row::new(ts, Kind::Call, "cudaMalloc".into(), 1, 1)).expect("a row");
        }
        recorder.finish(&Run::default()).expect("a run");
        assert_eq!(check(&File::open(&path).expect("the run")), Ok(()));
        for text in ["", "PAR1", "something else that is longer"] {
            fs::write(&path, text).expect("a file");
            assert_eq!(check(&File::open(&path).expect("the file")), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_would_end_the_program_is_refused() {
        // A group with one group in it, and so on.
        let nested = [0x48, 1, b'a', 0x15, 2, 0].repeat(100);
        refused(&[begin(2, wire::STRUCT, 100), nested].concat(), "within each other");
        let wide = [0x48, 1, b'a', 0].repeat(5000);
        refused(&[begin(2, wire::STRUCT, 5000), wide].concat(), "5000 columns are more than");
        let lonely = [0x48, 1, b'a', 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0].to_vec();
        refused(&[begin(2, wire::STRUCT, 1), lonely].concat(), "a group has 2147483647 columns");
        refused(&begin(4, wire::STRUCT, u32::MAX >> 1), "a list of 2147483647 elements");
        refused(&[begin(4, wire::STRUCT, 40_000), vec![0; 50_000]].concat(), "40000 row groups");
        // Fields that are passed over.
        refused(&[begin(9, wire::TRUE, 3), vec![0; 9]].concat(), "truth values");
        refused(&[begin(9, wire::LIST, 1), vec![0x19; 100]].concat(), "within each other");
        refused(&[0x15, 0x02, 0x8b, 1, 1, 0], "the type 11");
        // A field that is known, with another type, also under a number that is cut to its own.
        refused(&[0x15, 0x02, 0x38, 0x01, 0, 0], "the type 8, which it cannot have");
        refused(&[0x05, 0x88, 0x80, 0x08, 0x01, 0], "the type 5, which it cannot have");
        refused(&[0x15, 0x02], "cut off");
        refused(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "ten bytes");
    }
}
