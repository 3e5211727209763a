//! The frames that a recording consists of, and what stands in them.
//!
//! The first frame is an empty stream of Arrow IPC with the metadata. Each other one has two streams: the columns that
//! are stored plain, and the others, both without those that have no value. What is not as it was written never
//! reaches the reader of Arrow, which trusts it.
//!
//! ```text
//! frame   │ INQr │ length │ CRC-32 │ streams …
//!           4      4 (LE)   4 (LE)   length
//! ```

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, Write},
    sync::Arc,
};

use arrow::{
    array::{Array, RecordBatch},
    datatypes::{FieldRef, Schema},
    error::ArrowError,
    ipc::{
        self, CompressionType,
        reader::StreamReader,
        writer::{IpcWriteOptions, StreamWriter},
    },
};
use trace_schema::arrow_schema;

use crate::ipc_buffer::buffer_bytes;

/// Bytes that are read or written at once; the first frame has fewer.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// The first bytes of a frame, and so of a recording.
pub const RECORDING_START: &[u8; 4] = b"INQr";

/// Bytes of a frame before its streams.
const HEAD_BYTES: usize = 12;

/// Columns that differ from row to row. Compressing them would cost a quarter of all that the reader spends on
/// an event, and gain nothing; the others are mostly nulls and repetitions.
const PLAIN: [&str; 3] = ["ts", "dur", "addr"];

/// Writes one batch as a stream of its own.
pub(crate) fn append_stream(
    frame: &mut Vec<u8>,
    batch: &RecordBatch,
    compression: Option<CompressionType>,
) -> Result<(), ArrowError> {
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    let mut stream = StreamWriter::try_new_with_options(frame, &batch.schema(), options)?;
    if batch.num_rows() > 0 {
        stream.write(batch)?;
    }
    stream.finish()
}

/// Writes rows: a stream of the plain columns, and one of the others.
pub(crate) fn append(frame: &mut Vec<u8>, batch: &RecordBatch) -> Result<(), ArrowError> {
    let schema = batch.schema();
    let (plain, others): (Vec<usize>, Vec<usize>) =
        (0..batch.num_columns()).partition(|index| PLAIN.contains(&schema.field(*index).name().as_str()));
    append_stream(frame, &batch.project(&plain)?, None)?;
    append_stream(frame, &batch.project(&others)?, Some(CompressionType::LZ4_FRAME))
}

/// Writes `frame` with its head, and empties it.
pub(crate) fn write_frame(file: &mut impl Write, frame: &mut Vec<u8>) -> Result<(), ArrowError> {
    let length = u32::try_from(frame.len())
        .map_err(|_| ArrowError::IpcError("more than 4 GiB in one batch".to_owned()))?;
    file.write_all(RECORDING_START)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&crc32fast::hash(frame).to_le_bytes())?;
    file.write_all(frame)?;
    frame.clear();
    Ok(())
}

/// Why a recording could not be read further.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The operating system reported an error: what follows may well be whole.
    Io(io::Error),
    /// What follows is cut off, or not as it was written.
    Damaged(ArrowError),
}

/// Reads the next frame; `None` at the end of the file.
pub(crate) fn next_frame(file: &mut BufReader<File>) -> Result<Option<Vec<u8>>, Unread> {
    let damaged = |what: &str| Unread::Damaged(ArrowError::IpcError(what.to_owned()));
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(Unread::Io)?;
    if head.is_empty() {
        return Ok(None);
    }
    let (words, _) = head.as_chunks::<4>();
    let [begin, length, sum] = words else { return Err(damaged("a frame is cut off")) };
    if begin != RECORDING_START {
        return Err(damaged("this is not a frame of a recording"));
    }
    let mut frame = Vec::new();
    let length = u32::from_le_bytes(*length);
    file.take(length.into()).read_to_end(&mut frame).map_err(Unread::Io)?;
    if frame.len() as u64 != u64::from(length) || crc32fast::hash(&frame) != u32::from_le_bytes(*sum) {
        return Err(damaged("the checksum of a frame is wrong"));
    }
    Ok(Some(frame))
}

/// The most bytes that one byte of LZ4 stands for, and a little more.
const LZ4_RATIO: u64 = 256;

/// Checks the lengths that the messages of a frame's streams state, for which Arrow's reader takes memory before it reads.
pub(crate) fn check_lengths(frame: &[u8]) -> Result<(), ArrowError> {
    let wrong = || ArrowError::IpcError("a message of a frame is longer than the frame".to_owned());
    let mut rest = frame;
    while !rest.is_empty() {
        // A message begins with its mark and the length of its metadata; without metadata, it ends the stream.
        let (head, after) = rest.split_at_checked(8).ok_or_else(wrong)?;
        let &[0xff, 0xff, 0xff, 0xff, ref length @ ..] = head else { return Err(wrong()) };
        let length = length.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let (metadata, after) = after.split_at_checked(length as usize).ok_or_else(wrong)?;
        rest = after;
        if metadata.is_empty() {
            continue;
        }
        let message =
            ipc::root_as_message(metadata).map_err(|error| ArrowError::IpcError(error.to_string()))?;
        let length = usize::try_from(message.bodyLength()).map_err(|_| wrong())?;
        let (body, after) = rest.split_at_checked(length).ok_or_else(wrong)?;
        rest = after;
        let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let Some(batch) = message.header_as_record_batch().or(dictionary) else { continue };
        for buffer in batch.buffers().into_iter().flatten() {
            let bytes = buffer_bytes(buffer, body, batch.compression().is_some());
            let bytes = bytes.map_err(ArrowError::IpcError)?;
            if bytes > buffer.length().unsigned_abs().saturating_mul(LZ4_RATIO) {
                return Err(wrong());
            }
        }
    }
    Ok(())
}

/// Whether a column is one of the format, `full`, and has its type.
pub(crate) fn is_ours(full: &Schema, field: &FieldRef) -> bool {
    full.field_with_name(field.name()).is_ok_and(|ours| ours.data_type() == field.data_type())
}

/// Decodes the rows of a frame.
pub(crate) fn rows_of(frame: &[u8]) -> Result<RecordBatch, ArrowError> {
    check_lengths(frame)?;
    let mut streams = frame;
    let mut half = || {
        let mut batches = StreamReader::try_new(&mut streams, None)?.collect::<Result<Vec<_>, _>>()?;
        batches.pop().ok_or_else(|| ArrowError::IpcError("a stream without rows".to_owned()))
    };
    let (plain, others) = (half()?, half()?);
    let fields = plain.schema().fields().iter().chain(others.schema().fields()).cloned().collect::<Vec<_>>();
    // The columns of a forged file may have any type.
    let full = arrow_schema();
    if !fields.iter().all(|field| is_ours(&full, field)) || fields.iter().all(|field| field.name() != "ts") {
        return Err(ArrowError::SchemaError("the columns are not those of a recording".to_owned()));
    }
    let columns = plain.columns().iter().chain(others.columns()).cloned().collect();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    let is_whole = |field: &FieldRef| {
        field.is_nullable()
            || rows.column_by_name(field.name()).is_some_and(|column| column.logical_null_count() == 0)
    };
    match full.fields().iter().find(|field| !is_whole(field)) {
        Some(field) => Err(ArrowError::SchemaError(format!("a row has no {}", field.name()))),
        None => Ok(rows),
    }
}

/// Whether a recording ends before its first frame does, so that no row was ever in it. The file is then at its start.
pub(crate) fn lacks_head(mut file: &File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.rewind()?;
    file.take(BUFFER_BYTES as u64).read_to_end(&mut start)?;
    file.rewind()?;
    let (begin, rest) = start.split_at(start.len().min(RECORDING_START.len()));
    if !RECORDING_START.starts_with(begin) {
        return Ok(false);
    }
    let Some(length) = rest.first_chunk::<4>() else { return Ok(true) };
    let whole = HEAD_BYTES as u64 + u64::from(u32::from_le_bytes(*length));
    // A damaged length may be beyond the end of a file in which other frames follow.
    let is_alone = !rest.windows(RECORDING_START.len()).any(|bytes| bytes == RECORDING_START);
    Ok(start.len() < BUFFER_BYTES && (start.len() as u64) < whole && is_alone)
}
