//! The interval of a row, as expressions of the row's columns.

use std::fmt;

use datafusion::physical_expr::PhysicalExprRef;

/// The interval that a row of one side spans: `[start, end)` if it is open, else `[start, end]`. It overlaps
/// another interval if each starts before the other ends, or starts exactly at the other's end and that end
/// is not open.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) start: PhysicalExprRef,
    pub(super) end: PhysicalExprRef,
    pub(super) is_open: bool,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}{}", self.start, self.end, if self.is_open { ')' } else { ']' })
    }
}
