//! What is taken out of a run, and what its metadata say of it then, as a real source would.

use std::path::Path;

use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
    random::Random,
    reading::plain,
    run_file::RunFile,
};
use arrow::{
    array::{BooleanArray, Int64Array, RecordBatch},
    compute::{cast, filter_record_batch},
    datatypes::DataType,
};
use trace_schema::{Kind, Lost, Stored, TIME_LIMIT_NS};

/// What a cut takes rows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Off-CPU intervals; the source states how many it stored.
    Switches,
    /// The whole scheduler, as if it was never probed.
    Scheduler,
    /// Scheduling slices; the recorder lost them.
    Slices,
    /// Calls; the source states how many it stored.
    Calls,
    /// Events of PyTorch's allocator; the recorder lost them.
    Allocator,
    /// Marks of the workload; the source states how many it stored.
    Marks,
    /// Readings of counters; the source states how many it stored.
    Samples,
    /// Names of kernels and call stacks; the source states how many it stored.
    Names,
}

impl Source {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Switches => &[Kind::OffCpu],
            Self::Scheduler => &[Kind::OffCpu, Kind::Run],
            Self::Slices => &[Kind::Run],
            Self::Calls => &[Kind::Call],
            Self::Allocator => &[Kind::Alloc],
            Self::Marks => &[Kind::Mark],
            Self::Samples => &[Kind::Sample],
            Self::Names => &[Kind::Name],
        }
    }
}

/// What a run offers to cuts.
pub(super) struct Offer {
    /// Times of the first and the last row, in nanoseconds.
    pub(super) span: (i64, i64),
    /// Threads with rows of the scheduler, in ascending order.
    pub(super) tids: Vec<i64>,
    /// Functions with calls, in ascending order.
    pub(super) ops: Vec<String>,
}

/// Rows of a source within a span, of one thread or function or all, each of which goes with a probability.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) source: Source,
    op: Option<String>,
    tid: Option<i64>,
    from: i64,
    to: i64,
    ratio: f64,
}

impl Cut {
    /// Draws a cut of a source.
    pub(super) fn draw(random: &mut Random, source: Source, offer: &Offer) -> Self {
        let is_whole = source == Source::Scheduler;
        let is_part = random.below(2) == 0 && !is_whole;
        let (one, other) = (random.unit(), random.unit());
        let (first, last) = offer.span;
        let at = |share: f64| first + (share * (last - first) as f64) as i64;
        let is_of_thread = matches!(source, Source::Switches | Source::Calls) && random.below(2) == 0;
        let is_of_function = source == Source::Calls && random.below(4) > 0;
        let any = |count: usize, random: &mut Random| (count > 0).then(|| random.below(count.max(1)));
        Self {
            source,
            op: any(offer.ops.len(), random).filter(|_| is_of_function).map(|at| offer.ops[at].clone()),
            tid: any(offer.tids.len(), random).filter(|_| is_of_thread).map(|at| offer.tids[at]),
            from: if is_part { at(one.min(other)) } else { -TIME_LIMIT_NS },
            to: if is_part { at(one.max(other)) } else { TIME_LIMIT_NS },
            ratio: if is_whole { 1.0 } else { [0.1, 0.5, 1.0][random.below(3)] },
        }
    }

    /// Filters a batch. `counts` are the numbers of rows that are meant, and of those among them that stay.
    fn apply(&self, batch: &RecordBatch, random: &mut Random, counts: &mut (u64, u64)) -> RecordBatch {
        let text = |name: &str| {
            let column = cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
            strings(&RecordBatch::try_from_iter([(name, column)]).unwrap(), name).unwrap()
        };
        let (kinds, ops) = (text("kind"), text("op"));
        let (times, tids): (Int64Array, Int64Array) =
            (integers(batch, "ts").unwrap(), integers(batch, "tid").unwrap());
        let stays = |row: usize| {
            let is_meant = self.source.kinds().iter().any(|kind| kinds.value(row) == kind.name())
                && self.op.as_ref().is_none_or(|op| ops.value(row) == op)
                // Calls of `empty_cache` have a probe of their own, which loses nothing.
                && (self.source != Source::Allocator || ops.value(row) != "empty_cache")
                && self.tid.is_none_or(|tid| tids.value(row) == tid)
                && (self.from..self.to).contains(&times.value(row));
            let goes = is_meant && random.unit() < self.ratio;
            counts.0 += u64::from(is_meant);
            counts.1 += u64::from(is_meant && !goes);
            !goes
        };
        let mask: BooleanArray = (0..batch.num_rows()).map(stays).map(Some).collect();
        filter_record_batch(batch, &mask).unwrap()
    }

    /// Writes the run of a file without what the cut takes.
    pub(super) fn write(&self, file: &RunFile, offer: &Offer, random: &mut Random, out: &Path) {
        let mut counts = (0, 0);
        let kept: Vec<Result<RecordBatch, AnalyzeError>> = plain::batches(file.paths.clone(), None)
            .map(|batch| Ok(self.apply(&batch?, random, &mut counts)))
            .collect();
        let mut run = file.run.clone();
        let (made_count, stored_count) = counts;
        let lost = |probe: String| Lost {
            probe,
            from_ns: self.from.max(offer.span.0),
            to_ns: self.to.min(offer.span.1 + 1),
            count: made_count - stored_count,
        };
        match self.source {
            // A source without a scheduler has nothing to say of its rows.
            Source::Scheduler => {}
            _ if made_count == stored_count => {}
            Source::Slices => run.lost.push(lost("run".to_owned())),
            Source::Allocator => {
                let probe = run.probes.iter().find(|probe| probe.symbol.contains("record_trace"));
                let symbol = probe.map_or("record_trace", |probe| &probe.symbol).to_owned();
                run.lost.push(lost(symbol));
            }
            Source::Switches | Source::Calls | Source::Marks | Source::Samples | Source::Names => {
                let kind = self.source.kinds()[0];
                run.stored.push(Stored {
                    kind: kind.name().to_owned(),
                    op: self.op.clone().unwrap_or_default(),
                    tid: self.tid.unwrap_or(0) as u32,
                    from_ns: self.from,
                    // A switch is on record at its start, and reaches to its end.
                    to_ns: if kind == Kind::OffCpu { TIME_LIMIT_NS } else { self.to },
                    made_count: Some(made_count),
                    stored_count,
                    ..Stored::default()
                });
            }
        }
        trace_writer::write(out, true, kept.into_iter(), || run).unwrap();
    }
}
