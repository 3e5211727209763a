//! Runs one partition of an interval join: reads both inputs, sweeps them, and gathers the columns of the
//! pairs.
//!
//! ```text
//! slots   [ batch ][ batch ][ active rows of earlier batches ][ batch ] ◄─ next
//!              ▲          ▲   pairs point at (slot, row)
//! ```
//!
//! A batch stays in its slot while rows of it can still match. When few of the kept rows can, these are
//! copied together, so that one long interval does not keep its whole batch.

use std::collections::HashMap;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array},
    buffer::NullBuffer,
    compute::{filter, filter_record_batch, interleave, interleave_record_batch, partition, take_arrays},
    datatypes::SchemaRef,
    row::{RowConverter, Rows},
};
use datafusion::{
    common::{internal_err, utils::memory::get_record_batch_memory_size},
    error::Result,
    execution::{SendableRecordBatchStream, memory_pool::MemoryReservation},
    physical_expr::PhysicalExprRef,
    physical_plan::{
        joins::utils::JoinFilter,
        metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, RecordOutput},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::StreamExt;

use super::{
    interval::Interval,
    ordinal::ordinals,
    sweep::{ACTIVE_BYTES, Chunk, Last, Pairs, Place, Step, Sweep},
};

/// One sorted input.
pub(super) struct Input {
    pub(super) stream: SendableRecordBatchStream,
    pub(super) keys: Vec<PhysicalExprRef>,
    pub(super) interval: Interval,
}

/// The columns of each side that are kept, and which of them are returned and filtered by, as (side, kept
/// column).
pub(super) struct Layout {
    kept: [Vec<usize>; 2],
    output: Vec<(usize, usize)>,
    filter_columns: Vec<(usize, usize)>,
    schema: SchemaRef,
    filter: Option<JoinFilter>,
}

impl Layout {
    /// Creates the layout from the columns that are returned and filtered by, as (side, column of the input).
    pub(super) fn new(
        mut output: Vec<(usize, usize)>,
        mut filter_columns: Vec<(usize, usize)>,
        schema: SchemaRef,
        filter: Option<JoinFilter>,
    ) -> Self {
        let mut kept = [Vec::new(), Vec::new()];
        for (side, column) in output.iter_mut().chain(&mut filter_columns) {
            let kept: &mut Vec<usize> = &mut kept[*side];
            let known = kept.iter().position(|one| one == column);
            if known.is_none() {
                kept.push(*column);
            }
            *column = known.unwrap_or(kept.len() - 1);
        }
        Self { kept, output, filter_columns, schema, filter }
    }
}

/// The batches of one side that are still needed.
#[derive(Default)]
struct Slots {
    batches: Vec<Option<RecordBatch>>,
    free: Vec<usize>,
    rows: usize,
    bytes: usize,
    // The number of batches at which the rows that can still match are copied together.
    compact_at: usize,
}

/// The number of batches that may be kept before the needed ones are determined.
const FEW_SLOTS: usize = 16;

impl Slots {
    fn put(&mut self, batch: RecordBatch) -> usize {
        self.rows += batch.num_rows();
        self.bytes += get_record_batch_memory_size(&batch);
        let slot = self.free.pop().unwrap_or(self.batches.len());
        if slot == self.batches.len() {
            self.batches.push(None);
        }
        self.batches[slot] = Some(batch);
        slot
    }

    fn len(&self) -> usize {
        self.batches.len() - self.free.len()
    }

    fn keep(&mut self, is_used: impl Fn(usize) -> bool) {
        for slot in 0..self.batches.len() {
            if !is_used(slot)
                && let Some(batch) = self.batches[slot].take()
            {
                self.rows -= batch.num_rows();
                self.bytes -= get_record_batch_memory_size(&batch);
                self.free.push(slot);
            }
        }
    }

    /// Returns the kept batches, and the index of each slot among them.
    fn packed(&self) -> (Vec<&RecordBatch>, Vec<usize>) {
        let mut numbers = Vec::with_capacity(self.batches.len());
        let mut batches = Vec::with_capacity(self.len());
        for batch in &self.batches {
            numbers.push(batches.len());
            batches.extend(batch);
        }
        (batches, numbers)
    }
}

/// Numbers the distinct combinations of keys, for inputs that are sorted by start alone.
pub(super) struct Groups {
    converter: RowConverter,
    rows: Rows,
    numbers: HashMap<Box<[u8]>, u32>,
    // The bytes that the keys take, including an entry for each.
    bytes: usize,
}

impl Groups {
    pub(super) fn new(converter: RowConverter) -> Self {
        let rows = converter.empty_rows(0, 0);
        Self { converter, rows, numbers: HashMap::default(), bytes: 0 }
    }

    fn of(&mut self, keys: &[ArrayRef]) -> Result<Vec<u32>> {
        self.rows.clear();
        self.converter.append(&mut self.rows, keys)?;
        let mut numbers = Vec::with_capacity(self.rows.num_rows());
        for row in &self.rows {
            let key: &[u8] = row.as_ref();
            numbers.push(match self.numbers.get(key) {
                Some(number) => *number,
                None => {
                    let Ok(number) = u32::try_from(self.numbers.len()) else {
                        return internal_err!("more keys than an interval join can number");
                    };
                    self.bytes += key.len() + 2 * size_of::<(Box<[u8]>, u32)>();
                    self.numbers.insert(key.into(), number);
                    number
                }
            });
        }
        Ok(numbers)
    }
}

/// How rows with equal keys are found.
pub(super) enum Keys {
    /// The join has no equality keys.
    None,
    /// The inputs are sorted by their keys.
    Sorted(RowConverter),
    /// The inputs are sorted by start alone, so each row gets the number of its keys.
    Numbered(Groups),
}

struct Running {
    inputs: [Input; 2],
    layout: Layout,
    keys: Keys,
    memory: MemoryReservation,
    batch_size: usize,
    sweep: Sweep,
    slots: [Slots; 2],
    // The last keys and start read from each side.
    last: [Option<Last>; 2],
    // The bytes of the chunk of each side that is being swept, including room to make all its rows active.
    chunk_bytes: [usize; 2],
    // The pairs whose residual filter has not been evaluated, and those that passed it.
    candidates: Pairs,
    passed: Pairs,
    is_done: bool,
    metrics: BaselineMetrics,
    candidate_count: Count,
    peak: Gauge,
}

/// Runs one partition of the join.
pub(super) fn join(
    inputs: [Input; 2],
    layout: Layout,
    keys: Keys,
    memory: MemoryReservation,
    batch_size: usize,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> SendableRecordBatchStream {
    let schema = layout.schema.clone();
    let running = Running {
        inputs,
        layout,
        keys,
        memory,
        batch_size: batch_size.max(1),
        sweep: Sweep::default(),
        slots: Default::default(),
        last: [None, None],
        chunk_bytes: [0; 2],
        candidates: Pairs::default(),
        passed: Pairs::default(),
        is_done: false,
        metrics: BaselineMetrics::new(metrics, partition),
        candidate_count: MetricBuilder::new(metrics).counter("candidates", partition),
        peak: MetricBuilder::new(metrics).gauge("peak_mem_used", partition),
    };
    let stream = futures::stream::try_unfold(running, |mut running| async move {
        Ok(running.next().await?.map(|batch| (batch, running)))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

impl Running {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.is_done {
            let compute = self.metrics.elapsed_compute().clone();
            let timer = compute.timer();
            let limit = self.batch_size - self.passed.len().min(self.batch_size - 1);
            let step = self.sweep.advance(&mut self.candidates, limit);
            let is_crowded = self.slots.iter().any(|slots| slots.len() >= slots.compact_at.max(FEW_SLOTS));
            self.is_done = step == Step::Done;
            let output = match step {
                Step::Full => self.flush(false)?,
                Step::Needs(_) if !is_crowded => None,
                Step::Needs(_) | Step::Done => self.flush(true)?,
            };
            if let (Step::Needs(_), true) = (step, is_crowded) {
                self.tidy()?;
            }
            timer.done();
            if let Step::Needs(side) = step {
                self.fetch(side).await?;
            }
            if output.is_some() {
                return Ok(output.record_output(&self.metrics));
            }
            // If the filter passes no pairs, this loop is the only place that can yield to other tasks.
            tokio::task::consume_budget().await;
        }
        self.metrics.done();
        Ok(None)
    }

    /// Reads the next batch of a side that has rows which can match.
    async fn fetch(&mut self, side: usize) -> Result<()> {
        while let Some(batch) = self.inputs[side].stream.next().await {
            let compute = self.metrics.elapsed_compute().clone();
            let _timer = compute.timer();
            if let Some((chunk, batch)) = self.prepare(side, batch?)? {
                if !chunk.is_sorted(self.last[side].as_ref()) {
                    return internal_err!("an input of an interval join is not sorted by its keys and start");
                }
                self.last[side] = chunk.last();
                self.chunk_bytes[side] = (chunk.starts.len() * 2 + chunk.runs.len()) * 8
                    + chunk.keys.as_ref().map_or(0, |keys| keys.size())
                    + chunk.groups.as_ref().map_or(0, |groups| groups.len() * 4)
                    + batch.num_rows() * ACTIVE_BYTES;
                let slot = self.slots[side].put(batch);
                self.sweep.add(side, Chunk { slot, ..chunk });
                return self.account();
            }
        }
        self.sweep.finish(side);
        self.chunk_bytes[side] = 0;
        self.account()
    }

    /// Registers the memory that is kept with the memory pool.
    fn account(&mut self) -> Result<()> {
        let batches = self.slots.iter().map(|slots| slots.bytes).sum::<usize>();
        let groups = match &self.keys {
            Keys::Numbered(groups) => groups.bytes + groups.rows.size(),
            Keys::None | Keys::Sorted(_) => 0,
        };
        let bytes = batches + self.chunk_bytes.iter().sum::<usize>() + self.sweep.bytes() + groups;
        self.memory.try_resize(bytes)?;
        self.peak.set_max(bytes);
        Ok(())
    }

    /// Evaluates the keys, starts and ends of a batch once, and drops the rows that can match nothing.
    fn prepare(&mut self, side: usize, batch: RecordBatch) -> Result<Option<(Chunk, RecordBatch)>> {
        let Input { keys, interval, .. } = &self.inputs[side];
        let rows = batch.num_rows();
        let evaluate = |expr: &PhysicalExprRef| expr.evaluate(&batch)?.into_array(rows);
        let mut keys = keys.iter().map(evaluate).collect::<Result<Vec<ArrayRef>>>()?;
        let bounds = [evaluate(&interval.start)?, evaluate(&interval.end)?];
        let mut valid: Option<NullBuffer> = None;
        for column in keys.iter().chain(&bounds) {
            valid = NullBuffer::union(valid.as_ref(), column.logical_nulls().as_ref());
        }
        let [mut starts, mut ends] = [ordinals(&bounds[0])?, ordinals(&bounds[1])?];
        if interval.is_open {
            // Nothing lies before the least value. For inclusive ends, the last time is the one before the
            // open end.
            if ends.contains(&i64::MIN) {
                let some = NullBuffer::from_iter(ends.iter().map(|end| *end != i64::MIN));
                valid = NullBuffer::union(valid.as_ref(), Some(&some));
            }
            ends = ends.iter().map(|end| end.saturating_sub(1)).collect();
        }
        let mut batch = batch.project(&self.layout.kept[side])?;
        if let Some(valid) = valid.filter(|valid| valid.null_count() > 0) {
            let mask = BooleanArray::new(valid.inner().clone(), None);
            batch = filter_record_batch(&batch, &mask)?;
            keys = keys.iter().map(|key| filter(key, &mask)).collect::<Result<_, _>>()?;
            starts = valid.valid_indices().map(|row| starts[row]).collect();
            ends = valid.valid_indices().map(|row| ends[row]).collect();
        }
        if starts.is_empty() {
            return Ok(None);
        }
        let mut chunk = Chunk { slot: 0, runs: vec![starts.len()], keys: None, groups: None, starts, ends };
        match &mut self.keys {
            Keys::None => (),
            Keys::Sorted(converter) => {
                let runs = partition(&keys)?.ranges();
                let firsts = UInt64Array::from_iter_values(runs.iter().map(|run| run.start as u64));
                chunk.keys = Some(converter.convert_columns(&take_arrays(&keys, &firsts, None)?)?);
                chunk.runs = runs.iter().map(|run| run.end).collect();
            }
            Keys::Numbered(groups) => chunk.groups = Some(groups.of(&keys)?),
        }
        Ok(Some((chunk, batch)))
    }

    /// Filters the candidates, and returns the pairs that passed if there are enough of them or `all` is set.
    fn flush(&mut self, all: bool) -> Result<Option<RecordBatch>> {
        self.candidate_count.add(self.candidates.len());
        match &self.layout.filter {
            None => std::mem::swap(&mut self.candidates, &mut self.passed),
            Some(filter) if self.candidates.len() > 0 => {
                let columns = self.gather(&self.candidates, &self.layout.filter_columns)?;
                let rows = RecordBatchOptions::new().with_row_count(Some(self.candidates.len()));
                let batch = RecordBatch::try_new_with_options(filter.schema().clone(), columns, &rows)?;
                let verdict = filter.expression().evaluate(&batch)?.into_array(batch.num_rows())?;
                let verdict = verdict.as_boolean();
                let passes = |row: usize| verdict.is_valid(row) && verdict.value(row);
                for (from, to) in self.candidates.0.iter().zip(&mut self.passed.0) {
                    to.extend(
                        from.iter().enumerate().filter(|(row, _)| passes(*row)).map(|(_, place)| *place),
                    );
                }
                self.candidates.clear();
            }
            Some(_) => (),
        }
        let count = self.passed.len();
        if count == 0 || (!all && count < self.batch_size.div_ceil(2)) {
            return Ok(None);
        }
        let columns = self.gather(&self.passed, &self.layout.output)?;
        self.passed.clear();
        let rows = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(Some(RecordBatch::try_new_with_options(self.layout.schema.clone(), columns, &rows)?))
    }

    fn gather(&self, pairs: &Pairs, columns: &[(usize, usize)]) -> Result<Vec<ArrayRef>> {
        let packed = [self.slots[0].packed(), self.slots[1].packed()];
        let places = |side: usize| -> Vec<Place> {
            pairs.0[side].iter().map(|(slot, row)| (packed[side].1[*slot], *row)).collect()
        };
        let places = [places(0), places(1)];
        let column = |(side, column): &(usize, usize)| -> Result<ArrayRef> {
            let arrays: Vec<&dyn Array> =
                packed[*side].0.iter().map(|batch| batch.column(*column).as_ref()).collect();
            Ok(interleave(&arrays, &places[*side])?)
        };
        columns.iter().map(column).collect()
    }

    /// Drops batches without rows that can still match, and copies these rows together if they are few. No
    /// pairs may be pending.
    fn tidy(&mut self) -> Result<()> {
        for side in 0..2 {
            self.slots[side].keep(|slot| self.sweep.uses(side, slot));
            if self.slots[side].len() >= FEW_SLOTS && self.slots[side].rows > 4 * self.sweep.active(side) {
                self.compact(side)?;
            }
            self.slots[side].compact_at = 2 * self.slots[side].len();
        }
        self.account()
    }

    fn compact(&mut self, side: usize) -> Result<()> {
        let places = self.sweep.places(side);
        let mut moved = Vec::with_capacity(places.len());
        let mut compacted = Vec::new();
        let (batches, numbers) = self.slots[side].packed();
        for places in places.chunks(self.batch_size) {
            let places: Vec<Place> = places.iter().map(|(slot, row)| (numbers[*slot], *row)).collect();
            compacted.push(if self.layout.kept[side].is_empty() {
                let rows = RecordBatchOptions::new().with_row_count(Some(places.len()));
                RecordBatch::try_new_with_options(batches[0].schema(), vec![], &rows)?
            } else {
                interleave_record_batch(&batches, &places)?
            });
        }
        for batch in compacted {
            let rows = batch.num_rows();
            let slot = self.slots[side].put(batch);
            moved.extend((0..rows).map(|row| (slot, row)));
        }
        self.sweep.moved(side, moved.into_iter());
        self.slots[side].keep(|slot| self.sweep.uses(side, slot));
        Ok(())
    }
}
