//! `analyze leaks`.

use std::path::PathBuf;

use super::{print_json, show};
use crate::{questions::info, report::answer::leaks::document, trace::Trace};
use analyze_memory::leaks::{
    driver,
    growth::{self, Params},
};
use analyze_run::error::AnalyzeError;

/// Decide whether the memory of PyTorch's allocator, or of others, leaks, and from which site, or why else it grows
///
/// The run is divided into epochs. The first tenth is warm-up, and nothing after the last epoch is judged. Memory allocated
/// at the end of the last epoch is accounted for block by block. A site (call stack, size class, thread, stream) has a
/// horizon: the age in epochs after which it frees at most a tenth of its blocks. Live blocks that are older are retained.
/// A site leaks if it retained blocks of five epochs or more, in each third of the run, and its live memory increases by at
/// least half of what it retained. Trends are Theil and Sen's slope with Sen's 95 % confidence interval. A cache that is
/// still being filled when recording ends looks the same as a leak.
///
/// Verdicts: leak; one-off growth (retained, by sites that do not go on); fragmentation (allocated memory is flat, reserved
/// memory grows, most of it inactive split); caching (the same, most of it reclaimable by empty_cache(), or half of the
/// reserved memory is free); none; inconclusive (events are missing, too few epochs, or growth in blocks that are replaced).
/// Where no verdict is possible, as of a snapshot of memory, what is live at the end of the run is listed by site.
///
/// What other allocators (cudaMalloc, cudaMallocAsync, CuPy, XLA) allocated from the driver is judged by the same rule, over the
/// same marks or else over forty windows of equal time: leak, none, or inconclusive. Blocks within their pools are not on record.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Marks that divide the run into epochs, by the name of one of them ("epoch 1" stands for all "epoch N"), or `allocations`
    /// for epochs of equal numbers of allocations [default: the marks that fit best, if any do]
    #[arg(long, value_name = "MARK|allocations")]
    epochs: Option<String>,
    /// Number of sites shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    /// Print JSON, with every site and every epoch
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let growth = growth::run(&trace.events(), trace.files(), &Params { epochs: self.epochs }).await?;
        let drivers = driver::run(&trace.events(), trace.files()).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(
                &serde_json::json!({ "allocators": growth, "drivers": drivers, "warnings": warnings }),
            );
        }
        show(&document(&growth, &drivers, warnings, self.top))
    }
}
