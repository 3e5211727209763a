//! Merges the rows of several runs by time, batch by batch.

use std::collections::HashSet;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::{Int64Type, UInt32Type, UInt64Type},
};
use trace_schema::Kind;

use super::{numbers, texts};
use analyze_run::{columns::Cell, error::AnalyzeError};

/// Identity of a name row: process, time, kind of name, function, stack, and the name itself.
type Name = (u32, i64, String, Option<u64>, Option<u32>, String);

/// Merges the batches of all inputs by their start times.
pub(super) struct InOrder<I: Iterator> {
    inputs: Vec<std::iter::Peekable<I>>,
    names: HashSet<Name>,
}

impl<I: Iterator<Item = Result<RecordBatch, AnalyzeError>>> InOrder<I> {
    /// Makes it of the inputs, each in order of time.
    pub(super) fn new(inputs: Vec<I>) -> Self {
        Self { inputs: inputs.into_iter().map(Iterator::peekable).collect(), names: HashSet::new() }
    }

    /// Removes name rows that another input already had.
    fn unique(&mut self, batch: &RecordBatch) -> Result<RecordBatch, AnalyzeError> {
        let kind = texts(batch, "kind")?;
        if !kind.iter().flatten().any(|kind| kind == Kind::Name.name()) {
            return Ok(batch.clone());
        }
        let (ts, pid) = (numbers::<Int64Type>(batch, "ts")?, numbers::<UInt32Type>(batch, "pid")?);
        let (op, detail) = (texts(batch, "op")?, texts(batch, "detail")?);
        let (func, stack) = (numbers::<UInt64Type>(batch, "func")?, numbers::<UInt32Type>(batch, "stack")?);
        let funcs: Vec<Option<u64>> = func.iter().collect();
        let stacks: Vec<Option<u32>> = stack.iter().collect();
        let mask: BooleanArray = (0..batch.num_rows())
            .map(|row| {
                let text = |texts: &arrow::array::StringArray| texts.at(row).unwrap_or_default().to_owned();
                let name = (pid.value(row), ts.value(row), text(&op), funcs[row], stacks[row], text(&detail));
                Some(kind.value(row) != Kind::Name.name() || self.names.insert(name))
            })
            .collect();
        filter_record_batch(batch, &mask).map_err(|error| AnalyzeError::Damaged(error.to_string()))
    }
}

impl<I: Iterator<Item = Result<RecordBatch, AnalyzeError>>> Iterator for InOrder<I> {
    type Item = Result<RecordBatch, AnalyzeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let begin = |batch: &Result<RecordBatch, AnalyzeError>| {
            let ts = batch.as_ref().ok().and_then(|batch| numbers::<Int64Type>(batch, "ts").ok());
            // An unreadable batch sorts first: its error ends the merge.
            ts.and_then(|ts| ts.values().first().copied()).unwrap_or(i64::MIN)
        };
        let firsts = self.inputs.iter_mut().enumerate();
        let begins = firsts.filter_map(|(number, input)| Some((begin(input.peek()?), number)));
        let (_, number) = begins.min()?;
        let batch = self.inputs.get_mut(number)?.next()?;
        Some(batch.and_then(|batch| self.unique(&batch)))
    }
}
