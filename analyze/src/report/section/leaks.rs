//! Memory that a program keeps, by the evidence: across epochs, and until the end of the run.

use std::fmt;

use super::size;
use crate::{
    questions::memory::overview::Overview,
    report::document::{Row, Table, number, whole},
};
use analyze_memory::leaks::{epochs::Origin, growth::Growth};

/// Bytes retained epoch after epoch, and what became of them.
pub(in crate::report) struct Leak<'a> {
    /// Growth of the allocator's memory across epochs.
    pub growth: &'a Growth,
}

impl<'a> Leak<'a> {
    /// Returns the leak of an allocator; `None` if it retained no memory across epochs.
    pub(in crate::report) fn of(growth: &'a Growth) -> Option<Self> {
        (growth.account.leaked_bytes > 0).then_some(Self { growth })
    }
}

impl fmt::Display for Leak<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Growth { account, epochs, epochs_count, end_bytes, failed_count, .. } = self.growth;
        let (leaked_bytes, end) = (account.leaked_bytes, size(*end_bytes));
        let is_marked = matches!(epochs.origin, Origin::Ranges | Origin::Moments);
        write!(f, "{} were retained over {epochs_count} epochs", size(leaked_bytes))?;
        if !is_marked {
            write!(f, " (equal numbers of allocations: the program marks none)")?;
        }
        write!(f, "; at the end of the run {end} were allocated")?;
        if *end_bytes < leaked_bytes {
            write!(
                f,
                ", so at least {} of them were freed after the last epoch: a program that fills up and is emptied looks the same until then",
                size(leaked_bytes - end_bytes)
            )?;
        }
        if *failed_count > 0 && !is_marked {
            write!(f, ". Memory ran out: without marks, filling up on purpose and leaking look alike")?;
        }
        Ok(())
    }
}

/// Returns the leak of each allocator that retained memory across epochs.
pub(super) fn found(memory: &Overview) -> impl Iterator<Item = Leak<'_>> {
    memory.growth.iter().filter_map(Leak::of)
}

/// Builds the table of all allocators.
pub(super) fn table(memory: &Overview) -> Table {
    let row = |growth: &Growth| -> Row {
        let mut row = Row::from(vec![
            growth.pid.into(),
            growth.device.into(),
            growth.verdict.name().into(),
            growth.epochs_count.into(),
            size(growth.account.leaked_bytes).into(),
            size(growth.account.kept_once_bytes).into(),
            size(growth.account.after_bytes).into(),
            size(growth.end_bytes).into(),
        ]);
        row.note = growth.reasons.join("; ");
        if let Some(leak) = Leak::of(growth) {
            row.note += &format!(". {leak}");
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
