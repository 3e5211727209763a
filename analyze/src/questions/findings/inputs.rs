//! What findings are made of. The questions that read calls are parts of one shared sweep, which others may share, too.
//!
//! ```text
//! outline (one pass over the kinds of rows) ─► run_time, chains, records: parts of one sweep ─► inputs ─► facts
//!                                              memory: its own replay beside it
//! ```

use futures::{FutureExt, future::BoxFuture};

use super::{facts::Facts, records::Records};
use crate::{
    questions::{
        chains::{self, Chains},
        info::{self, Info, Present, ProcessCount},
        memory::overview::{self, Overview},
        where_time_went::{self, ProcessTime},
    },
    trace::{Together, Trace},
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::params::Params;
use trace_schema::Kind;

/// What a run has rows of, which is known before its calls are read.
pub struct Outline {
    /// The run, its circumstances and its warnings.
    pub info: Info,
    /// Start of the first call or allocation and end of the last one, in nanoseconds; zeros if there is none.
    pub span_ns: (i64, i64),
    /// The kinds and operations that it has rows of.
    pub present: Present,
    /// The numbers of its rows by kind, operation and process.
    pub processes: Vec<ProcessCount>,
}

/// What the findings of one run are made of.
pub struct Inputs {
    /// Where the wall time of each process with calls went, longest first.
    pub run_time: Vec<ProcessTime>,
    /// Slow calls and their causes.
    pub chains: Chains,
    /// Memory of PyTorch's allocators; `None` if no allocator event was recorded.
    pub memory: Option<Overview>,
    /// What is read for detectors alone.
    pub records: Records,
}

impl Outline {
    /// Reads it from the only run of a trace.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub async fn of(trace: &Trace) -> Result<Self, AnalyzeError> {
        let (info, processes) = info::with_processes(trace).await?;
        let is_spanned =
            |of: &&ProcessCount| [Kind::Call, Kind::Alloc].iter().any(|kind| kind.name() == of.kind);
        let spans = processes.iter().filter(is_spanned).map(|of| (of.first_ts, of.last_end));
        let span_ns = spans.reduce(|(start, end), (first, last)| (start.min(first), end.max(last)));
        let span_ns = span_ns.map_or((0, 0), |(start, end)| (start, end.max(start + 1)));
        let present = Present::in_run(&info);
        Ok(Self { info, span_ns, present, processes })
    }

    /// Returns whether the run has rows of a kind whose operation begins with a prefix.
    pub fn has(&self, kind: Kind, begins: &str) -> bool {
        self.info.counts.iter().any(|count| count.kind == kind.name() && count.op.starts_with(begins))
    }

    /// Returns whether the scheduler was recorded. If not, the absence of waiting for a CPU proves nothing.
    pub fn has_schedule(&self) -> bool {
        self.has(Kind::OffCpu, "")
    }

    /// Returns the future of what the findings are made of, with the number of slowest calls to keep per function as `examples`.
    /// The questions of calls are parts of `together`, which is made of `trace`.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub fn read<'a>(
        &'a self,
        trace: &'a Trace,
        together: &'a Together,
        examples: usize,
    ) -> BoxFuture<'a, Result<Inputs, AnalyzeError>> {
        let calls = together.trace();
        // Each of these reads all calls: none is made of what the run has no row of.
        let has_calls = self.has(Kind::Call, "");
        let run_time = together
            .part(async move { if has_calls { where_time_went::run(calls).await } else { Ok(Vec::new()) } });
        let chains = together.part(chains::run(calls, Params::default(), examples));
        let records = Records::read(trace, together, &self.present, &self.processes);
        // On the heap: without optimisation, the future of all questions does not fit on the stack of a thread.
        Box::pin(async move {
            let memory = overview::run(trace, &self.present).boxed();
            let (run_time, chains, memory, records) = tokio::try_join!(run_time, chains, memory, records)?;
            Ok(Inputs { run_time, chains, memory, records })
        })
    }
}

impl Inputs {
    /// Returns what detectors know of the run of this outline.
    pub fn facts<'a>(&'a self, outline: &'a Outline) -> Facts<'a> {
        Facts {
            info: &outline.info,
            has_schedule: outline.has_schedule(),
            run_time: &self.run_time,
            chains: &self.chains,
            memory: self.memory.as_ref(),
            records: &self.records,
        }
    }
}
