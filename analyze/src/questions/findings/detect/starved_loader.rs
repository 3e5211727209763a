//! Time in which the thread that drives the GPU waited for data.
//!
//! ```text
//! driving thread  ──launches──┤──── asleep (futex, poll) ────┤──launches──
//! pin-memory thread           ├─── asleep (pipe) ───┤ copies ┤ wakes it
//! worker process              ├── reads, computes ──┤ writes to the pipe
//! ```
//! A worker is a process of the run that launches nothing, did not start this one, is no compiler, and ends sleeps of this
//! process again and again. A thread of this process whose sleeps workers end passes their data on. Workers that are threads
//! look like other threads: they are told by names of loaders, or as several threads of one name that read files.

use std::collections::{BTreeMap, BTreeSet};

use trace_schema::{Counted, Run};

use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::{Claim, Ledger},
        records::Handoff,
    },
    where_time_went::{ProcessTime, Slice},
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[(
        "starved-loader",
        "The thread that drives the GPU waited for processes or threads that prepare data.",
    )],
    detect,
};

/// Least number of sleeps that workers end, and of sleeps of the driving thread that the time is of: a loader hands over
/// again and again, whereas a child process that is started, asked once or waited for at its end does not.
const LEAST_WAITS: i64 = 8;
/// Least share of a thread's time on the path that it waits for files, if its name does not tell that it loads data.
const LEAST_READING_RATIO: f64 = 0.1;
/// Parts of names, in lower case, that threads of data loaders have: PyTorch, TensorFlow, DALI, Grain, FFCV, WebDataset.
const NAMES: [&str; 9] =
    ["pt_data", "data_worker", "dataloader", "prefetch", "tf_data", "dali", "grain", "ffcv", "webdataset"];
/// Parts of the account in which a thread that is waited for works or waits itself.
const WAITS: [&str; 9] = ["other_thread", "gil", "disk", "page_fault", "futex", "poll", "sleep", "blocked", "ioctl"];
/// Parts of the account that only a process which uses a GPU has.
const GPU_WORK: [&str; 5] = ["launch", "sync", "alloc", "copy", "nccl"];
/// Number of threads that are named.
const NAMED: usize = 3;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    // Where launches are not on record, what a process does with a GPU tells that it is a rank.
    let has_work = |process: &&ProcessTime| GPU_WORK.iter().any(|part| process.part_ns(part) > 0);
    let launching = facts.run_time.iter().filter(has_work).map(|process| process.pid);
    let launching: BTreeSet<i64> = launching.collect();
    let (run, handoffs) = (&facts.info.provenance, &facts.records.handoffs);
    ledgers.iter_mut().filter_map(|ledger| of_process(run, &launching, handoffs, ledger)).collect()
}

/// Returns the processes that are no workers of a process: those that launch work, that it was started by, and that compile.
fn others(run: &Run, launching: &BTreeSet<i64>, pid: i64) -> BTreeSet<i64> {
    let parents = run.processes.iter().map(|process| (i64::from(process.pid), i64::from(process.parent_pid)));
    let parents: BTreeMap<i64, i64> = parents.collect();
    let is_compiler = |command: &[String]| command.iter().any(|word| word.contains("/compile_worker/"));
    let compilers = run.processes.iter().filter(|process| is_compiler(&process.command));
    let mut others = launching.clone();
    others.extend(compilers.map(|process| i64::from(process.pid)));
    let mut at = pid;
    while others.insert(at) || at == pid {
        match parents.get(&at).filter(|parent| **parent != pid) {
            Some(parent) => at = *parent,
            None => break,
        }
    }
    others
}

/// Who loads data.
struct Loader {
    /// Worker processes.
    workers: BTreeSet<i64>,
    /// Threads of the process that pass data on or load it.
    threads: BTreeSet<i64>,
    /// Those of these threads that load it.
    loading_count: usize,
    /// Number of sleeps of the process that they ended.
    handoffs_count: i64,
}

impl Loader {
    fn of(others: &BTreeSet<i64>, handoffs: &[Handoff], (pid, tid): (i64, i64), slices: &[Slice]) -> Self {
        let processes = slices.iter().map(|slice| slice.thread_pid);
        let seen: BTreeSet<i64> = processes.filter(|of| *of != pid && !others.contains(of)).collect();
        let to_process = || handoffs.iter().filter(|handoff| handoff.sleeper.0 == pid);
        let by_workers = || to_process().filter(|handoff| seen.contains(&handoff.waker.0));
        let workers: BTreeSet<i64> = by_workers().map(|handoff| handoff.waker.0).collect();
        let relays = by_workers().filter(|handoff| handoff.sleeper.1 != tid && handoff.count >= LEAST_WAITS);
        let loading = threads_that_load((pid, tid), slices);
        let is_loading = |handoff: &&Handoff| handoff.waker.0 == pid && loading.contains(&handoff.waker.1);
        let by_threads = to_process().filter(is_loading);
        let handoffs_count =
            by_workers().chain(by_threads).fold(0, |sum: i64, handoff| sum.saturating_add(handoff.count));
        let loading_count = loading.len();
        let threads = relays.map(|handoff| handoff.sleeper.1).chain(loading.iter().copied()).collect();
        Self { workers, threads, loading_count, handoffs_count }
    }

    /// Returns whether a slice is time in which the driving thread of a process waited for the loader. At the start of a
    /// process and while code is compiled, it may wait for its children, too.
    fn has(&self, (pid, tid): (i64, i64), slice: &Slice) -> bool {
        let is_running = matches!(slice.stage.as_deref(), None | Some("running" | "host-pause"));
        let is_thread = slice.thread_pid == pid && slice.thread_tid != tid;
        let is_woken = slice.task_pid.is_some_and(|task| self.workers.contains(&task));
        is_running
            && WAITS.contains(&slice.part.as_str())
            && (self.workers.contains(&slice.thread_pid)
                || is_thread && self.threads.contains(&slice.thread_tid)
                || is_woken && slice.state == "blocked")
    }
}

/// Returns the threads of a process, other than the driving one, that load data by their names or by what they do.
fn threads_that_load((pid, tid): (i64, i64), slices: &[Slice]) -> BTreeSet<i64> {
    let of_process = || slices.iter().filter(|slice| slice.thread_pid == pid && slice.thread_tid != tid);
    // Threads, time and time in which they waited for files, by names without numbers.
    let mut pools: BTreeMap<&str, (BTreeSet<i64>, i64, i64)> = BTreeMap::new();
    for slice in of_process().filter(|slice| WAITS.contains(&slice.part.as_str())) {
        let Some(name) = slice.thread_comm.as_deref() else { continue };
        let name = name.trim_end_matches(|letter: char| !letter.is_alphabetic());
        let (threads, time_ns, reading_ns) = pools.entry(name).or_default();
        threads.insert(slice.thread_tid);
        *time_ns = time_ns.saturating_add(slice.time_ns);
        // Threads wait for pages whatever they do: code that is loaded for the first time, for one.
        if slice.part == "disk" {
            *reading_ns = reading_ns.saturating_add(slice.time_ns);
        }
    }
    let loads = |(name, (threads, time_ns, reading_ns)): &(&str, (BTreeSet<i64>, i64, i64))| {
        let name = name.to_lowercase();
        NAMES.iter().any(|part| name.contains(*part))
            || threads.len() > 1 && *reading_ns as f64 > LEAST_READING_RATIO * *time_ns as f64
    };
    pools.into_iter().filter(loads).flat_map(|(_, (threads, ..))| threads).collect()
}

/// Returns what the loader did for most of the time, with its share in percent, and whether that was waiting for files.
fn cause<'a>(claim: &Claim<'a>) -> (&'a str, f64, bool) {
    let sums = claim.by(|slice| {
        Some(match slice.part.as_str() {
            // The thread that has a lock of the worker runs.
            "other_thread" | "gil" => "ran on CPU",
            "disk" | "page_fault" => "waited for files",
            "sleep" => "slept by its own wish",
            _ => "waited for data itself, from a pipe, a lock or the network",
        })
    });
    let (what, ns) = sums.first().copied().unwrap_or(("ran on CPU", 0));
    (what, 100.0 * ns as f64 / claim.time_ns().max(1) as f64, what == "waited for files")
}

fn of_process(
    run: &Run,
    launching: &BTreeSet<i64>,
    handoffs: &[Handoff],
    ledger: &mut Ledger<'_>,
) -> Option<Finding> {
    let process = ledger.process;
    let (pid, wall_ns, driver) = (process.pid, process.wall_ns, (process.pid, process.tid));
    let loader = Loader::of(&others(run, launching, pid), handoffs, driver, &process.slices);
    let waits = ledger.look(|slice| loader.has(driver, slice));
    let waits_count = waits.waits_count();
    if loader.handoffs_count < LEAST_WAITS || waits_count < LEAST_WAITS {
        return None;
    }
    let claim = ledger.claim(|slice| loader.has(driver, slice));
    let (what, percent, is_reading) = cause(&claim);
    let count = if loader.workers.is_empty() { loader.loading_count } else { loader.workers.len() };
    let cpus = run.host.cpu_count as usize;
    let to_do = match (is_reading, count + 1 < cpus || cpus == 0) {
        (true, _) => format!(
            "Keep the data in memory or on faster storage, or raise the number of workers (num_workers of DataLoader) \
             above {count}, so that more reads are under way at once."
        ),
        (false, true) => format!(
            "Raise the number of workers (num_workers of DataLoader) above {count}, as the machine has {}, or make \
             what they compute cheaper.",
            Counted(cpus, "CPU")
        ),
        (false, false) => format!(
            "Make the work of {} cheaper, do it before the run, or on the GPU: the machine has {}.",
            Counted(count, "worker"),
            Counted(cpus, "CPU")
        ),
    };
    let title = format!(
        "The run waited for its data loader ({}), which for {percent:.0} % of that time {what}.",
        claim.threads(NAMED)
    );
    Some(
        Finding::new("starved-loader", Rank::Cost, Some(pid), title)
            .costs(claim.time_ns(), wall_ns)
            .shown_by(
                format!(
                    "{} ended {} of this process; the driving thread waited for them {}",
                    Counted(count, "worker"),
                    Counted(loader.handoffs_count, "sleep"),
                    Counted(waits_count, "time")
                ),
                ledger.sql("depth > 0 AND part <> 'waiting_for_cpu'"),
                "run-time",
            )
            .to_do(to_do)
            .saves("at most this time: it is what the driving thread would not have waited"),
    )
}

#[cfg(test)]
mod tests {
    use trace_schema::ProcessInfo;

    use super::*;

    fn slice(part: &str, (pid, tid): (i64, i64), comm: &str, time_ns: i64) -> Slice {
        Slice {
            part: part.to_owned(),
            state: "on-cpu".to_owned(),
            stage: Some("running".to_owned()),
            thread_pid: pid,
            thread_tid: tid,
            thread_comm: Some(comm.to_owned()),
            time_ns,
            waits_count: 10,
            depth: 1,
            ..Slice::default()
        }
    }

    /// Who slept, who ended the sleeps, and how many, by process and thread.
    type Ended = ((i64, i64), (i64, i64), i64);

    fn found(slices: Vec<Slice>, handoffs: &[Ended]) -> Option<(Finding, i64)> {
        let process = ProcessTime { pid: 7, tid: 7, wall_ns: 1000, slices, ..ProcessTime::default() };
        let process_info = |pid, parent_pid| ProcessInfo { pid, parent_pid, ..ProcessInfo::default() };
        let mut run = Run { processes: vec![process_info(7, 3), process_info(3, 1)], ..Run::default() };
        run.host.cpu_count = 16;
        let handoff = |&(sleeper, waker, count): &((i64, i64), (i64, i64), i64)| Handoff {
            sleeper,
            waker,
            is_futex: true,
            count,
        };
        let handoffs: Vec<Handoff> = handoffs.iter().map(handoff).collect();
        let mut ledger = Ledger::new(&process);
        let finding = of_process(&run, &BTreeSet::from([7, 6]), &handoffs, &mut ledger);
        finding.map(|finding| (finding, ledger.left_ns()))
    }

    #[test]
    fn workers_and_who_passes_their_data_on_are_a_loader() {
        let slices = vec![
            slice("other_thread", (8, 8), "python3", 300),
            slice("disk", (9, 9), "python3", 100),
            slice("other_thread", (7, 20), "python3", 50),
            slice("other_thread", (7, 21), "python3", 40),
            slice("host", (7, 7), "python3", 500),
        ];
        // Thread 20 gets data from the workers 8 and 9; thread 21 has nothing to do with them.
        let handoffs = [((7, 20), (8, 8), 60), ((7, 20), (9, 9), 50), ((7, 7), (7, 20), 100)];
        let (finding, left_ns) = found(slices, &handoffs).expect("a finding");
        assert_eq!((finding.kind, finding.cost_ns, left_ns), ("starved-loader", Some(450), 540));
        assert!(finding.title.contains("which for 78 % of that time ran on CPU"), "{}", finding.title);
        assert!(finding.to_do.contains("above 2, as the machine has 16 CPUs"), "{}", finding.to_do);
    }

    #[test]
    fn files_are_told_from_cpu_and_threads_by_names_or_files() {
        let slices =
            vec![slice("disk", (8, 8), "pt_data_worker", 300), slice("other_thread", (8, 8), "w", 100)];
        let (finding, _) = found(slices, &[((7, 7), (8, 8), 60)]).expect("a finding");
        assert!(finding.title.contains("which for 75 % of that time waited for files"), "{}", finding.title);
        let named = vec![slice("other_thread", (7, 20), "tf_data_3", 300)];
        assert!(found(named, &[((7, 7), (7, 20), 60)]).is_some());
        let readers = |reading_ns| {
            vec![
                slice("other_thread", (7, 20), "reader-1", 300),
                slice("other_thread", (7, 21), "reader-2", 300),
                slice("disk", (7, 21), "reader-2", reading_ns),
            ]
        };
        let by_both = [((7, 7), (7, 20), 60), ((7, 7), (7, 21), 60)];
        assert!(found(readers(100), &by_both).is_some());
        assert!(found(readers(10), &by_both).is_none(), "they compute");
    }

    #[test]
    fn children_that_are_asked_once_other_ranks_and_parents_are_no_loaders() {
        let once =
            |pid, waits_count| vec![Slice { waits_count, ..slice("other_thread", (pid, pid), "tar", 500) }];
        assert!(found(once(8, 1), &[((7, 7), (8, 8), 1)]).is_none());
        assert!(found(once(8, 10), &[((7, 7), (8, 8), 7)]).is_none());
        assert!(found(once(8, 7), &[((7, 7), (8, 8), 10)]).is_none());
        assert!(found(once(6, 10), &[((7, 7), (6, 6), 10)]).is_none(), "another rank");
        assert!(found(once(3, 10), &[((7, 7), (3, 3), 10)]).is_none(), "the parent");
        let mut early = once(8, 10);
        early[0].stage = Some("start-up".to_owned());
        assert!(found(early, &[((7, 7), (8, 8), 10)]).is_none());
        assert!(found(once(8, 10), &[((7, 7), (8, 8), 10)]).is_some());
    }
}
