//! Who had the CPU while a traced thread waited for it: waits intersected with the stints of other tasks
//! on the same CPU.
//!
//! ```text
//! wait on CPU 3   ├────────────────────────────────┤
//! CPU 3           ├── hog A ──┤── hog B ──┤─ hog A ─┤
//! ```

use std::collections::HashMap;

use super::time_split::overlap;

/// A wait for a CPU, or a stint on one: `[start, end)` in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// A stint of a task.
#[derive(Clone, Debug)]
pub(crate) struct Stint {
    pub(crate) when: Interval,
    pub(crate) pid: i64,
    pub(crate) comm: String,
}

/// Nanoseconds that each task (process, name) held a CPU that was waited for. `waits` and `stints`: by CPU,
/// sorted by start; stints of one CPU do not overlap.
pub(crate) fn held(
    waits: &HashMap<i64, Vec<Interval>>,
    stints: &HashMap<i64, Vec<Stint>>,
) -> HashMap<(i64, String), i64> {
    let mut held = HashMap::new();
    for (cpu, waits) in waits {
        let stints = stints.get(cpu).map_or(&[][..], Vec::as_slice);
        for wait in waits {
            let first = stints.partition_point(|stint| stint.when.end <= wait.start);
            for stint in stints[first..].iter().take_while(|stint| stint.when.start < wait.end) {
                let ns = overlap(wait.start, wait.end, stint.when.start, stint.when.end);
                *held.entry((stint.pid, stint.comm.clone())).or_insert(0) += ns;
            }
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_who_had_the_cpu() {
        let stint = |start, end, pid| Stint { when: Interval { start, end }, pid, comm: format!("hog{pid}") };
        let stints = HashMap::from([
            (3, vec![stint(0, 50, 1), stint(50, 80, 2), stint(80, 200, 1)]),
            (4, vec![stint(0, 500, 9)]),
        ]);
        let waits =
            HashMap::from([(3, vec![Interval { start: 40, end: 100 }, Interval { start: 300, end: 400 }])]);
        let held = held(&waits, &stints);
        assert_eq!(held[&(1, "hog1".to_owned())], 30);
        assert_eq!(held[&(2, "hog2".to_owned())], 30);
        assert_eq!(held.len(), 2);
    }
}
