//! Rows of another query beside those of a first one, where both come in the order of time. Only the rows of one moment and
//! of one batch are in memory, so that neither side need be small, as one of a join must be.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use arrow::array::RecordBatch;
use futures::TryStreamExt;

use analyze_run::{error::AnalyzeError, events::Batches};

/// A row of the other query: its time in ns, what it belongs to, and what it says.
pub(super) type Row<K, V> = (i64, K, V);

/// Reads the rows of a batch.
type Read<K, V> = fn(&RecordBatch) -> Result<Vec<Row<K, V>>, AnalyzeError>;

/// The rows of the other query, of which those of one moment can be looked up.
pub(super) struct Beside<K, V> {
    /// The batches to come; `None` after the last.
    batches: Option<Batches>,
    read: Read<K, V>,
    waiting: VecDeque<Row<K, V>>,
    /// The moment in ns; `None` before the first.
    ts: Option<i64>,
    found: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Beside<K, V> {
    /// Takes the answer of the other query, which must be in the order of time, and what reads the rows of a batch.
    pub(super) fn new(batches: Batches, read: Read<K, V>) -> Self {
        Self { batches: Some(batches), read, waiting: VecDeque::new(), ts: None, found: HashMap::new() }
    }

    /// Goes on to the moment `ts` (ns), which must not be earlier than the one before.
    ///
    /// # Errors
    /// Returns an error if the other query cannot be answered.
    pub(super) async fn advance(&mut self, ts: i64) -> Result<(), AnalyzeError> {
        if self.ts == Some(ts) {
            return Ok(());
        }
        self.ts = Some(ts);
        self.found.clear();
        loop {
            while self.waiting.front().is_some_and(|(of, ..)| *of <= ts) {
                if let Some((of, key, value)) = self.waiting.pop_front()
                    && of == ts
                {
                    self.found.insert(key, value);
                }
            }
            if !self.waiting.is_empty() {
                return Ok(());
            }
            let Some(batches) = &mut self.batches else { return Ok(()) };
            match batches.try_next().await? {
                Some(batch) => self.waiting.extend((self.read)(&batch)?),
                None => self.batches = None,
            }
        }
    }

    /// Returns whether the other query has no row of the moment, as it mostly has: no key need be made then.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns what the row of the moment says that belongs to `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.found.get(key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use futures::{StreamExt, stream};

    use super::*;
    use analyze_run::columns::integers;

    fn read(batch: &RecordBatch) -> Result<Vec<Row<i64, i64>>, AnalyzeError> {
        let (ts, key) = (integers(batch, "ts")?, integers(batch, "key")?);
        Ok((0..batch.num_rows()).map(|row| (ts.value(row), key.value(row), row as i64)).collect())
    }

    #[tokio::test]
    async fn rows_of_a_moment_are_found_across_batches_and_others_are_not() {
        let batch = |ts: &[i64], keys: &[i64]| {
            let column = |values: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
            RecordBatch::try_from_iter([("ts", column(ts)), ("key", column(keys))]).unwrap()
        };
        let batches =
            vec![Ok(batch(&[1, 4, 5], &[7, 7, 1])), Ok(batch(&[], &[])), Ok(batch(&[5, 9], &[2, 3]))];
        let mut beside = Beside::new(stream::iter(batches).boxed(), read);
        let mut found = Vec::new();
        for ts in [4, 5, 5, 6, 9, 10, 11] {
            beside.advance(ts).await.unwrap();
            found.push([7, 1, 2, 3].map(|key| beside.get(&key).copied()));
        }
        let none = [None; 4];
        let at_5 = [None, Some(2), Some(0), None];
        assert_eq!(
            found,
            [[Some(1), None, None, None], at_5, at_5, none, [None, None, None, Some(1)], none, none]
        );
    }
}
