//! Pauses between launches in which compilers were started, and code that was loaded onto the GPU while the run went on.
//!
//! The account cuts the pauses out (`stage` is `compiling` or `recompiling`): everything between the last launch before a
//! compiler is started and the next launch.

use trace_schema::Counted;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        (
            "recompilation",
            "Compilers were started again and again after the first launches, and no work was launched meanwhile.",
        ),
        ("compilation", "Code was compiled once, in pauses after the first launch."),
        ("module-loading", "Code was loaded onto the GPU after the first launch."),
    ],
    detect,
};

/// Beginnings of the functions that load code.
const LOADING: [&str; 3] = ["cuModuleLoad", "cuLibraryLoad", "cudaLibraryLoad"];

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().flat_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Vec<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let mut findings = Vec::new();
    let again = ledger.claim(|slice| slice.stage.as_deref() == Some("recompiling"));
    let mut finding = Finding::new(
        "recompilation",
        Rank::Cost,
        Some(pid),
        "Code was compiled again and again while the run went on, and no work was launched meanwhile.".to_owned(),
    )
    .costs(again.time_ns(), wall_ns)
    .shown_by(
        "compilers were started in more than three pauses between launches; the cost is the time of those after the first",
        ledger.sql("stage = 'recompiling'"),
        "run-time",
    )
    .shown_by(
        "the compilers",
        "SELECT ts, pid, comm, detail FROM process_events WHERE op = 'exec' ORDER BY ts",
        "",
    )
    .to_do(
        "See why with TORCH_LOGS=recompiles; pad inputs to a few shapes, or compile with torch.compile(dynamic=True). \
         In JAX: jax_log_compiles.",
    )
    .saves("at most this time: it is that of all such pauses after the first");
    finding.open =
        "which functions were compiled: as many different ones, each for the first time, look the same"
            .to_owned();
    findings.push(finding);
    let first = ledger.claim(|slice| slice.stage.as_deref() == Some("compiling"));
    findings.push(
        Finding::new(
            "compilation",
            Rank::Note,
            Some(pid),
            "Code was compiled in pauses after the first launch.".to_owned(),
        )
        .costs(first.time_ns(), wall_ns)
        .shown_by(
            "pauses between launches in which compilers were started",
            ledger.sql("stage = 'compiling'"),
            "run-time",
        )
        .to_do("Keep the compiler's cache between runs (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR)."),
    );
    let loaded = ledger.claim(|slice| {
        let is_loading = |op: &String| LOADING.iter().any(|start| op.starts_with(*start));
        slice.stage.as_deref() == Some("running")
            && slice.part == "module"
            && slice.op.as_ref().is_some_and(is_loading)
    });
    findings.push(
        Finding::new(
            "module-loading",
            Rank::Note,
            Some(pid),
            "Code was loaded onto the GPU after the first launch.".to_owned(),
        )
        .costs(loaded.time_ns(), wall_ns)
        .shown_by(
            format!("{} in functions that load code", Counted(loaded.intervals_count(), "interval")),
            ledger.sql("stage = 'running' AND part = 'module'"),
            "run-time",
        )
        .to_do("Run a few steps before work that has to be quick; CUDA_MODULE_LOADING=EAGER loads all code at the start."),
    );
    findings.retain(|finding| finding.cost_ns > Some(0));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::{ProcessTime, Slice};

    #[test]
    fn pauses_after_the_first_are_recompilation_and_loading_is_a_note() {
        let slice = |stage: &str, part: &str, op: Option<&str>, time_ns| Slice {
            stage: Some(stage.to_owned()),
            part: part.to_owned(),
            op: op.map(str::to_owned),
            time_ns,
            intervals_count: 1,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            slices: vec![
                slice("recompiling", "sleep", None, 300),
                slice("recompiling", "host", None, 200),
                slice("compiling", "host", None, 100),
                slice("running", "module", Some("cuLibraryLoadData"), 50),
                slice("running", "module", Some("cudaGraphInstantiate"), 40),
                slice("start-up", "module", Some("cuModuleLoadData"), 30),
            ],
            ..ProcessTime::default()
        };
        let mut ledger = Ledger::new(&process);
        let found = of_process(&mut ledger);
        let seen: Vec<_> =
            found.iter().map(|finding| (finding.kind, finding.rank, finding.cost_ns)).collect();
        assert_eq!(
            seen,
            [
                ("recompilation", Rank::Cost, Some(500)),
                ("compilation", Rank::Note, Some(100)),
                ("module-loading", Rank::Note, Some(50))
            ]
        );
        assert_eq!(ledger.left_ns(), 70);
    }
}
