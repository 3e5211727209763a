//! What looks for findings, one file a family.

use super::facts::Detector;

/// Declares the modules of the detectors and lists them in the order in which they claim time.
macro_rules! detectors {
    ($($detector:ident),* $(,)?) => {
        $(mod $detector;)*

        /// Returns all detectors in the order in which they claim time.
        pub fn all() -> &'static [Detector] {
            &[$($detector::DETECTOR),*]
        }
    };
}

detectors! {
    failures,
    waiting_for_cpu,
    gil_contention,
    compilation,
    starved_loader,
    lock_contention,
    needless_sync,
    copies,
    steady_calls,
    small_kernels,
    start_up,
    disk,
    sleep,
    waiting_for_thread,
    host_pauses,
    host_bound,
    idle_gpu,
    throttling,
    stragglers,
    out_of_memory,
    leak,
    reserved_memory,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_is_documented() {
        let page = include_str!("../../../../VERDICTS.md");
        let (_, page) = page.split_once("\n## Findings\n").expect("a section on findings");
        let page = page.split("\n## ").next().unwrap_or_default();
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let rows: BTreeSet<&str> =
            cells.flat_map(|cell| cell.split('`')).filter(|part| !part.is_empty() && *part != ", ").collect();
        let kinds = super::all().iter().flat_map(|detector| detector.kinds).map(|(kind, _)| *kind);
        assert_eq!(rows, kinds.collect());
    }

    #[test]
    fn each_kind_has_one_detector() {
        let kinds = || super::all().iter().flat_map(|detector| detector.kinds);
        let names: BTreeSet<&str> = kinds().map(|(kind, _)| *kind).collect();
        assert_eq!(names.len(), kinds().count());
        assert!(kinds().all(|(_, meaning)| !meaning.is_empty()));
    }
}
