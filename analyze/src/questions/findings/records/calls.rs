//! All calls of a run, read once for everything that detectors ask of them. Nothing is kept of a call but what it adds to sums, so
//! that memory grows with the number of threads, functions, kernels and shapes of launches, not with that of calls.

use arrow::{
    array::{Array, AsArray, Int32Array, RecordBatch},
    compute::cast,
    datatypes::{DataType, Int32Type},
};
use futures::TryStreamExt;
use trace_schema::{Class, Direction, Kind, Op};

use super::{
    failures::{CallSum, OpenCall},
    gpu::{CallSums, HostCopy, LEAST_COPY_BYTES, LaunchSums, Pinned},
};
use crate::{
    questions::info::{Present, ProcessCount},
    trace::Trace,
};
use analyze_run::{
    columns::{Cell, integers},
    error::AnalyzeError,
    hash::HashMap,
};

const CALLS: &str = "SELECT pid, tid, ts, dur, op, ret, size_bytes, direction, addr, src_addr, stream, func, grid_x, grid_y, \
     grid_z FROM events WHERE kind = 'call'";

/// What detectors ask of calls.
#[derive(Debug, Default)]
pub(super) struct CallRecord {
    /// All calls of known functions, by thread, function and return code.
    pub(super) calls: Vec<CallSum>,
    /// The first call of each thread that was open at the end, if its function is known.
    pub(super) open_calls: Vec<OpenCall>,
    /// Launches and synchronizing calls.
    pub(super) launches: Vec<LaunchSums>,
    /// Calls that allocate, free, map and build graphs; empty if no launch or synchronizing call is on record.
    pub(super) sums: Vec<CallSums>,
    /// Copies of more than 64 KiB between GPU and host.
    pub(super) copies: Vec<HostCopy>,
}

/// A column of few distinct texts, each of which is looked up once a batch.
struct Words<T> {
    keys: Int32Array,
    values: Vec<Option<T>>,
}

impl<T: Copy> Words<T> {
    fn of(
        batch: &RecordBatch,
        name: &str,
        mut look_up: impl FnMut(&str) -> Option<T>,
    ) -> Result<Self, AnalyzeError> {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| AnalyzeError::Internal(format!("a query has no column {name}")))?;
        let column = cast(column, &dictionary)
            .map_err(|error| AnalyzeError::Damaged(format!("column {name}: {error}")))?;
        let column = column.as_dictionary::<Int32Type>();
        let texts = column.values().as_string::<i32>();
        let values = texts.iter().map(|text| text.and_then(&mut look_up)).collect();
        Ok(Self { keys: column.keys().clone(), values })
    }

    /// Returns what was found for the text of a row; `None` if it is null or means nothing.
    fn at(&self, row: usize) -> Option<T> {
        let key = (!self.keys.is_null(row)).then(|| self.keys.value(row))?;
        self.values.get(usize::try_from(key).ok()?).copied().flatten()
    }
}

/// The stream, the kernel and the number of blocks of a launch or wait, as far as they are on record.
type Shape = [Option<i64>; 3];

/// The first open call of a thread: its entry in nanoseconds and its function, if it is a known one.
type Open = (i64, Option<Op>);

/// Copies of one kind, and the least time in picoseconds per byte that one of them took.
type Copies = (HostCopy, f64);

/// The sums so far.
#[derive(Default)]
struct Sums {
    known: HashMap<String, Option<Op>>,
    pinned: Pinned,
    /// The middle of the time in which a process launched and waited for work, in nanoseconds, by process.
    middles: HashMap<i64, i64>,
    calls: HashMap<(i64, i64, Op, Option<i32>), CallSum>,
    open: HashMap<(i64, i64), Open>,
    /// Number of launches and waits by process, function, stream, kernel and blocks.
    launches: HashMap<(i64, Op, Shape), i64>,
    sums: HashMap<(i64, Op), CallSums>,
    /// By process, thread, function, whether to the GPU, and whether from or to pinned memory.
    copies: HashMap<(i64, i64, Op, bool, bool), Copies>,
}

/// One call, as far as sums differ by it; times are in nanoseconds.
#[derive(Clone, Copy)]
struct Row {
    pid: i64,
    tid: i64,
    op: Op,
    ts: i64,
    dur: Option<i64>,
    ret: Option<i32>,
}

impl Sums {
    /// Adds a call to those of its thread, function and return code.
    fn add_call(&mut self, row: Row) {
        let Row { pid, tid, op, ts, dur, ret } = row;
        let none = CallSum {
            pid,
            tid,
            op,
            ret,
            calls_count: 0,
            open_count: 0,
            first_ts: ts,
            last_ts: ts,
            last_end: None,
            longest_ns: None,
        };
        let sum = self.calls.entry((pid, tid, op, ret)).or_insert(none);
        sum.calls_count += 1;
        sum.open_count += i64::from(dur.is_none());
        sum.first_ts = sum.first_ts.min(ts);
        sum.last_ts = sum.last_ts.max(ts);
        sum.last_end = sum.last_end.max(dur.map(|dur| ts.saturating_add(dur)));
        sum.longest_ns = sum.longest_ns.max(dur);
    }

    /// Adds a call to those of its function in its process, if a launch is on record.
    fn add_sum(&mut self, row: Row) {
        if self.middles.is_empty() {
            return;
        }
        let Row { pid, op, ts, dur, ret, .. } = row;
        let none = || CallSums {
            pid,
            op: op.name().to_owned(),
            calls_count: 0,
            failed_count: 0,
            late_count: 0,
            late_ns: 0,
        };
        let sum = self.sums.entry((pid, op)).or_insert_with(none);
        sum.calls_count += 1;
        sum.failed_count += i64::from(ret.is_some_and(|ret| ret != 0));
        if self.middles.get(&pid).is_some_and(|middle| ts >= *middle) {
            sum.late_count += 1;
            sum.late_ns = sum.late_ns.saturating_add(dur.unwrap_or(0));
        }
    }

    /// Adds a copy of so many bytes between the GPU and host memory at an address, if it is large enough and returned.
    fn add_copy(&mut self, row: Row, is_to_gpu: bool, size_bytes: i64, host_addr: Option<i64>) {
        let Row { pid, tid, op, dur, .. } = row;
        let Some(dur) = dur.filter(|_| size_bytes > LEAST_COPY_BYTES) else { return };
        // A copy whose address is not on record is none from pageable memory for certain.
        let is_pinned = host_addr.is_none_or(|addr| self.pinned.has(pid, addr));
        let none = || {
            let op = op.name().to_owned();
            (HostCopy { pid, tid, op, is_to_gpu, is_pinned, ..HostCopy::default() }, f64::INFINITY)
        };
        let (sum, least) = self.copies.entry((pid, tid, op, is_to_gpu, is_pinned)).or_insert_with(none);
        sum.calls_count += 1;
        sum.copied_bytes = sum.copied_bytes.saturating_add(size_bytes);
        sum.total_ns = sum.total_ns.saturating_add(dur);
        *least = least.min(dur as f64 * 1000.0 / size_bytes as f64);
    }

    /// Adds the calls of a batch.
    fn add(&mut self, batch: &RecordBatch) -> Result<(), AnalyzeError> {
        let whole = |name| integers(batch, name);
        let (pids, tids, times, durs) = (whole("pid")?, whole("tid")?, whole("ts")?, whole("dur")?);
        let (rets, sizes, addrs) = (whole("ret")?, whole("size_bytes")?, whole("addr")?);
        let (sources, streams, funcs) = (whole("src_addr")?, whole("stream")?, whole("func")?);
        let (xs, ys, zs) = (whole("grid_x")?, whole("grid_y")?, whole("grid_z")?);
        let known = &mut self.known;
        let ops = Words::of(batch, "op", |name| match known.get(name) {
            Some(op) => *op,
            None => {
                let op = Op::from_name(name);
                known.insert(name.to_owned(), op);
                op
            }
        })?;
        let to_gpu = Words::of(batch, "direction", |name| match name {
            name if name == Direction::HostToDevice.name() => Some(true),
            name if name == Direction::DeviceToHost.name() => Some(false),
            _ => None,
        })?;
        for row in 0..batch.num_rows() {
            let (pid, tid, ts, dur) = (pids.value(row), tids.value(row), times.value(row), durs.at(row));
            let op = ops.at(row);
            if dur.is_none() {
                let first = self.open.entry((pid, tid)).or_insert((ts, op));
                if ts < first.0 {
                    *first = (ts, op);
                }
            }
            let Some(op) = op else { continue };
            let ret = rets.at(row).and_then(|ret| i32::try_from(ret).ok());
            let call = Row { pid, tid, op, ts, dur, ret };
            self.add_call(call);
            match op.class() {
                Class::Launch | Class::Sync => {
                    let grid = xs.at(row).zip(ys.at(row)).zip(zs.at(row));
                    let blocks = grid.map(|((x, y), z)| x.wrapping_mul(y).wrapping_mul(z));
                    let shape = [streams.at(row), funcs.at(row), blocks];
                    *self.launches.entry((pid, op, shape)).or_default() += 1;
                }
                Class::Alloc | Class::Free | Class::Map | Class::Graph => self.add_sum(call),
                Class::Copy => {
                    if let (Some(is_to_gpu), Some(size_bytes)) = (to_gpu.at(row), sizes.at(row)) {
                        let host_addr = if is_to_gpu { sources.at(row) } else { addrs.at(row) };
                        self.add_copy(call, is_to_gpu, size_bytes, host_addr);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the sums in an order that does not depend on that of the rows.
    fn finish(self) -> CallRecord {
        let mut calls: Vec<CallSum> = self.calls.into_values().collect();
        calls.sort_by_key(|calls| (calls.pid, calls.tid, calls.first_ts, calls.op.name(), calls.ret));
        let open = |((pid, tid), (ts, op)): ((i64, i64), Open)| Some(OpenCall { pid, tid, op: op?, ts });
        let mut open_calls: Vec<OpenCall> = self.open.into_iter().filter_map(open).collect();
        open_calls.sort_by_key(|call| (call.pid, call.tid));
        let launch = |((pid, op, [stream, func, blocks_count]), calls_count): ((i64, Op, Shape), i64)| {
            let op = op.name().to_owned();
            LaunchSums { pid, op, stream, func, blocks_count, calls_count }
        };
        let mut launches: Vec<LaunchSums> = self.launches.into_iter().map(launch).collect();
        launches.sort_by(|a, b| {
            let key = |sums: &LaunchSums| (sums.stream, sums.func, sums.blocks_count);
            a.pid.cmp(&b.pid).then_with(|| a.op.cmp(&b.op)).then_with(|| key(a).cmp(&key(b)))
        });
        let mut sums: Vec<CallSums> = self.sums.into_values().collect();
        sums.sort_by(|a, b| a.pid.cmp(&b.pid).then_with(|| a.op.cmp(&b.op)));
        let copy = |(sum, least): Copies| HostCopy { least_ps_per_byte: least.floor() as i64, ..sum };
        let mut copies: Vec<HostCopy> = self.copies.into_values().map(copy).collect();
        copies.sort_by(|a, b| {
            let key = |copy: &HostCopy| (copy.is_to_gpu, copy.is_pinned);
            let threads = (a.pid, a.tid).cmp(&(b.pid, b.tid));
            threads.then_with(|| a.op.cmp(&b.op)).then_with(|| key(a).cmp(&key(b)))
        });
        CallRecord { calls, open_calls, launches, sums, copies }
    }
}

/// Returns the middle of the time in which each process launched and waited for work, in nanoseconds.
fn middles(processes: &[ProcessCount]) -> HashMap<i64, i64> {
    let mut spans: HashMap<i64, (i64, i64)> = HashMap::default();
    for of in processes.iter().filter(|of| of.kind == Kind::Call.name()) {
        if Op::from_name(&of.op).is_some_and(|op| matches!(op.class(), Class::Launch | Class::Sync)) {
            let (first, last) = spans.entry(of.pid).or_insert((of.first_ts, of.last_ts));
            *first = (*first).min(of.first_ts);
            *last = (*last).max(of.last_ts);
        }
    }
    spans.into_iter().map(|(pid, (first, last))| (pid, first.midpoint(last))).collect()
}

impl CallRecord {
    /// Reads them, if the run has calls of known functions. `processes` are the numbers of its rows.
    pub(super) async fn read(
        trace: &Trace,
        present: &Present,
        processes: &[ProcessCount],
    ) -> Result<Self, AnalyzeError> {
        let has = |class: Option<Class>| {
            let mut ops = Op::ALL.iter().filter(|op| class.is_none_or(|class| op.class() == class));
            ops.any(|op| present.has(Kind::Call, op.name()))
        };
        if !has(None) {
            return Ok(Self::default());
        }
        // Memory that was pinned once counts as pinned for the whole run, so that it is known before the copies.
        let pinned =
            if has(Some(Class::Copy)) { Pinned::read(trace, present).await? } else { Pinned::default() };
        let mut sums = Sums { pinned, middles: middles(processes), ..Sums::default() };
        let mut batches = trace.events().select(CALLS);
        while let Some(batch) = batches.try_next().await? {
            sums.add(&batch)?;
        }
        Ok(sums.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    /// A call: thread, time, duration, function, return code, size in bytes, direction, and the three numbers that follow it.
    type Literal = (i64, i64, Option<i64>, &'static str, i64, Option<i64>, Option<&'static str>, Option<i64>);

    /// Makes calls of the process 7. The last number of each is the source address of a copy, or the kernel of a launch.
    fn batch(calls: &[Literal]) -> RecordBatch {
        let whole = |get: &dyn Fn(&Literal) -> Option<i64>| -> ArrayRef {
            Arc::new(calls.iter().map(get).collect::<Int64Array>())
        };
        let text = |get: &dyn Fn(&Literal) -> Option<&'static str>| -> ArrayRef {
            Arc::new(calls.iter().map(get).collect::<StringArray>())
        };
        let columns = [
            ("pid", whole(&|_| Some(7))),
            ("tid", whole(&|call| Some(call.0))),
            ("ts", whole(&|call| Some(call.1))),
            ("dur", whole(&|call| call.2)),
            ("op", text(&|call| Some(call.3))),
            ("ret", whole(&|call| Some(call.4))),
            ("size_bytes", whole(&|call| call.5)),
            ("direction", text(&|call| call.6)),
            ("addr", whole(&|_| None)),
            ("src_addr", whole(&|call| call.7)),
            ("stream", whole(&|_| None)),
            ("func", whole(&|call| call.7)),
            ("grid_x", whole(&|_| Some(4))),
            ("grid_y", whole(&|_| Some(2))),
            ("grid_z", whole(&|call| call.7)),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    #[test]
    fn sums_do_not_depend_on_the_order_of_batches() {
        const MIB: i64 = 1 << 20;
        let one = batch(&[
            (8, 10, Some(5), "cudaLaunchKernel", 0, None, None, Some(3)),
            (8, 20, Some(7), "cudaLaunchKernel", 0, None, None, None),
            (8, 30, Some(2000), "cudaMemcpy", 0, Some(MIB), Some("h2d"), Some(1000)),
            (8, 40, Some(1000), "cudaMemcpy", 0, Some(MIB), Some("h2d"), Some(9000)),
            (8, 45, Some(1), "cudaMemcpy", 0, Some(64), Some("h2d"), Some(9000)),
            (8, 46, None, "notKnownHere", 0, None, None, None),
            (8, 60, None, "cudaMemcpy", 0, Some(MIB), Some("h2d"), Some(9000)),
        ]);
        let two = batch(&[
            (8, 15, Some(9), "cudaLaunchKernel", 2, None, None, Some(3)),
            (8, 14, Some(4), "cudaMalloc", 2, Some(MIB), None, None),
            (8, 16, Some(6), "cudaMalloc", 0, Some(MIB), None, None),
            (9, 50, None, "cudaStreamSynchronize", 0, None, None, None),
        ]);
        let processes = [
            ProcessCount::of_test(Kind::Call, "cudaLaunchKernel", 7, (10, 20)),
            ProcessCount::of_test(Kind::Call, "cudaMalloc", 7, (0, 99)),
        ];
        for batches in [[&one, &two], [&two, &one]] {
            let mut sums = Sums { middles: middles(&processes), ..Sums::default() };
            sums.pinned.add(7, 1000, 100);
            batches.into_iter().for_each(|batch| sums.add(batch).unwrap());
            let found = sums.finish();
            let calls: Vec<_> =
                found.calls.iter().map(|sum| (sum.op.name(), sum.ret, sum.calls_count)).collect();
            assert_eq!(
                calls,
                [
                    ("cudaLaunchKernel", Some(0), 2),
                    ("cudaMalloc", Some(2), 1),
                    ("cudaLaunchKernel", Some(2), 1),
                    ("cudaMalloc", Some(0), 1),
                    ("cudaMemcpy", Some(0), 4),
                    ("cudaStreamSynchronize", Some(0), 1),
                ]
            );
            let first = found.calls[0];
            assert_eq!(
                (first.first_ts, first.last_ts, first.last_end, first.longest_ns),
                (10, 20, Some(27), Some(7))
            );
            assert_eq!((found.calls[4].open_count, found.calls[5].last_end), (1, None));
            // The outermost open call of the thread 8 is of a function that is not known.
            let open: Vec<_> =
                found.open_calls.iter().map(|call| (call.tid, call.op.name(), call.ts)).collect();
            assert_eq!(open, [(9, "cudaStreamSynchronize", 50)]);
            let launches: Vec<_> =
                found.launches.iter().map(|sums| (sums.func, sums.blocks_count, sums.calls_count)).collect();
            assert_eq!(launches, [(None, None, 1), (Some(3), Some(24), 2), (None, None, 1)]);
            let late = &found.sums[0];
            assert_eq!((late.calls_count, late.failed_count, late.late_count, late.late_ns), (2, 1, 1, 6));
            let copies: Vec<_> = found
                .copies
                .iter()
                .map(|copy| (copy.is_pinned, copy.calls_count, copy.total_ns, copy.least_ps_per_byte))
                .collect();
            assert_eq!(copies, [(false, 1, 1000, 0), (true, 1, 2000, 1)]);
        }
    }
}
