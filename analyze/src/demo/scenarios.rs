//! The list of scenarios: what happened in each recording, what to look for in the answers, and how to go on.

use std::path::Path;

use serde::Serialize;

/// A bundled recording of a known problem.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scenario {
    /// Name on the command line, and of the file that is written.
    pub name: &'static str,
    /// What was recorded, in one sentence.
    pub story: &'static str,
    /// Kind of the first finding; `None` if nothing is found.
    pub first_finding: Option<&'static str>,
    /// What to look for in the answers about the recording.
    pub look_for: &'static [&'static str],
    /// Commands to go on with, in which `RUN` stands for the recording.
    #[serde(skip)]
    next: &'static [&'static str],
    /// The recording: a Parquet file.
    #[serde(skip)]
    pub recording: &'static [u8],
}

/// Embeds a file of `testdata/`.
macro_rules! testdata {
    ($path:literal) => {
        include_bytes!(concat!("../../../testdata/", $path))
    };
}

/// All scenarios, in the order in which they are listed.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "hog",
        story: "A Qwen2-0.5B shape generates tokens on an H200, and three other processes compute without end on the CPU of its main thread.",
        first_finding: Some("waiting-for-cpu"),
        look_for: &[
            "Three quarters of the second on record are time in which the process waited for a CPU, and the task that had it has a name: cpu-hog.",
            "`analyze chains`: most launches are as quick as ever (the medians are 5 to 6 µs); 16 were preempted in the middle, and that is 99 % of the excess latency.",
            "`analyze demo healthy` is the same program without the hogs; `analyze report` of both accounts for the difference.",
        ],
        next: &[
            "analyze chains RUN",
            "analyze sql RUN 'SELECT op, count(*) AS calls, sum(dur) AS dur_ns, sum(preempted_ns) AS preempted_ns FROM op_time WHERE depth = 0 GROUP BY op ORDER BY preempted_ns DESC'",
        ],
        recording: testdata!("demo/hog.parquet"),
    },
    Scenario {
        name: "starved-loader",
        story: "A training loop waits in each step for the one worker of its data loader, whose transform of a batch takes longer than the step (an H200).",
        first_finding: Some("starved-loader"),
        look_for: &[
            "No CUDA call is slow: copies, launches and synchronizations take some 20 µs each.",
            "The wait follows the wakeups: the main thread slept until the loader's thread woke it, and that one waited for the worker, which computed, for the most part with the lock of its own interpreter held. So a faster disk would not help.",
        ],
        next: &[
            "analyze sql RUN 'SELECT part, thread_comm, sum(time_ns) AS time_ns, sum(waits_count) AS waits FROM run_time GROUP BY part, thread_comm ORDER BY time_ns DESC LIMIT 5'",
            "analyze report RUN --html",
        ],
        recording: testdata!("faults/loader-cpu.fault.parquet"),
    },
    Scenario {
        name: "lock-convoy",
        story: "Three helper threads take turns with the thread that launches at one lock, and hold it while they compute (an H200).",
        first_finding: Some("lock-contention"),
        look_for: &[
            "A fifth of the wall time is spent behind the lock, and the finding names the threads that had it: lock-holder-0 to lock-holder-2.",
            "The finding also says what the record cannot tell: which lock it was, because the owner of a futex is not on record.",
        ],
        next: &[
            "analyze sql RUN \"SELECT thread_comm, sum(time_ns) AS time_ns, max(longest_ns) AS longest_ns FROM run_time WHERE waited_in = 'futex' GROUP BY thread_comm ORDER BY time_ns DESC\"",
            "analyze report RUN --html",
        ],
        recording: testdata!("faults/lock-convoy.fault.parquet"),
    },
    Scenario {
        name: "leak",
        story: "A service on an H200 runs 40 epochs, fills caches, keeps one large block, and loses small blocks of one function.",
        first_finding: Some("leak"),
        look_for: &[
            "The leak is 18 blocks with 9.25 MiB: one site kept a block in 18 of 28 epochs.",
            "`analyze leaks`: a block of 60 MiB that was kept once holds more than the leak does, and is told apart from it. The parts sum to the bytes that are live at the end.",
        ],
        next: &[
            "analyze leaks RUN",
            "analyze sql RUN 'SELECT is_leak, frames FROM leak_sites WHERE is_leak'",
        ],
        recording: testdata!("memory/leak.parquet"),
    },
    Scenario {
        name: "fragmentation-oom",
        story: "A program on an H200 with a memory budget asks for 9 MiB and runs out of memory, while PyTorch has 248 MiB free.",
        first_finding: Some("out-of-memory"),
        look_for: &[
            "The verdict is fragmentation: the free memory of the pool lies in blocks of at most 8.14 MiB.",
            "`analyze oom` names a hole that would have been large enough without one live block of 1.68 MiB.",
            "`analyze what-if` replays the allocator with other settings: with expandable segments the request would have been served.",
        ],
        next: &[
            "analyze oom RUN",
            "analyze what-if RUN",
            "analyze sql RUN 'SELECT requested_bytes, pool_free_bytes, largest_free_bytes, hole_bytes, hole_in_use_bytes FROM memory_ooms ORDER BY ts LIMIT 1'",
        ],
        recording: testdata!("memory/plain.parquet"),
    },
    Scenario {
        name: "pause-resume",
        story: "An allocator on an H200 unmaps all of its memory and maps it again at the same addresses, three times, the last time without two blocks.",
        first_finding: Some("start-up"),
        look_for: &[
            "Nothing costs time here, and nothing failed. The view memory_pauses has what was lost: 6 rows, each with the bytes before and after.",
            "The last resume is 96468992 bytes short: 2 blocks have addresses and no memory behind them. A program that uses them fails.",
        ],
        next: &[
            "analyze sql RUN 'SELECT action, dur, before_bytes, after_bytes, missing_bytes, missing_count FROM memory_pauses ORDER BY ts'",
            "analyze memory RUN",
        ],
        recording: testdata!("memory/pause.parquet"),
    },
    Scenario {
        name: "healthy",
        story: "The program of the scenario `hog` on the same machine, with a CPU of its own.",
        first_finding: None,
        look_for: &[
            "Nothing is found, and the first line says what bounds the run instead: the host, as each token takes about a thousand launches.",
            "`analyze chains` lists what was not a factor with its evidence. The excess of the slow launches, 1.4 ms in all, stays `cause unknown`: the record does not show why they were slow.",
        ],
        next: &[
            "analyze chains RUN",
            "analyze sql RUN 'SELECT part, sum(time_ns) AS time_ns FROM run_time GROUP BY part ORDER BY time_ns DESC'",
        ],
        recording: testdata!("demo/healthy.parquet"),
    },
    Scenario {
        name: "empty-cache",
        story: "A Qwen2-0.5B shape generates in rounds on an H200 and calls torch.cuda.empty_cache() after each: the p99 of cudaFree is 4.6 times its median.",
        first_finding: Some("start-up"),
        look_for: &[
            "Was the process descheduled in the middle of cudaFree? Its main thread was preempted 57 times in this run. The account of each call decides: 114 of 114 calls of cudaFree were on the CPU from entry to return.",
            "What the record shows instead: two segments of 520 MiB took 168 and 233 µs to release, the median of those of 2 MiB is 41 µs. The excess of the 5 slow calls stays `cause unknown`.",
            "`analyze chains`: scheduling does not explain the slow launches either: 96 % of the excess of cuLaunchKernel is the first launch of a kernel. In the scenario `hog`, the same account finds that the scheduler caused 99 %.",
        ],
        next: &[
            "analyze sql RUN \"SELECT count(*) AS calls, sum(CASE WHEN on_cpu_ns = dur THEN 1 ELSE 0 END) AS on_cpu_throughout, max(dur - on_cpu_ns) AS off_cpu_max_ns, max(dur) AS dur_max_ns FROM op_time WHERE op = 'cudaFree'\"",
            "analyze releases RUN",
            "analyze chains RUN",
        ],
        recording: testdata!("memory/generate.parquet"),
    },
];

/// Returns a path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

impl Scenario {
    /// Returns the scenario of this name; `None` if there is none.
    pub fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the commands to go on with, for the recording at this path.
    pub fn commands(&self, run: &Path) -> Vec<String> {
        let run = quoted(run);
        self.next.iter().map(|command| command.replacen("RUN", &run, 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_recordings_are_small_and_their_names_differ() {
        let bytes: usize = SCENARIOS.iter().map(|scenario| scenario.recording.len()).sum();
        assert!(bytes <= 3 << 20, "{bytes} bytes");
        let names: BTreeSet<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        for scenario in SCENARIOS {
            assert!((2..=4).contains(&scenario.look_for.len()), "{}", scenario.name);
            assert!(scenario.next.iter().all(|command| command.contains("RUN")), "{}", scenario.name);
        }
    }

    #[test]
    fn a_command_has_the_path_as_one_word() {
        let hog = Scenario::find("hog").expect("a scenario");
        assert_eq!(hog.commands(Path::new("a/hog.parquet"))[0], "analyze chains a/hog.parquet");
        assert_eq!(hog.commands(Path::new("a b/it's"))[0], r"analyze chains 'a b/it'\''s'");
        assert!(Scenario::find("none").is_none());
    }
}
