//! Every probe. A family is one file here and, where it has kernel code of its own, one of the same
//! name in `capture/ebpf/src`. Adding a function means one line in its family's table.

pub(crate) mod calls;
mod cuda_driver;
mod cuda_runtime;
pub(crate) mod process;
pub(crate) mod sched;
mod spec;
mod torch;

use capture_wire::probe;
pub(crate) use spec::{Event, FunctionProbe, Library, Source};

/// The function probes, by library. Their order is their numbering.
pub(crate) static FUNCTIONS: &[&[FunctionProbe]] =
    &[cuda_driver::PROBES, cuda_runtime::PROBES, torch::PROBES];

/// The probe with a number the kernel used.
pub(crate) fn by_number(number: u32) -> Option<&'static FunctionProbe> {
    let mut index = number.checked_sub(probe::FIRST_CALL)? as usize;
    for list in FUNCTIONS {
        match list.get(index) {
            Some(probe) => return Some(probe),
            None => index -= list.len(),
        }
    }
    None
}

/// Every function probe with its number.
pub(crate) fn numbered() -> impl Iterator<Item = (u32, &'static FunctionProbe)> {
    FUNCTIONS
        .iter()
        .flat_map(|list| list.iter())
        .enumerate()
        .map(|(index, probe)| (probe::FIRST_CALL + index as u32, probe))
}

/// What a probe is called in the table of lost events.
pub(crate) fn name(number: u32) -> &'static str {
    match number {
        probe::OFF_CPU => "off_cpu",
        probe::RUN => "run",
        probe::PROCESS => "process",
        _ => by_number(number).map_or("unknown", |probe| probe.symbol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_probes_agree() {
        let mut count = 0;
        for (number, probe) in numbered() {
            assert!(std::ptr::eq(by_number(number).expect("known"), probe));
            assert!(number < probe::COUNT);
            count += 1;
        }
        assert!(by_number(probe::FIRST_CALL + count).is_none());
        assert!(by_number(0).is_none());
    }

    #[test]
    fn symbols_are_unique_within_a_library() {
        let mut seen = std::collections::HashSet::new();
        for (_, probe) in numbered() {
            assert!(seen.insert((probe.library, probe.symbol)), "{}", probe.symbol);
        }
    }
}
