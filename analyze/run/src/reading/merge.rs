//! Merges row groups by `ts` in one thread, while several others decode them ahead.
//!
//! A row group is open from the time of its first row until that of its last. A call that lasts for the whole
//! run makes its row group begin far before its other rows and so keeps it open for long; this costs one page
//! of each column (a few MiB).

use std::{collections::VecDeque, ops::Range, path::PathBuf, thread};

use arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    Consumer, Helper, Rows,
    group::{Decoder, Place, places},
    rows::Known,
};
use crate::{error::AnalyzeError, progress};

/// The greatest number of rows that are decoded and wait, in all row groups together. It is more than one row
/// group, so that several decoders are not idle. A single decoder is never idle, whatever the number, and
/// fewer rows are still in a cache when they are read.
const WAITING_ROWS: usize = 3 << 19;
const WAITING_ROWS_OF_ONE: usize = 1 << 17;
/// The greatest number of decoders.
const MAX_DECODERS: usize = 4;

/// A row group that is open.
struct Open {
    place: Place,
    /// The decoder, or `None` while the row group has not been begun or a thread is decoding it.
    decoder: Option<Decoder>,
    is_decoding: bool,
    is_done: bool,
    /// The rows after the waiting batches are not earlier than this `ts` (ns).
    reached: i64,
    waiting: VecDeque<RecordBatch>,
}

/// The state that decoders and reader share.
struct Board {
    /// The row groups that have not been begun; the earliest is last.
    unopened: Vec<Place>,
    /// The open row groups by number; `None` once a row group has been read to its end.
    open: Vec<Option<Open>>,
    waiting_rows: usize,
    waiting_rows_max: usize,
    ended: bool,
    error: Option<AnalyzeError>,
}

impl Board {
    /// Returns the row group to decode next, which is the one that the reader needs first.
    fn task(&mut self) -> Option<usize> {
        let next = self.unopened.last().map(|place| place.first_ts);
        let candidates = self.open.iter().enumerate().filter_map(|(number, open)| {
            let open = open.as_ref().filter(|open| !open.is_done && !open.is_decoding)?;
            Some((open.reached, number, open.waiting.is_empty()))
        });
        let earliest = candidates.min();
        let room = self.waiting_rows < self.waiting_rows_max;
        match (earliest, next) {
            (Some((reached, number, is_empty)), next) if next.is_none_or(|next| reached <= next) => {
                (room || is_empty).then_some(number)
            }
            (_, Some(_)) => {
                // The reader waits for this row group only when nothing earlier is left.
                let needed = self.open.iter().flatten().all(|open| open.is_done && open.waiting.is_empty());
                if !room && !needed {
                    return None;
                }
                let place = self.unopened.pop()?;
                let reached = place.first_ts;
                self.open.push(Some(Open {
                    place,
                    decoder: None,
                    is_decoding: false,
                    is_done: false,
                    reached,
                    waiting: VecDeque::new(),
                }));
                Some(self.open.len() - 1)
            }
            _ => None,
        }
    }
}

struct Shared {
    board: Mutex<Board>,
    /// Signals that there are new rows, or that a row group or the reading has ended.
    news: Condvar,
    /// Signals that there is room for more rows.
    room: Condvar,
    helper: Option<Helper>,
}

impl Shared {
    /// Does some of the consumer's work, if there is any. Returns whether there was.
    fn help(&self) -> bool {
        self.helper.as_ref().is_some_and(|helper| helper())
    }
}

/// Ends the reading if one of its threads panics, so that no other thread waits for it.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut board = self.0.board.lock();
            board.ended = true;
            board.error.get_or_insert_with(|| AnalyzeError::Internal("a thread that reads ended".to_owned()));
            self.0.news.notify_all();
            self.0.room.notify_all();
        }
    }
}

fn decode(shared: &Shared, columns: &[&str]) {
    let _guard = Guard(shared);
    let mut board = shared.board.lock();
    let mut may_help = true;
    loop {
        if board.ended {
            return;
        }
        // While enough rows wait, it is more urgent to consume them than to decode more.
        if may_help && board.waiting_rows > board.waiting_rows_max / 2 {
            may_help = MutexGuard::unlocked(&mut board, || shared.help());
            continue;
        }
        may_help = true;
        let Some(number) = board.task() else {
            shared.room.wait(&mut board);
            continue;
        };
        let Some(open) = board.open[number].as_mut() else { continue };
        open.is_decoding = true;
        let (decoder, place) = (open.decoder.take(), open.place.clone());
        drop(board);
        let result = decoder.map_or_else(|| Decoder::open(place, columns), Ok).and_then(|mut decoder| {
            let next = decoder.next()?;
            Ok((decoder, next))
        });
        board = shared.board.lock();
        let mut rows = 0;
        let mut error = None;
        if let Some(open) = board.open[number].as_mut() {
            open.is_decoding = false;
            match result {
                Ok((decoder, Some((batch, reached)))) => {
                    rows = batch.num_rows();
                    open.reached = reached;
                    open.waiting.push_back(batch);
                    open.decoder = Some(decoder);
                }
                Ok((_, None)) => open.is_done = true,
                Err(found) => error = Some(found),
            }
        }
        board.waiting_rows += rows;
        if let Some(error) = error {
            board.error.get_or_insert(error);
            board.ended = true;
            shared.room.notify_all();
        }
        shared.news.notify_one();
    }
}

/// The rows of a row group that are being read.
struct Head {
    number: usize,
    rows: Rows,
    at: usize,
}

impl Head {
    fn ts(&self) -> i64 {
        self.rows.ts.value(self.at)
    }
}

struct Reader<'a> {
    shared: &'a Shared,
    progress: &'a progress::Counter,
    heads: Vec<Head>,
    /// The numbered dictionaries of each row group, by the number of the row group.
    known: Vec<Known>,
}

impl Reader<'_> {
    /// Takes decoded batches until the earliest row is known. Returns the index of its head and the `ts` up
    /// to which no other row group has an earlier row, or `None` at the end.
    fn turn(&mut self, consumer: &mut impl Consumer) -> Result<Option<(usize, i64)>, AnalyzeError> {
        let mut may_help = true;
        loop {
            let mut taken = Vec::new();
            let mut board = self.shared.board.lock();
            let (earliest, bound) = loop {
                if let Some(error) = board.error.take() {
                    return Err(error);
                }
                // This is the earliest `ts` that a row can have which has not been decoded.
                let mut unknown = board.unopened.last().map_or(i64::MAX, |place| place.first_ts);
                let mut is_more = !board.unopened.is_empty();
                let mut freed = 0;
                for (number, slot) in board.open.iter_mut().enumerate() {
                    let Some(open) = slot else { continue };
                    if self.heads.iter().any(|head| head.number == number) {
                        continue;
                    }
                    if let Some(batch) = open.waiting.pop_front() {
                        freed += batch.num_rows();
                        taken.push((number, batch));
                    } else if open.is_done {
                        *slot = None;
                    } else {
                        unknown = unknown.min(open.reached);
                        is_more = true;
                    }
                }
                board.waiting_rows -= freed;
                // The decoders are not woken for every batch.
                if freed > 0 && board.waiting_rows <= board.waiting_rows_max / 2 {
                    self.shared.room.notify_all();
                }
                if !taken.is_empty() {
                    break (None, 0);
                }
                let earliest = self.heads.iter().enumerate().min_by_key(|(_, head)| (head.ts(), head.number));
                match earliest {
                    Some((index, head)) if head.ts() <= unknown => break (Some(index), unknown),
                    None if !is_more => return Ok(None),
                    _ => {
                        self.shared.room.notify_all();
                        if may_help {
                            may_help = MutexGuard::unlocked(&mut board, || self.shared.help());
                        } else {
                            self.shared.news.wait(&mut board);
                            may_help = true;
                        }
                    }
                }
            };
            drop(board);
            if let Some(index) = earliest {
                let others = self.heads.iter().enumerate().filter(|(other, _)| *other != index);
                let bound = others.map(|(_, head)| head.ts()).fold(bound, i64::min);
                return Ok(Some((index, bound)));
            }
            for (number, batch) in taken {
                if self.known.len() <= number {
                    self.known.resize_with(number + 1, Known::default);
                }
                self.progress.add(batch.num_rows() as u64);
                let rows = Rows::new(&batch, consumer.names(), &mut self.known[number])?;
                self.heads.push(Head { number, rows, at: 0 });
            }
        }
    }

    fn run(&mut self, consumer: &mut impl Consumer) -> Result<(), AnalyzeError> {
        while let Some((index, bound)) = self.turn(consumer)? {
            let head = &mut self.heads[index];
            let ts = &head.rows.ts.values()[head.at..];
            let count = ts.partition_point(|ts| *ts <= bound).max(1);
            let range: Range<usize> = head.at..head.at + count;
            consumer.rows(&head.rows, range.clone())?;
            if consumer.is_done() {
                break;
            }
            head.at = range.end;
            if head.at == head.rows.len() {
                self.heads.swap_remove(index);
            }
        }
        Ok(())
    }
}

/// Passes the rows of a run to `consumer`.
///
/// # Errors
/// Returns an error if a file cannot be read or is not in order, or if the consumer fails.
pub(super) fn read(
    paths: &[PathBuf],
    columns: &[&str],
    consumer: &mut impl Consumer,
) -> Result<(), AnalyzeError> {
    let mut unopened = Vec::new();
    for path in paths {
        unopened.extend(places(path)?);
    }
    let progress = progress::rows(unopened.iter().map(|place| place.rows_count).sum());
    unopened.sort_by_key(|place| std::cmp::Reverse(place.first_ts));
    // The reader and the consumer need CPUs, too.
    let decoders = (thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, MAX_DECODERS);
    let waiting_rows_max = if decoders == 1 { WAITING_ROWS_OF_ONE } else { WAITING_ROWS };
    let board =
        Board { unopened, open: Vec::new(), waiting_rows: 0, waiting_rows_max, ended: false, error: None };
    let helper = consumer.helper();
    let shared = Shared { board: Mutex::new(board), news: Condvar::new(), room: Condvar::new(), helper };
    thread::scope(|scope| {
        for _ in 0..decoders {
            scope.spawn(|| decode(&shared, columns));
        }
        let mut reader =
            Reader { shared: &shared, progress: &progress, heads: Vec::new(), known: Vec::new() };
        let _guard = Guard(&shared);
        let result = reader.run(consumer);
        shared.board.lock().ended = true;
        shared.room.notify_all();
        result
    })
}
