//! What a recording knows of the processes that it follows: their descriptions, the names of their threads, and the names of
//! kernels that no launch has needed so far. The traced processes decide how many there are, so that each table has a limit;
//! what comes when a table is full is left out and counted, and the run says so.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use trace_schema::{ProcessInfo, Run, Text, Thread};

use crate::decode;

/// Number of processes that are described. A description has a few KiB.
const PROCESSES_COUNT: usize = 1 << 15;
/// Number of threads that are named.
const THREADS_COUNT: usize = 1 << 17;
/// Number of kernels whose names wait for a launch. Tens of thousands are registered by large libraries.
const KERNELS_COUNT: usize = 1 << 18;

/// A table with a limit.
struct Bounded<K, V> {
    known: HashMap<K, V>,
    limit_count: usize,
    /// Number of times that an entry was left out because the table was full.
    left_out_count: u64,
}

impl<K: Eq + Hash, V: Default> Bounded<K, V> {
    fn new(limit_count: usize) -> Self {
        Self { known: HashMap::new(), limit_count, left_out_count: 0 }
    }

    /// The value of a key, which is added if it is new; `None` if there is no room for it.
    fn entry(&mut self, key: K) -> Option<&mut V> {
        if self.known.len() >= self.limit_count && !self.known.contains_key(&key) {
            self.left_out_count += 1;
            return None;
        }
        Some(self.known.entry(key).or_default())
    }

    fn insert(&mut self, key: K, value: V) {
        if let Some(known) = self.entry(key) {
            *known = value;
        }
    }

    /// Says what was left out; `None` if nothing was.
    fn left_out(&self, what: &str) -> Option<String> {
        (self.left_out_count > 0).then(|| {
            format!("{what} beyond the first {} (left out {} times)", self.limit_count, self.left_out_count)
        })
    }
}

/// See the module documentation.
pub(crate) struct Known {
    processes: Bounded<u32, ProcessInfo>,
    /// Names of threads by process and thread.
    threads: Bounded<(u32, u32), String>,
    /// Names of kernels by process and host address.
    kernels: Bounded<(u32, u64), Option<Text>>,
}

impl Default for Known {
    fn default() -> Self {
        Self::with_limits(PROCESSES_COUNT, THREADS_COUNT, KERNELS_COUNT)
    }
}

impl Known {
    fn with_limits(processes_count: usize, threads_count: usize, kernels_count: usize) -> Self {
        Self {
            processes: Bounded::new(processes_count),
            threads: Bounded::new(threads_count),
            kernels: Bounded::new(kernels_count),
        }
    }

    /// Notes the name of a thread, of which the kernel gives the bytes up to a NUL.
    pub(crate) fn name_thread(&mut self, pid: u32, tid: u32, comm: &[u8]) {
        let Some(known) = self.threads.entry((pid, tid)) else { return };
        let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
        if known.as_bytes() != &comm[..end] {
            *known = decode::comm(comm);
        }
    }

    /// Whether a process is described.
    pub(crate) fn has_process(&self, pid: u32) -> bool {
        self.processes.known.contains_key(&pid)
    }

    /// Notes the description of a process, in the place of an earlier one.
    pub(crate) fn add_process(&mut self, pid: u32, info: ProcessInfo) {
        self.processes.insert(pid, info);
    }

    /// The description of a process, if there is one.
    pub(crate) fn process(&mut self, pid: u32) -> Option<&mut ProcessInfo> {
        self.processes.known.get_mut(&pid)
    }

    /// Notes the name of a kernel until a launch needs it.
    pub(crate) fn add_kernel(&mut self, pid: u32, handle: u64, name: Text) {
        self.kernels.insert((pid, handle), Some(name));
    }

    /// Whether no name of a kernel waits for a launch.
    pub(crate) fn has_no_kernel(&self) -> bool {
        self.kernels.known.is_empty()
    }

    /// The name of a kernel, which is forgotten.
    pub(crate) fn take_kernel(&mut self, pid: u32, handle: u64) -> Option<Text> {
        self.kernels.known.remove(&(pid, handle)).flatten()
    }

    /// Forgets the kernels of processes that are gone.
    pub(crate) fn forget_kernels(&mut self, gone: &HashSet<u32>) {
        self.kernels.known.retain(|(pid, _), _| !gone.contains(pid));
    }

    /// Begins the next part of a run, which needs living processes only. The finished part has what was left out so far.
    pub(crate) fn start_over(&mut self, living: &HashSet<u32>) {
        self.threads.known.retain(|(pid, _), _| living.contains(pid));
        self.processes.known.retain(|pid, _| living.contains(pid));
        (self.processes.left_out_count, self.threads.left_out_count) = (0, 0);
        self.kernels.left_out_count = 0;
    }

    /// Adds what is known to the metadata of a run, in order, and what was left out.
    pub(crate) fn describe(&self, run: &mut Run) {
        let mut processes: Vec<(&u32, &ProcessInfo)> = self.processes.known.iter().collect();
        processes.sort_unstable_by_key(|(pid, _)| **pid);
        run.processes = processes.into_iter().map(|(_, info)| info.clone()).collect();
        let mut threads: Vec<(&(u32, u32), &String)> = self.threads.known.iter().collect();
        threads.sort_unstable_by_key(|(thread, _)| **thread);
        let thread = |(&(pid, tid), comm): (&(u32, u32), &String)| Thread { pid, tid, comm: comm.clone() };
        run.threads = threads.into_iter().map(thread).collect();
        let left_out = [
            self.processes.left_out("descriptions of processes"),
            self.threads.left_out("names of threads"),
            self.kernels.left_out("names of kernels that no launch had needed yet"),
        ];
        run.not_captured.extend(left_out.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(known: &Known) -> Run {
        let mut run = Run::default();
        known.describe(&mut run);
        run
    }

    #[test]
    fn what_has_no_room_is_counted_and_said() {
        let mut known = Known::with_limits(2, 3, 2);
        for pid in [9, 5, 7, 7] {
            known.add_process(pid, ProcessInfo { pid, ..ProcessInfo::default() });
        }
        for tid in [4, 1, 3, 2, 1] {
            known.name_thread(9, tid, format!("thread {tid}\0rest").as_bytes());
        }
        known.name_thread(9, 4, b"renamed");
        for handle in 0..5 {
            known.add_kernel(9, handle, Text::new("kernel"));
        }
        let run = described(&known);
        assert_eq!(run.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [5, 9]);
        let threads: Vec<_> = run.threads.iter().map(|thread| (thread.tid, thread.comm.as_str())).collect();
        assert_eq!(threads, [(1, "thread 1"), (3, "thread 3"), (4, "renamed")]);
        assert_eq!(
            run.not_captured,
            [
                "descriptions of processes beyond the first 2 (left out 2 times)",
                "names of threads beyond the first 3 (left out 1 times)",
                "names of kernels that no launch had needed yet beyond the first 2 (left out 3 times)",
            ]
        );
        assert!(known.has_process(5) && !known.has_process(7));
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut known = Known::with_limits(1, 1, 1);
        known.add_process(1, ProcessInfo { pid: 1, ..ProcessInfo::default() });
        known.name_thread(1, 1, b"first");
        known.add_kernel(1, 64, Text::new("kernel"));
        assert!(known.take_kernel(1, 65).is_none() && known.take_kernel(1, 64).is_some());
        assert!(known.has_no_kernel());
        known.add_kernel(1, 65, Text::new("kernel"));
        known.forget_kernels(&HashSet::from([1]));
        known.add_kernel(2, 65, Text::new("kernel"));
        known.start_over(&HashSet::from([2]));
        known.add_process(2, ProcessInfo { pid: 2, ..ProcessInfo::default() });
        known.name_thread(2, 2, b"second");
        let run = described(&known);
        assert_eq!((run.processes.len(), run.threads[0].comm.as_str()), (1, "second"));
        assert!(run.not_captured.is_empty() && known.take_kernel(2, 65).is_some());
    }
}
