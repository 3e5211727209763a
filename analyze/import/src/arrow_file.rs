//! Reads Arrow IPC files with columns as a run has them: numbers, times and texts.
//!
//! Arrow's own reader trusts the places and lengths that a file states, and ends the program where they are wrong. So
//! everything that it takes from the file's metadata is checked before: the types of the columns, where each block lies, how
//! many values it has, and how long each of its buffers is. The content of the buffers is checked by Arrow itself.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use analyze_run::panics;
use arrow::{
    array::RecordBatch,
    buffer::{Buffer, MutableBuffer},
    datatypes::{DataType, SchemaRef},
    error::ArrowError,
    ipc::{
        self, Block,
        convert::fb_to_schema,
        reader::{FileDecoder, read_footer_length},
    },
};
use trace_writer::buffer_bytes;

use super::limits::{BATCH_BYTES, BATCH_ROWS_COUNT, COLUMNS_COUNT, FOOTER_BYTES};

/// The first bytes of an Arrow IPC file.
pub(super) const MAGIC: &[u8] = b"ARROW1";
/// Size in bytes of what follows the footer: its length and the magic.
const TRAILER_BYTES: usize = 10;
/// Size in bytes of what precedes the metadata of a message: a mark, and their length.
const PREFIX_BYTES: u64 = 8;

/// The reason why an Arrow file could not be read further.
#[derive(Debug)]
pub(super) enum ArrowFileError {
    /// The operating system reported an I/O error.
    Io(io::Error),
    /// What begins at byte `offset` is damaged, exceeds a limit, or is not read.
    At { offset: u64, reason: String },
}

impl From<io::Error> for ArrowFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn at(offset: u64, reason: impl Into<String>) -> ArrowFileError {
    ArrowFileError::At { offset, reason: reason.into() }
}

/// The buffers of a column besides that of its nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// There are none, and no buffer of nulls either: every value is null.
    Null,
    /// Values of so many bytes.
    Fixed(u64),
    /// Offsets of so many bytes, and the texts.
    Text(u64),
}

impl Layout {
    fn of(ty: &DataType) -> Result<Self, String> {
        match ty {
            DataType::Null => Ok(Self::Null),
            DataType::Utf8 => Ok(Self::Text(4)),
            DataType::LargeUtf8 => Ok(Self::Text(8)),
            DataType::Dictionary(key, _) => Self::of(key),
            other => match other.primitive_width() {
                Some(width) => Ok(Self::Fixed(width as u64)),
                None => Err(format!("it is of the type {other}, which no column of a run has")),
            },
        }
    }
}

/// An Arrow file whose record batches are read in order.
pub(super) struct ArrowFile {
    file: File,
    size_bytes: u64,
    decoder: FileDecoder,
    schema: SchemaRef,
    layouts: Vec<Layout>,
    /// Layout of the values of each dictionary, by its id.
    dictionaries: HashMap<i64, Layout>,
    batches: std::vec::IntoIter<Block>,
    /// Where the block that was read last ends.
    last_end: u64,
}

impl ArrowFile {
    /// Opens a file, and reads its schema and its dictionaries.
    ///
    /// # Errors
    /// Returns an error if the file is damaged or cannot be read, or has columns of other types than a run.
    pub(super) fn open(mut file: File) -> Result<Self, ArrowFileError> {
        let size_bytes = file.metadata()?.len();
        let Some(footer_end) = size_bytes.checked_sub(TRAILER_BYTES as u64) else {
            return Err(at(0, "the file is cut off"));
        };
        let mut trailer = [0; TRAILER_BYTES];
        file.seek(SeekFrom::Start(footer_end))?;
        file.read_exact(&mut trailer)?;
        let length = read_footer_length(trailer).map_err(|error| at(footer_end, error.to_string()))?;
        if FOOTER_BYTES.is_exceeded_by(length) {
            return Err(at(footer_end, FOOTER_BYTES.over("the footer is longer")));
        }
        let Some(footer_start) = footer_end.checked_sub(length as u64) else {
            return Err(at(footer_end, format!("a footer of {length} bytes is longer than the file")));
        };
        let mut bytes = vec![0; length];
        file.seek(SeekFrom::Start(footer_start))?;
        file.read_exact(&mut bytes)?;
        let damaged = |error: &dyn std::fmt::Display| at(footer_start, format!("the footer: {error}"));
        let footer = ipc::root_as_footer(&bytes).map_err(|error| damaged(&error))?;
        let schema = footer.schema().ok_or_else(|| damaged(&"it has no schema"))?;
        let dictionaries = checked(schema).map_err(|reason| damaged(&reason))?;
        let schema: SchemaRef = Arc::new(fb_to_schema(schema));
        let layouts = schema.fields().iter().map(|field| {
            Layout::of(field.data_type())
                .map_err(|reason| damaged(&format!("column {}: {reason}", field.name())))
        });
        let layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        let blocks: Vec<Block> = footer.dictionaries().into_iter().flatten().copied().collect();
        let batches: Vec<Block> = footer.recordBatches().into_iter().flatten().copied().collect();
        let mut found = Self {
            file,
            size_bytes,
            decoder: FileDecoder::new(Arc::clone(&schema), footer.version()),
            schema,
            layouts,
            dictionaries,
            batches: batches.into_iter(),
            last_end: 0,
        };
        let mut held_bytes = 0_u64;
        for block in &blocks {
            let (offset, buffer) = found.block(block)?;
            let size_bytes = found.check(&buffer, block, true).map_err(|reason| at(offset, reason))?;
            held_bytes = held_bytes.saturating_add(size_bytes);
            if held_bytes > BATCH_BYTES.value {
                return Err(at(offset, BATCH_BYTES.over("the dictionaries have more bytes")));
            }
            decoded(offset, || found.decoder.read_dictionary(block, &buffer))?;
        }
        found.last_end = 0;
        Ok(found)
    }

    /// Returns the schema, with its metadata.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads a block, and returns where it begins, and its bytes: a message and its body.
    fn block(&mut self, block: &Block) -> Result<(u64, Buffer), ArrowFileError> {
        let (offset, head, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
        let wrong = |reason: String| at(u64::try_from(offset).unwrap_or_default(), reason);
        let place = || format!("a block of {head} and {body} bytes at {offset} is not in its place");
        let (Ok(start), Ok(head), Ok(body)) =
            (u64::try_from(offset), u64::try_from(head), u64::try_from(body))
        else {
            return Err(wrong(place()));
        };
        let length = head.saturating_add(body);
        let end = start.saturating_add(length);
        // Blocks lie one after the other, so that none is read twice.
        if head < PREFIX_BYTES || start < self.last_end || end > self.size_bytes {
            return Err(wrong(place()));
        }
        if length > BATCH_BYTES.value {
            return Err(wrong(BATCH_BYTES.over(format!("a block of {length} bytes is longer"))));
        }
        let mut bytes = MutableBuffer::from_len_zeroed(length as usize);
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut bytes)?;
        self.last_end = end;
        Ok((start, bytes.into()))
    }

    /// Checks what the message of a block states, and returns the number of bytes of its buffers after decompression.
    fn check(&self, buffer: &Buffer, block: &Block, is_dictionary: bool) -> Result<u64, String> {
        let bytes = buffer.as_slice();
        // Before version 0.15, a message began with its length.
        let skipped = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message = ipc::root_as_message(bytes.get(skipped..).unwrap_or_default())
            .map_err(|error| format!("its message: {error}"))?;
        let head = usize::try_from(block.metaDataLength()).unwrap_or_default();
        let body = bytes.get(head..).unwrap_or_default();
        if !is_dictionary {
            let batch = message.header_as_record_batch().ok_or("no record batch begins here")?;
            return check_batch(batch, body, &self.layouts);
        }
        let dictionary = message.header_as_dictionary_batch().ok_or("no dictionary begins here")?;
        if dictionary.isDelta() {
            return Err("a dictionary that goes on with another (delta) is not read".to_owned());
        }
        let id = dictionary.id();
        let layout =
            self.dictionaries.get(&id).ok_or_else(|| format!("no column has the dictionary {id}"))?;
        let data = dictionary.data().ok_or("a dictionary has no values")?;
        check_batch(data, body, &[*layout])
    }

    fn read(&mut self, block: &Block) -> Result<Option<RecordBatch>, ArrowFileError> {
        let (offset, buffer) = self.block(block)?;
        self.check(&buffer, block, false).map_err(|reason| at(offset, reason))?;
        decoded(offset, || self.decoder.read_record_batch(block, &buffer))
    }
}

impl Iterator for ArrowFile {
    type Item = Result<RecordBatch, ArrowFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.batches.next()?;
        self.read(&block).transpose()
    }
}

/// Decodes the block at `offset`. What the checks above do not see may make Arrow panic.
fn decoded<T>(offset: u64, work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowFileError> {
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    let result = result.map_err(|panic| at(offset, panics::message(panic.as_ref())))?;
    result.map_err(|error| at(offset, error.to_string()))
}

/// Checks that a schema has only types that can be converted, and returns the layouts of its dictionaries' values.
fn checked(schema: ipc::Schema<'_>) -> Result<HashMap<i64, Layout>, String> {
    if !schema.endianness().equals_to_target_endianness() {
        return Err("its numbers are in another byte order than those of this machine".to_owned());
    }
    let fields = schema.fields().ok_or("it has no columns")?;
    if COLUMNS_COUNT.is_exceeded_by(fields.len()) {
        return Err(COLUMNS_COUNT.over("it has more columns"));
    }
    let is_integer =
        |int: Option<ipc::Int<'_>>| int.is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64));
    let is_unit = |unit: ipc::TimeUnit| {
        [
            ipc::TimeUnit::SECOND,
            ipc::TimeUnit::MILLISECOND,
            ipc::TimeUnit::MICROSECOND,
            ipc::TimeUnit::NANOSECOND,
        ]
        .contains(&unit)
    };
    let mut dictionaries = HashMap::new();
    for field in fields {
        let name = field.name().unwrap_or_default();
        let ty = field.type_type();
        let is_read = match ty {
            ipc::Type::Int => is_integer(field.type_as_int()),
            ipc::Type::Timestamp => field.type_as_timestamp().is_some_and(|time| is_unit(time.unit())),
            ipc::Type::Duration => field.type_as_duration().is_some_and(|time| is_unit(time.unit())),
            ipc::Type::Null | ipc::Type::Utf8 | ipc::Type::LargeUtf8 => true,
            _ => false,
        };
        if !is_read || field.children().is_some_and(|children| !children.is_empty()) {
            return Err(format!("column {name}: it is of the type {ty:?}, which no column of a run has"));
        }
        let Some(dictionary) = field.dictionary() else { continue };
        let layout = match ty {
            ipc::Type::Utf8 => Layout::Text(4),
            ipc::Type::LargeUtf8 => Layout::Text(8),
            _ => {
                return Err(format!(
                    "column {name}: its dictionary has values of the type {ty:?}, not texts"
                ));
            }
        };
        if !is_integer(dictionary.indexType()) {
            return Err(format!("column {name}: the keys of its dictionary are no integers"));
        }
        if dictionaries.insert(dictionary.id(), layout).is_some_and(|other| other != layout) {
            return Err(format!("column {name}: its dictionary is one of another type, too"));
        }
    }
    Ok(dictionaries)
}

/// Checks that a batch has the columns of these layouts, and that every buffer is as long as it has to be. Returns the number
/// of bytes of all its buffers after decompression.
fn check_batch(batch: ipc::RecordBatch<'_>, body: &[u8], layouts: &[Layout]) -> Result<u64, String> {
    let rows = u64::try_from(batch.length()).map_err(|_| format!("it has {} rows", batch.length()))?;
    if rows > BATCH_ROWS_COUNT.value {
        return Err(BATCH_ROWS_COUNT.over(format!("it has {rows} rows, which are more")));
    }
    let is_compressed = match batch.compression() {
        None => false,
        Some(found) if found.codec() == ipc::CompressionType::ZSTD => true,
        Some(found) => {
            return Err(format!(
                "its buffers are compressed with {:?}: write them with zstd, or without",
                found.codec()
            ));
        }
    };
    if batch.variadicBufferCounts().is_some_and(|counts| !counts.is_empty()) {
        return Err("it has buffers of views, which its columns have not".to_owned());
    }
    let nodes = batch.nodes().ok_or("it has no columns")?;
    let mut buffers = batch.buffers().ok_or("it has no buffers")?.into_iter();
    if nodes.len() != layouts.len() {
        return Err(format!("it has {} columns, not {}", nodes.len(), layouts.len()));
    }
    let mut all_bytes = 0_u64;
    for (node, layout) in nodes.into_iter().zip(layouts) {
        let nulls = u64::try_from(node.null_count()).ok().filter(|nulls| *nulls <= rows);
        let (Some(nulls), true) = (nulls, u64::try_from(node.length()) == Ok(rows)) else {
            return Err(format!("a column has {} values and {} nulls", node.length(), node.null_count()));
        };
        let validity = if nulls > 0 { rows.div_ceil(8) } else { 0 };
        let needed: &[u64] = match layout {
            Layout::Null => &[],
            Layout::Fixed(width) => &[validity, rows * width],
            Layout::Text(width) => &[validity, if rows > 0 { (rows + 1) * width } else { 0 }, 0],
        };
        for needed in needed {
            let buffer = buffers.next().ok_or("it has fewer buffers than its columns need")?;
            let found = buffer_bytes(buffer, body, is_compressed)?;
            if found < *needed {
                return Err(format!("a buffer has {found} bytes where {needed} are needed"));
            }
            all_bytes = all_bytes.saturating_add(found);
        }
    }
    if all_bytes > BATCH_BYTES.value {
        return Err(BATCH_BYTES.over(format!("its {all_bytes} bytes after decompression are more")));
    }
    Ok(all_bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use analyze_run::random::Random;
    use arrow::{
        array::{ArrayRef, AsArray, DictionaryArray, Int64Array, StringArray},
        datatypes::Int32Type,
        ipc::writer::{FileWriter, IpcWriteOptions},
    };

    use super::*;

    fn written(compression: Option<ipc::CompressionType>) -> Vec<u8> {
        let words: DictionaryArray<Int32Type> = [Some("call"), None, Some("mark")].into_iter().collect();
        let columns: [(&str, ArrayRef); 3] = [
            ("ts", Arc::new(Int64Array::from(vec![1, 2, 3]))),
            ("op", Arc::new(StringArray::from(vec!["a".repeat(200), String::new(), "b".repeat(200)]))),
            ("kind", Arc::new(words)),
        ];
        let columns = columns.map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        writer.into_inner().unwrap()
    }

    /// Returns the number of rows, or the reason for which the bytes are refused.
    fn rows(file: &Path, bytes: &[u8]) -> Result<usize, String> {
        fs::write(file, bytes).unwrap();
        let told = |error| match error {
            ArrowFileError::At { reason, .. } => reason,
            ArrowFileError::Io(error) => panic!("{error}"),
        };
        let mut count = 0;
        for batch in ArrowFile::open(File::open(file).unwrap()).map_err(told)? {
            count += batch.map_err(told)?.num_rows();
        }
        Ok(count)
    }

    #[test]
    fn what_arrow_writes_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.arrow");
        for compression in [None, Some(ipc::CompressionType::ZSTD)] {
            assert_eq!(rows(&file, &written(compression)), Ok(6));
            let batch = ArrowFile::open(File::open(&file).unwrap()).unwrap().next().unwrap().unwrap();
            let kinds = batch.column(2).as_dictionary::<Int32Type>().downcast_dict::<StringArray>().unwrap();
            assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [Some("call"), None, Some("mark")]);
        }
        let why = rows(&file, &written(Some(ipc::CompressionType::LZ4_FRAME))).unwrap_err();
        assert!(why.contains("LZ4_FRAME"), "{why}");
    }

    /// A file that is cut or changed anywhere is refused or read, and never causes a panic.
    #[test]
    fn no_damage_panics() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.arrow");
        let mut random = Random(0xa770_3141);
        let mut refused = 0;
        for compression in [None, Some(ipc::CompressionType::ZSTD)] {
            let whole = written(compression);
            for end in (0..whole.len()).step_by(13) {
                assert!(rows(&file, &whole[..end]).is_err(), "{end}");
            }
            for _ in 0..1_500 {
                let mut bytes = whole.clone();
                for _ in 0..1 + random.below(3) {
                    let at = random.below(bytes.len());
                    bytes[at] = if random.below(2) == 0 { random.below(256) as u8 } else { 0xff };
                }
                refused += usize::from(rows(&file, &bytes).is_err());
            }
        }
        assert!(refused > 300, "{refused}");
    }
}
