//! When processes began and threads ended, and when compilers were started by whom.

use std::collections::BTreeSet;

use analyze_run::{
    columns::{booleans, integers, strings},
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
};
use futures::TryStreamExt;

/// Compilers, assemblers and linkers by the names of their programs, and PyTorch's processes that compile.
const LIVES: &str = "SELECT run, CAST(op AS VARCHAR) AS op, CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, ts, \
     op = 'exec' AS is_compiler FROM events WHERE kind = 'process' AND (op IN ('fork', 'exit') OR op = 'exec' AND \
     (CAST(comm AS VARCHAR) IN ('nvcc', 'cicc', 'ptxas', 'nvlink', 'fatbinary', 'gcc', 'g++', 'cc', 'c++', 'cc1', 'cc1plus', \
     'clang', 'clang++', 'as', 'ld', 'hipcc') OR CAST(detail AS VARCHAR) LIKE '%/compile_worker/%')) ORDER BY ts";

/// What is known of processes and threads, by the run's name, process and thread. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Lives {
    pub(super) forks: HashMap<(String, u32), i64>,
    pub(super) exits: HashMap<(String, u32, u32), i64>,
    /// Parents of processes.
    pub(super) parents: HashMap<(String, u32), u32>,
    /// When compilers were started, and their process IDs, in order of time.
    compilers: HashMap<String, Vec<(i64, u32)>>,
}

impl Lives {
    /// Reads them; parents are not in the events.
    ///
    /// # Errors
    /// Returns an error if the events cannot be read.
    pub(super) async fn read(events: &dyn Events) -> Result<Self, AnalyzeError> {
        let mut lives = Self::default();
        let mut batches = events.select(LIVES);
        while let Some(batch) = batches.try_next().await? {
            let (runs, ops) = (strings(&batch, "run")?, strings(&batch, "op")?);
            let (pids, tids) = (integers(&batch, "pid")?, integers(&batch, "tid")?);
            let times = integers(&batch, "ts")?;
            let are_compilers = booleans(&batch, "is_compiler")?;
            for row in 0..batch.num_rows() {
                let (run, ts) = (runs.value(row).to_owned(), times.value(row));
                let (pid, tid) = (pids.value(row) as u32, tids.value(row) as u32);
                if are_compilers.value(row) {
                    lives.compilers.entry(run).or_default().push((ts, pid));
                } else if ops.value(row) == "exit" {
                    lives.exits.insert((run, pid, tid), ts);
                } else {
                    lives.forks.insert((run, pid), ts);
                }
            }
        }
        Ok(lives)
    }

    /// Returns when a process started compilers, itself or through others. If several processes of the run launch work, each
    /// compiler belongs to its nearest ancestor of these.
    pub(super) fn compilers(
        &self,
        run: &str,
        pid: u32,
        launching: Option<&BTreeSet<u32>>,
    ) -> impl Iterator<Item = i64> {
        let of_run = self.compilers.get(run).map_or(&[][..], Vec::as_slice).iter();
        let is_alone = launching.is_none_or(|launching| launching.len() <= 1);
        let is_started =
            move |compiler: u32| is_alone || self.launcher(run, compiler, launching) == Some(pid);
        of_run.filter(move |(_, compiler)| is_started(*compiler)).map(|(ts, _)| *ts)
    }

    /// Returns the nearest ancestor of a process that launches work.
    fn launcher(&self, run: &str, pid: u32, launching: Option<&BTreeSet<u32>>) -> Option<u32> {
        let (mut at, mut seen) = (pid, BTreeSet::new());
        while seen.insert(at) {
            let parent = *self.parents.get(&(run.to_owned(), at))?;
            if launching.is_some_and(|launching| launching.contains(&parent)) {
                return Some(parent);
            }
            at = parent;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_belongs_to_its_nearest_ancestor_that_launches() {
        let mut lives = Lives::default();
        let parents = [(5, 1), (6, 1), (50, 5), (500, 50), (60, 6), (70, 71), (71, 70)];
        lives.parents.extend(parents.map(|(pid, parent)| (("r".to_owned(), pid), parent)));
        lives.compilers.insert("r".to_owned(), vec![(10, 500), (20, 60), (30, 70), (40, 99)]);
        let both = BTreeSet::from([5, 6]);
        let started = |pid, launching| lives.compilers("r", pid, launching).collect::<Vec<_>>();
        assert_eq!((started(5, Some(&both)), started(6, Some(&both))), (vec![10], vec![20]));
        assert_eq!(started(5, Some(&BTreeSet::from([5]))), [10, 20, 30, 40]);
        assert_eq!(lives.compilers("s", 5, None).count(), 0);
    }
}
