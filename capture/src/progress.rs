//! One line on a terminal while recording: events per second, bytes, losses.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use trace_schema::Bytes;

/// The line, which may be hidden.
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: Instant,
    rows: u64,
}

impl Progress {
    /// Shows a line if `visible`.
    pub(crate) fn new(visible: bool) -> Self {
        let bar = if visible { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("recording {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self { bar, shown: Instant::now(), rows: 0 }
    }

    /// Shows the rate and the totals; the line changes once a second at most.
    pub(crate) fn update(&mut self, rows: u64, size_bytes: u64, lost: u64) {
        let elapsed = self.shown.elapsed();
        if elapsed < Duration::from_millis(900) {
            return;
        }
        let rate = (rows - self.rows) as f64 / elapsed.as_secs_f64();
        let size = Bytes(size_bytes as i64);
        self.bar
            .set_message(format!("{rate:.0} events/s, {rows} events in total, {size} on disk, {lost} lost"));
        (self.shown, self.rows) = (Instant::now(), rows);
    }

    /// Shows a message in place of the rate.
    pub(crate) fn say(&self, message: &'static str) {
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// Removes the line.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
