//! Memory that a program keeps, by the evidence: across epochs, and until the end of the run.

use std::fmt;

use super::size;
use crate::{
    questions::memory::overview::Overview,
    report::document::{Cell, Row, Table, number, whole},
};
use analyze_memory::leaks::{epochs::Origin, growth::Growth};

/// Bytes retained epoch after epoch, and what became of them.
pub(super) struct Leak<'a> {
    /// Growth of the allocator's memory across epochs.
    pub growth: &'a Growth,
    /// Bytes allocated at the end of the run; `None` if unknown.
    end_bytes: Option<i64>,
    failed_count: usize,
}

impl fmt::Display for Leak<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaked_bytes = self.growth.account.leaked_bytes;
        write!(f, "{} were retained over {} epochs", size(leaked_bytes), self.growth.epochs_count)?;
        if !matches!(self.growth.epochs.origin, Origin::Ranges | Origin::Moments) {
            write!(f, " (equal numbers of allocations: the program marks none)")?;
        }
        match self.end_bytes {
            Some(bytes) if bytes < leaked_bytes => write!(
                f,
                "; at the end of the run {} were allocated, so at least {} of them were freed after the last epoch: a program that fills up and is emptied looks the same until then",
                size(bytes),
                size(leaked_bytes - bytes)
            )?,
            Some(bytes) => write!(f, "; at the end of the run {} were allocated", size(bytes))?,
            None => write!(f, "; the bytes allocated at the end of the run are not known")?,
        }
        if self.failed_count > 0 {
            write!(f, ". Memory ran out: without marks, filling up on purpose and leaking look alike")?;
        }
        Ok(())
    }
}

fn of<'a>(memory: &Overview, growth: &'a Growth) -> Leak<'a> {
    let held = memory.review.end.allocators.iter();
    let end = held.clone().find(|held| (held.pid, held.device) == (growth.pid, growth.device));
    let is_marked = matches!(growth.epochs.origin, Origin::Ranges | Origin::Moments);
    let failed = memory.review.history.ooms.iter().filter(|oom| oom.pid == growth.pid && !is_marked);
    Leak {
        growth,
        end_bytes: end.map(|held| held.allocated_bytes + held.outside_bytes),
        failed_count: failed.count(),
    }
}

/// Returns the leak of each allocator that retained memory across epochs.
pub(super) fn found(memory: &Overview) -> impl Iterator<Item = Leak<'_>> {
    let leaking = memory.growth.iter().filter(|growth| growth.account.leaked_bytes > 0);
    leaking.map(|growth| of(memory, growth))
}

/// Builds the table of all allocators.
pub(super) fn table(memory: &Overview) -> Table {
    let row = |growth: &Growth| -> Row {
        let of = of(memory, growth);
        let mut row = Row::from(vec![
            growth.pid.into(),
            growth.device.into(),
            growth.verdict.name().into(),
            growth.epochs_count.into(),
            size(growth.account.leaked_bytes).into(),
            size(growth.account.kept_once_bytes).into(),
            size(growth.account.after_bytes).into(),
            of.end_bytes.map_or_else(|| Cell::from("not known"), |bytes| size(bytes).into()),
        ]);
        row.note = growth.reasons.join("; ");
        if growth.account.leaked_bytes > 0 {
            row.note += &format!(". {of}");
        }
        row
    };
    let columns = [
        number("Process"),
        number("Device"),
        whole("Verdict"),
        number("Epochs"),
        number("Leaked"),
        number("One-off retention"),
        number("Live after the epochs"),
        number("Live at the end"),
    ];
    Table::new(&columns, memory.growth.iter().map(row).collect(), "SELECT * FROM leaks")
}
