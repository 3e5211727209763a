//! Rows of `events` as typed columns: strings as numbers, absent columns as nulls.

use std::{collections::HashMap, ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, Int64Array, PrimitiveArray,
        RecordBatch, StringArray,
    },
    buffer::{NullBuffer, ScalarBuffer},
    compute::cast,
    datatypes::{DataType, Int32Type, Int64Type, UInt32Type, UInt64Type},
};
use trace_schema::{Class, Kind as EventKind, Op};

use crate::error::AnalyzeError;

/// Strings by number.
#[derive(Debug, Default)]
pub struct Names {
    names: Vec<Arc<str>>,
    ops: Vec<Option<Op>>,
    classes: Vec<Option<Class>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The number of a name, new or known.
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

    /// The number of a known name.
    pub fn known(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", AsRef::as_ref)
    }

    /// The function of that name, if it is a known one.
    pub fn op(&self, number: u32) -> Option<Op> {
        self.ops.get(number as usize).copied().flatten()
    }

    /// What that function is for.
    pub fn class(&self, number: u32) -> Option<Class> {
        self.classes.get(number as usize).copied().flatten()
    }
}

/// What a row is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Call,
    OffCpu,
    Stint,
    Mark,
    /// An event of PyTorch's allocator, or its state.
    Alloc,
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        let is = |kind: EventKind| kind.name() == name;
        match () {
            () if is(EventKind::Call) => Self::Call,
            () if is(EventKind::OffCpu) => Self::OffCpu,
            () if is(EventKind::Run) => Self::Stint,
            () if is(EventKind::Mark) => Self::Mark,
            () if is(EventKind::Alloc) => Self::Alloc,
            () => Self::Other,
        }
    }
}

/// A column of numbers, if it was read.
#[derive(Debug)]
pub struct Number<T: ArrowPrimitiveType> {
    /// Empty: it was not read.
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

    /// The value at `row`, if there is one.
    #[inline]
    pub fn at(&self, row: usize) -> Option<T::Native> {
        // Read whether it is null or not: there is nothing to guess for the processor then.
        let value = *self.values.get(row)?;
        self.is_valid(row).then_some(value)
    }

    #[inline]
    fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }
}

/// A column of strings, if it was read.
#[derive(Debug)]
pub struct Text {
    keys: Number<Int32Type>,
    values: StringArray,
    /// The number of each value; none: they have not been asked for.
    numbers: Arc<[u32]>,
}

impl Text {
    /// The number of the string at `row`.
    #[inline]
    pub fn at(&self, row: usize) -> Option<u32> {
        let key = *self.keys.values.get(row)?;
        let number = *self.numbers.get(key as usize)?;
        self.keys.is_valid(row).then_some(number)
    }

    /// The string at `row`.
    pub fn text(&self, row: usize) -> Option<&str> {
        let key = usize::try_from(self.keys.at(row)?).ok().filter(|key| *key < self.values.len())?;
        Some(self.values.value(key))
    }
}

/// Dictionaries whose strings have numbers: those of one row group come with every batch of it.
#[derive(Debug, Default)]
pub struct Known(HashMap<&'static str, (StringArray, Arc<[u32]>)>);

/// Rows.
#[derive(Debug)]
pub struct Rows {
    kinds: Vec<Kind>,
    pub ts: Int64Array,
    pub dur: Number<Int64Type>,
    pub op: Text,
    pub pid: Number<UInt32Type>,
    pub tid: Number<UInt32Type>,
    pub comm: Text,
    pub cpu: Number<UInt32Type>,
    pub ret: Number<Int32Type>,
    pub addr: Number<UInt64Type>,
    pub src_addr: Number<UInt64Type>,
    pub size_bytes: Number<Int64Type>,
    pub direction: Text,
    pub stream: Number<UInt64Type>,
    pub func: Number<UInt64Type>,
    pub caller: Text,
    pub runnable_ns: Number<Int64Type>,
    pub syscall: Number<Int32Type>,
    pub waker_pid: Number<UInt32Type>,
    pub waker_tid: Number<UInt32Type>,
    pub waker_comm: Text,
    pub next_tid: Number<UInt32Type>,
    pub device: Number<Int32Type>,
    pub value: Number<Int64Type>,
    pub pool_owner: Number<UInt64Type>,
    pub pool_id: Number<UInt64Type>,
    pub stack: Number<UInt32Type>,
    /// Has no numbers: few rows have it that matter.
    pub detail: Text,
}

fn column(batch: &RecordBatch, name: &str, ty: &DataType) -> Result<Option<ArrayRef>, AnalyzeError> {
    let Some(array) = batch.column_by_name(name) else { return Ok(None) };
    if array.data_type() == ty {
        return Ok(Some(Arc::clone(array)));
    }
    let damaged = |error| AnalyzeError::Damaged(format!("column {name}: {error}"));
    cast(array, ty).map(Some).map_err(damaged)
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

/// What each row is.
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
    /// The columns of a batch. Its strings get their numbers here.
    ///
    /// # Errors
    /// If a column has a type that does not become its own.
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

    /// What the row is.
    #[inline]
    pub fn kind(&self, row: usize) -> Kind {
        self.kinds.get(row).copied().unwrap_or(Kind::Other)
    }

    /// The numbers of those in `range` that are of threads and CPUs, not of memory.
    pub fn pick(&self, range: Range<usize>, picked: &mut Vec<u32>) {
        picked.clear();
        picked.resize(range.len(), 0);
        let mut count = 0;
        for (row, kind) in range.clone().zip(&self.kinds[range]) {
            // Written whether it is kept or not, for the same reason as in `Number::at`.
            picked[count] = row as u32;
            count += usize::from(!matches!(kind, Kind::Alloc | Kind::Other));
        }
        picked.truncate(count);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ts.len()
    }
}
