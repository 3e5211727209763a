//! The kernel's accounting of a thread: readings before and after a call say what happened to it.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use cuda_stub::truth::Call;

/// How long a thread ran, and how long it waited for a CPU.
pub(crate) struct Schedstat(File);

impl Schedstat {
    /// Opens the accounting of the first thread of a process.
    pub(crate) fn of(pid: u32) -> Self {
        Self(File::open(format!("/proc/{pid}/task/{pid}/schedstat")).expect("the books of a hog"))
    }

    fn own() -> Self {
        Self(File::open("/proc/thread-self/schedstat").expect("a kernel with CONFIG_SCHED_INFO"))
    }

    fn field(&self, index: usize) -> u64 {
        let mut buffer = [0; 96];
        let text = read(&self.0, &mut buffer);
        text.split_ascii_whitespace().nth(index).and_then(|word| word.parse().ok()).expect("a time")
    }

    /// Total time that the thread ran, in nanoseconds, as of its last switch or tick.
    pub(crate) fn ran_ns(&self) -> u64 {
        self.field(0)
    }

    /// Total time that the thread waited for a CPU, in nanoseconds.
    fn run_delay_ns(&self) -> u64 {
        self.field(1)
    }
}

/// Open files of one thread's accounting.
pub(crate) struct Books {
    schedstat: Schedstat,
    cpu_stat: Option<File>,
}

/// One reading.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    run_delay_ns: u64,
    throttled_ns: u64,
    nvcsw_count: i64,
    nivcsw_count: i64,
    majflt_count: i64,
}

impl Books {
    /// Opens the accounting of the calling thread and of this control group.
    pub(crate) fn open(cpu_stat: Option<&Path>) -> Self {
        Self {
            schedstat: Schedstat::own(),
            cpu_stat: cpu_stat.map(|path| File::open(path).expect("cpu.stat of the control group")),
        }
    }

    /// Total time that the thread waited for a CPU, in nanoseconds.
    pub(crate) fn run_delay_ns(&self) -> u64 {
        self.schedstat.run_delay_ns()
    }

    fn throttled_ns(&self) -> u64 {
        let Some(file) = &self.cpu_stat else {
            return 0;
        };
        let mut buffer = [0; 1024];
        let text = read(file, &mut buffer);
        // Version 1 counts nanoseconds, version 2 microseconds.
        text.lines()
            .find_map(|line| match line.split_once(' ')? {
                ("throttled_time", ns) => ns.parse::<u64>().ok(),
                ("throttled_usec", us) => us.parse::<u64>().ok().map(|us| us * 1000),
                _ => None,
            })
            .expect("a time throttled")
    }

    /// Reads all counters; the calling thread must be the one that opened them.
    pub(crate) fn read(&self) -> Reading {
        // SAFETY: zeros are valid, and the call fills its place.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        Reading {
            throttled_ns: self.throttled_ns(),
            run_delay_ns: self.run_delay_ns(),
            nvcsw_count: usage.ru_nvcsw,
            nivcsw_count: usage.ru_nivcsw,
            majflt_count: usage.ru_majflt,
        }
    }
}

fn read<'a>(file: &File, buffer: &'a mut [u8]) -> &'a str {
    let length = file.read_at(buffer, 0).expect("read the kernel's books");
    std::str::from_utf8(&buffer[..length]).expect("text")
}

impl Reading {
    /// Writes what changed since into a call.
    pub(crate) fn since(self, before: Self, call: &mut Call) {
        call.run_delay_ns = self.run_delay_ns - before.run_delay_ns;
        call.throttled_ns = self.throttled_ns - before.throttled_ns;
        call.nvcsw_count = self.nvcsw_count - before.nvcsw_count;
        call.nivcsw_count = self.nivcsw_count - before.nivcsw_count;
        call.majflt_count = self.majflt_count - before.majflt_count;
    }
}
