//! `analyze what-if`.

use std::path::PathBuf;

use trace_schema::Bytes;

use super::answer;
use crate::{
    questions::what_if::{self, Params},
    report::answer::what_if as document,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Compute what PyTorch would have reserved with other settings of its allocator
///
/// The run's requests are replayed by the allocator's own rules (which free block serves a request, when cudaMalloc is
/// called, what is released when the device is full). Blocks are freed when they were freed in the run, and unused memory is
/// released when the program released it. Where the record leaves a decision open, many replays are made, and the range of
/// their results is printed: segments get other addresses in each process, which decides between free blocks of one size, and
/// a call of empty_cache() that released nothing is only on record if `capture` recorded it. As a control the rules are
/// replayed with the run's own settings, recorded addresses and recorded releases, and must reserve what the record says after
/// every request. Where they do not, the difference is stated, and smaller savings are inconclusive.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Settings to try, as in PYTORCH_CUDA_ALLOC_CONF; may be repeated. A setting that the run's version of PyTorch does not
    /// accept, or that is not simulated, is refused [default: a selection of common settings]
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,
    /// Most memory that the device has for segments; also its total memory, of which per_process_memory_fraction is a share, if
    /// that is not on record [default: what it had when a request failed, if one did]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// Leave out the program's calls of torch.cuda.empty_cache()
    #[arg(long)]
    no_empty_cache: bool,
    /// Add a call of torch.cuda.empty_cache() at the end of every mark of this name; may be repeated
    #[arg(long, value_name = "MARK")]
    empty_cache_after: Vec<String>,
    /// Serve the requests that a thread makes during its marks of this name from a torch.cuda.MemPool
    #[arg(long, value_name = "MARK")]
    mem_pool: Option<String>,
    /// Test whether requests that are known from elsewhere explain the sizes of the run's cudaMalloc calls, and show what they
    /// leave free. The file has lines BYTES or BYTES,NAME of blocks that stay allocated, such as a model's weights in the order
    /// in which they are loaded
    #[arg(long, value_name = "FILE", conflicts_with_all = ["capacity", "no_empty_cache", "empty_cache_after", "mem_pool"])]
    requests: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        if let Some(path) = &self.requests {
            let explained = what_if::explain(&trace, path, self.conf.first().map(String::as_str)).await?;
            return answer(self.json, &explained, |explained| document::explained(explained));
        }
        let capacity_bytes = self.capacity.map(|Bytes(bytes)| bytes.max(0) as u64);
        let params = Params {
            settings: self.conf,
            capacity_bytes,
            no_empty_cache: self.no_empty_cache,
            empty_cache_after: self.empty_cache_after,
            mem_pool: self.mem_pool,
        };
        answer(self.json, &what_if::run(&trace, &params).await?, |found| document::document(found))
    }
}
