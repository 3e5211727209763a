//! Exports of a run that does not fit into memory: they sort on disk, and keep neither side of a join.

use std::path::Path;

use analyze::{
    export::{
        self, Format,
        folded::{self, What},
    },
    questions::memory::state::At,
    trace::Trace,
};
use analyze_run::memory_budget;

use crate::support::{numbers, path, run, stdout};

/// Less than the calls of the slice take, with the columns that a timeline shows, but more than its sorts need to spill.
const TIMELINE_BYTES: usize = 12 << 20;
/// Less than the calls of the whole run take, for folded stacks.
const FOLDED_BYTES: usize = 32 << 20;

async fn opened(run: &Path, budget_bytes: usize) -> Trace {
    memory_budget::set(budget_bytes);
    Trace::open_one(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_need_less_memory_than_the_rows_of_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let (part, out) = (directory.path().join("part.parquet"), directory.path().join("a.pftrace"));
    let whole = run("qwen2-hogs");
    stdout(&["slice", &whole, "--to", "34s", "--out", path(&part)]);
    let counted = numbers(
        path(&part),
        "SELECT (SELECT count(*) FROM ops) AS calls, (SELECT count(*) FROM off_cpu) AS intervals, \
         (SELECT count(*) FROM chain_links WHERE task_tid > 0) AS links",
    );
    let [calls, intervals, links] = counted[..] else { panic!("{counted:?}") };
    assert!(calls > 100_000, "{calls}");
    let trace = opened(&part, TIMELINE_BYTES).await;
    let counts = export::timeline(&trace, Format::Perfetto, &out, false).await.unwrap();
    assert_eq!(counts.slices_count as i64, calls + intervals + links);
    assert_eq!(counts.flows_count as i64, links);

    let counted = numbers(
        &whole,
        "SELECT (SELECT sum(on_cpu_ns) FROM op_time WHERE depth = 0) AS on_cpu_ns, \
         (SELECT sum(dur) FROM off_cpu) AS off_cpu_ns",
    );
    let [on_cpu_ns, off_cpu_ns] = counted[..] else { panic!("{counted:?}") };
    let trace = opened(Path::new(&whole), FOLDED_BYTES).await;
    let whats = [What::OnCpuCalls, What::OffCpu];
    let found = folded::run(&trace, &whats, &At::Peak).await.unwrap();
    let sums: Vec<(What, i64)> = found.iter().map(|(what, folded)| (*what, folded.sum() as i64)).collect();
    assert_eq!(sums, [(What::OnCpuCalls, on_cpu_ns), (What::OffCpu, off_cpu_ns)]);
}
