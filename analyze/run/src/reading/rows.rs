//! Rows of `events` as typed columns. Strings are numbers, and absent columns are null.

use std::{collections::HashMap, ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, Int64Array, PrimitiveArray,
        RecordBatch, StringArray,
    },
    buffer::{NullBuffer, ScalarBuffer},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Int32Type, Int64Type, UInt32Type, UInt64Type},
};
use trace_schema::{Class, Kind as EventKind, Op};

use crate::error::AnalyzeError;

/// A table of distinct strings, each with a number.
#[derive(Debug, Default)]
pub struct Names {
    names: Vec<Arc<str>>,
    ops: Vec<Option<Op>>,
    classes: Vec<Option<Class>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Names {
    /// Returns the number of a name, which is added if it is new.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        let op = Op::from_name(&name);
        self.ops.push(op);
        self.classes.push(op.map(Op::class));
        self.numbers.insert(name, number);
        number
    }

    /// Returns the number of a name, or `None` if it has not been added.
    pub fn known(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the name with this number, or an empty string if there is none.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", AsRef::as_ref)
    }

    /// Returns the function with this name, if it is a known one.
    pub fn op(&self, number: u32) -> Option<Op> {
        self.ops.get(number as usize).copied().flatten()
    }

    /// Returns the class of the function with this name, if it is a known one.
    pub fn class(&self, number: u32) -> Option<Class> {
        self.classes.get(number as usize).copied().flatten()
    }
}

/// The kind of a row, as far as readers distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call of a CUDA or NCCL function.
    Call,
    /// An off-CPU interval of a traced thread.
    OffCpu,
    /// A scheduling slice of a task on a CPU.
    SchedulingSlice,
    /// A phase that the workload named.
    Mark,
    /// An event of PyTorch's allocator, or a row of its state.
    Alloc,
    /// A row of another kind.
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        let is = |kind: EventKind| kind.name() == name;
        match () {
            () if is(EventKind::Call) => Self::Call,
            () if is(EventKind::OffCpu) => Self::OffCpu,
            () if is(EventKind::Run) => Self::SchedulingSlice,
            () if is(EventKind::Mark) => Self::Mark,
            () if is(EventKind::Alloc) => Self::Alloc,
            () => Self::Other,
        }
    }
}

/// A column of numbers, which is null everywhere if it was not read.
#[derive(Debug)]
pub struct Number<T: ArrowPrimitiveType> {
    /// The values, empty if the column was not read.
    values: ScalarBuffer<T::Native>,
    nulls: Option<NullBuffer>,
}

impl<T: ArrowPrimitiveType> Number<T> {
    fn new(array: Option<&PrimitiveArray<T>>) -> Self {
        Self {
            values: array.map_or_else(|| Vec::new().into(), |array| array.values().clone()),
            nulls: array.and_then(|array| array.nulls().cloned()),
        }
    }

    /// Returns the value at `row`, or `None` if it is null or the column was not read.
    #[inline]
    pub fn at(&self, row: usize) -> Option<T::Native> {
        // The value is read whether it is null or not, so that the processor has no branch to predict.
        let value = *self.values.get(row)?;
        self.is_valid(row).then_some(value)
    }

    #[inline]
    fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }
}

/// A column of strings, which is null everywhere if it was not read.
#[derive(Debug)]
pub struct Text {
    keys: Number<Int32Type>,
    values: StringArray,
    /// The number of each value; empty if the column's strings are not numbered.
    numbers: Arc<[u32]>,
}

impl Text {
    /// Returns the number of the string at `row`, or `None` if it is null, or if the column was not read or
    /// is not numbered.
    #[inline]
    pub fn at(&self, row: usize) -> Option<u32> {
        let key = *self.keys.values.get(row)?;
        let number = *self.numbers.get(key as usize)?;
        self.keys.is_valid(row).then_some(number)
    }

    /// Returns the string at `row`, or `None` if it is null or the column was not read.
    pub fn text(&self, row: usize) -> Option<&str> {
        let key = usize::try_from(self.keys.at(row)?).ok().filter(|key| *key < self.values.len())?;
        Some(self.values.value(key))
    }
}

/// Dictionaries whose strings have been numbered, by column: the batches of one row group share their
/// dictionaries.
#[derive(Debug, Default)]
pub struct Known(HashMap<&'static str, (StringArray, Arc<[u32]>)>);

/// A batch of rows. The columns are those of `events` with the same names.
#[derive(Debug)]
pub struct Rows {
    kinds: Vec<Kind>,
    /// The start of the span, or the time of the point, in ns.
    pub ts: Int64Array,
    /// The length of the span in ns; null for points and for spans that were still open at the end.
    pub dur: Number<Int64Type>,
    /// The operation: the function called, the allocator's action, or the scheduler state at switch-out.
    pub op: Text,
    /// The process id.
    pub pid: Number<UInt32Type>,
    /// The thread id.
    pub tid: Number<UInt32Type>,
    /// The name of the thread.
    pub comm: Text,
    /// The CPU in whose queue the thread waited or that it left; of a scheduling slice, the CPU of the slice.
    pub cpu: Number<UInt32Type>,
    /// The return code of a call; 0 is success.
    pub ret: Number<Int32Type>,
    /// The address that a call is about. For the allocator's `oom`, the bytes that were free on the device.
    pub addr: Number<UInt64Type>,
    /// The source address of a copy, or the handle of the physical memory of a `cuMemMap`.
    pub src_addr: Number<UInt64Type>,
    /// The size of the allocation, copy, mapping or exchange in bytes.
    pub size_bytes: Number<Int64Type>,
    /// The direction of a copy, as in `h2d`.
    pub direction: Text,
    /// The handle of the CUDA stream; null for the default stream.
    pub stream: Number<UInt64Type>,
    /// The handle of the kernel of a launch, of a graph, or of an event.
    pub func: Number<UInt64Type>,
    /// The file name of the library or program that made the call.
    pub caller: Text,
    /// The part of an off-CPU time in which the thread was runnable, in ns.
    pub runnable_ns: Number<Int64Type>,
    /// The number of the system call that an off-CPU thread was in; null if none.
    pub syscall: Number<Int32Type>,
    /// The process that woke an off-CPU thread; 0 for an interrupt.
    pub waker_pid: Number<UInt32Type>,
    /// The thread that woke an off-CPU thread.
    pub waker_tid: Number<UInt32Type>,
    /// The name of the thread that woke an off-CPU thread.
    pub waker_comm: Text,
    /// The thread that got the CPU at switch-out; 0 for idle.
    pub next_tid: Number<UInt32Type>,
    /// The ordinal of the CUDA device.
    pub device: Number<Int32Type>,
    /// The reading of a sample in its own unit, or the size of a block of the allocator's state in bytes.
    pub value: Number<Int64Type>,
    /// The first half of the id of a private memory pool; null for the default pool.
    pub pool_owner: Number<UInt64Type>,
    /// The second half of the id of a private memory pool; null for the default pool.
    pub pool_id: Number<UInt64Type>,
    /// The number of the call stack.
    pub stack: Number<UInt32Type>,
    /// Further text of the row. Its strings are not numbered, because few of the rows that matter have it.
    pub detail: Text,
}

fn column(batch: &RecordBatch, name: &str, ty: &DataType) -> Result<Option<ArrayRef>, AnalyzeError> {
    let Some(array) = batch.column_by_name(name) else { return Ok(None) };
    if array.data_type() == ty {
        return Ok(Some(Arc::clone(array)));
    }
    // A value that does not fit is an error, and no null.
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let damaged = |error| AnalyzeError::Damaged(format!("column {name}: {error}"));
    cast_with_options(array, ty, &strict).map(Some).map_err(damaged)
}

fn number<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Result<Number<T>, AnalyzeError> {
    let array = column(batch, name, &T::DATA_TYPE)?;
    Ok(Number::new(array.as_ref().map(|array| array.as_primitive::<T>())))
}

fn text(batch: &RecordBatch, name: &str) -> Result<Text, AnalyzeError> {
    let ty = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let array = column(batch, name, &ty)?;
    let array: Option<&DictionaryArray<Int32Type>> = array.as_ref().map(|array| array.as_dictionary());
    Ok(Text {
        keys: Number::new(array.map(DictionaryArray::keys)),
        values: array.map_or_else(|| StringArray::new_null(0), |array| array.values().as_string().clone()),
        numbers: Arc::new([]),
    })
}

/// Returns the kind of each row.
fn kinds(text: &Text) -> Vec<Kind> {
    let known: Vec<Kind> = text.values.iter().map(|value| Kind::of(value.unwrap_or(""))).collect();
    let of = |key: i32| known.get(key as usize).copied().unwrap_or(Kind::Other);
    let Number { values, nulls } = &text.keys;
    match nulls.as_ref().filter(|nulls| nulls.null_count() > 0) {
        None => values.iter().map(|key| of(*key)).collect(),
        Some(_) => (0..values.len()).map(|row| text.keys.at(row).map_or(Kind::Other, of)).collect(),
    }
}

fn is_same(a: &StringArray, b: &StringArray) -> bool {
    a.len() == b.len()
        && a.value_data().as_ptr() == b.value_data().as_ptr()
        && a.offsets().ptr_eq(b.offsets())
}

impl Rows {
    /// Reads the columns of a batch and numbers its strings in `names`. `known` keeps the numbers of the
    /// dictionaries that the batches of a row group share.
    ///
    /// # Errors
    /// Returns an error if a column cannot be cast to its type, or if `kind` or `ts` is missing.
    pub fn new(batch: &RecordBatch, names: &mut Names, known: &mut Known) -> Result<Self, AnalyzeError> {
        let mut numbered = |name: &'static str| -> Result<Text, AnalyzeError> {
            let text = text(batch, name)?;
            let numbers = match known.0.get(name) {
                Some((values, numbers)) if is_same(values, &text.values) => Arc::clone(numbers),
                _ => {
                    let numbers: Arc<[u32]> =
                        text.values.iter().map(|value| names.number(value.unwrap_or(""))).collect();
                    known.0.insert(name, (text.values.clone(), Arc::clone(&numbers)));
                    numbers
                }
            };
            Ok(Text { numbers, ..text })
        };
        let (op, direction, caller) = (numbered("op")?, numbered("direction")?, numbered("caller")?);
        let (comm, waker_comm) = (numbered("comm")?, numbered("waker_comm")?);
        let absent = |name: &str| AnalyzeError::Damaged(format!("column {name} is missing"));
        batch.column_by_name("kind").ok_or_else(|| absent("kind"))?;
        Ok(Self {
            kinds: kinds(&text(batch, "kind")?),
            ts: column(batch, "ts", &DataType::Int64)?.ok_or_else(|| absent("ts"))?.as_primitive().clone(),
            dur: number(batch, "dur")?,
            op,
            pid: number(batch, "pid")?,
            tid: number(batch, "tid")?,
            comm,
            cpu: number(batch, "cpu")?,
            ret: number(batch, "ret")?,
            addr: number(batch, "addr")?,
            src_addr: number(batch, "src_addr")?,
            size_bytes: number(batch, "size_bytes")?,
            direction,
            stream: number(batch, "stream")?,
            func: number(batch, "func")?,
            caller,
            runnable_ns: number(batch, "runnable_ns")?,
            syscall: number(batch, "syscall")?,
            waker_pid: number(batch, "waker_pid")?,
            waker_tid: number(batch, "waker_tid")?,
            waker_comm,
            next_tid: number(batch, "next_tid")?,
            device: number(batch, "device")?,
            value: number(batch, "value")?,
            pool_owner: number(batch, "pool_owner")?,
            pool_id: number(batch, "pool_id")?,
            stack: number(batch, "stack")?,
            detail: text(batch, "detail")?,
        })
    }

    /// Returns the kind of a row.
    #[inline]
    pub fn kind(&self, row: usize) -> Kind {
        self.kinds.get(row).copied().unwrap_or(Kind::Other)
    }

    /// Replaces the content of `picked` by the indices of the rows in `range` that concern threads and CPUs,
    /// not memory.
    pub fn pick(&self, range: Range<usize>, picked: &mut Vec<u32>) {
        picked.clear();
        picked.resize(range.len(), 0);
        let mut count = 0;
        for (row, kind) in range.clone().zip(&self.kinds[range]) {
            // The index is written whether it is kept or not, for the same reason as in `Number::at`.
            picked[count] = row as u32;
            count += usize::from(!matches!(kind, Kind::Alloc | Kind::Other));
        }
        picked.truncate(count);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
