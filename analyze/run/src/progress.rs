//! A progress line on the terminal during long work: how much of the input has been read.
//!
//! Code that reads registers a counter here, in the way that code that logs uses a logger, and does not know
//! whether a line is shown. The line appears after one second if both standard output and standard error are
//! terminals, and stays until something is printed. Work that reads its input twice starts again from zero.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use trace_schema::{Bytes, harmless};

/// Work that takes less time than this shows no progress line.
const LONG: Duration = Duration::from_secs(1);
/// The time between two updates of the line.
const PERIOD: Duration = Duration::from_millis(200);

static ALLOWED: AtomicBool = AtomicBool::new(false);
static LINE: Mutex<Option<Line>> = Mutex::new(None);

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Rows,
    Bytes,
}

/// How much has been read, and of how much. A total of 0 means that the total is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// What has been read.
    pub done: u64,
    /// What is to be read in all; 0 if that is not known.
    pub total: u64,
}

/// Counts what one reader has read, in rows or bytes.
#[derive(Debug)]
pub struct Counter {
    unit: Unit,
    done: AtomicU64,
    total: u64,
}

impl Counter {
    /// Adds `count` to what has been read.
    pub fn add(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }
}

enum Source {
    /// A counter, which counts until its reader drops it.
    Counter(Weak<Counter>),
    /// The Parquet scans of a physical plan.
    Rows(Box<dyn Fn() -> Amount + Send>),
}

impl Source {
    /// Returns how much has been read, or `None` if nothing is being read.
    fn amount(&self) -> Option<(Unit, Amount)> {
        let (unit, amount) = match self {
            Self::Counter(counter) => {
                let counter = counter.upgrade()?;
                let done = counter.done.load(Ordering::Relaxed);
                (counter.unit, Amount { done, total: counter.total })
            }
            Self::Rows(read) => (Unit::Rows, read()),
        };
        (amount != Amount::default()).then_some((unit, amount))
    }
}

struct Line {
    sources: Arc<Mutex<Vec<Source>>>,
    bar: ProgressBar,
    thread: JoinHandle<()>,
    /// The thread ends when this sender is dropped.
    stop: Sender<()>,
}

/// Formats a number with its digits in groups of three, separated by commas.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

fn text(unit: Unit, Amount { done, total }: Amount) -> String {
    let shown = |count: u64| match unit {
        Unit::Rows => grouped(count),
        Unit::Bytes => Bytes(i64::try_from(count).unwrap_or(i64::MAX)).to_string(),
    };
    let unit = if unit == Unit::Rows { " rows" } else { "" };
    // A total that has been exceeded was an estimate.
    if done > total {
        return format!("{}{unit} read", shown(done));
    }
    format!(
        "{} of {}{unit} read, {} %",
        shown(done),
        shown(total),
        (100 * done).checked_div(total).unwrap_or_default()
    )
}

/// Returns the text for what is being read: the sum over all sources with the unit of the last one.
fn current(sources: &[Source]) -> Option<String> {
    let amounts: Vec<(Unit, Amount)> = sources.iter().filter_map(Source::amount).collect();
    let (unit, _) = *amounts.last()?;
    let amounts = amounts.into_iter().filter(|(of, _)| *of == unit);
    let sum = amounts.fold(Amount::default(), |sum, (_, of)| Amount {
        done: sum.done + of.done,
        total: sum.total + of.total,
    });
    Some(text(unit, sum))
}

/// Permits progress lines for this process if standard output and standard error are terminals.
pub fn allow() {
    let is_seen = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
    ALLOWED.store(is_seen, Ordering::Relaxed);
}

/// Starts a progress line for work that may take long. Does nothing if one is active or progress lines are
/// not permitted.
pub fn begin() {
    let mut line = LINE.lock();
    if line.is_some() || !ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    let sources = Arc::new(Mutex::new(Vec::new()));
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    let (stop, stopped) = mpsc::channel::<()>();
    let (of_thread, drawn) = (Arc::clone(&sources), bar.clone());
    let thread = thread::spawn(move || {
        let mut wait = LONG;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = PERIOD;
            if let Some(text) = current(&of_thread.lock()) {
                drawn.set_message(text);
            }
        }
    });
    *line = Some(Line { sources, bar, thread, stop });
}

/// Removes the progress line, before something is printed.
pub fn end() {
    let Some(Line { bar, thread, stop, .. }) = LINE.lock().take() else { return };
    drop(stop);
    // If the thread that draws the line has panicked, no line remains.
    let _ = thread.join();
    bar.finish_and_clear();
}

/// Prints a line on standard error without disturbing the progress line. Whatever is printed there passes here and is made
/// harmless: it may have names of files, SQL, or text of a file.
pub fn say(text: &str) {
    let text = harmless(text);
    let bar = LINE.lock().as_ref().map(|line| line.bar.clone());
    match bar {
        Some(bar) => bar.suspend(|| print(&text)),
        None => print(&text),
    }
}

/// Prints a line on standard error. Where that is full or closed, there is nobody to tell.
pub(crate) fn print(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn register(source: Source) {
    if let Some(line) = LINE.lock().as_ref() {
        line.sources.lock().push(source);
    }
}

fn counter(unit: Unit, total: u64) -> Arc<Counter> {
    let counter = Arc::new(Counter { unit, done: AtomicU64::new(0), total });
    register(Source::Counter(Arc::downgrade(&counter)));
    counter
}

/// Registers a reader of `total` rows; 0 if their number is unknown. The counter is active until it is
/// dropped.
pub fn rows(total: u64) -> Arc<Counter> {
    counter(Unit::Rows, total)
}

/// Registers a reader of `total` bytes; 0 if their number is unknown. The counter is active until it is
/// dropped.
pub fn bytes(total: u64) -> Arc<Counter> {
    counter(Unit::Bytes, total)
}

/// Registers the Parquet scans of a plan that is about to be executed.
pub fn watch(read: Box<dyn Fn() -> Amount + Send>) {
    register(Source::Rows(read));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_of_what() {
        let of = |unit, done, total| text(unit, Amount { done, total });
        assert_eq!(of(Unit::Rows, 1_234_567, 9_999_999), "1,234,567 of 9,999,999 rows read, 12 %");
        assert_eq!(of(Unit::Rows, 0, 0), "0 of 0 rows read, 0 %");
        assert_eq!(of(Unit::Rows, 999, 0), "999 rows read");
        assert_eq!(of(Unit::Bytes, 3 << 20, 12 << 20), "3.00 MiB of 12.0 MiB read, 25 %");
    }

    #[test]
    fn what_is_read_last_counts() {
        let counter = |unit, done, total| Arc::new(Counter { unit, done: AtomicU64::new(done), total });
        let mut counters = vec![
            counter(Unit::Bytes, 7, 7),
            counter(Unit::Rows, 10, 10),
            counter(Unit::Rows, 2, 10),
            counter(Unit::Bytes, 0, 0),
        ];
        let sources: Vec<Source> =
            counters.iter().map(|counter| Source::Counter(Arc::downgrade(counter))).collect();
        assert_eq!(current(&[]), None);
        assert_eq!(current(&sources).as_deref(), Some("12 of 20 rows read, 60 %"));
        counters.remove(1);
        assert_eq!(current(&sources).as_deref(), Some("2 of 10 rows read, 20 %"));
        counters.truncate(1);
        assert_eq!(current(&sources).as_deref(), Some("7 B of 7 B read, 100 %"));
    }
}
