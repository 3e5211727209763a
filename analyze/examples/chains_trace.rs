//! Writes a generated run of any size through the real writer: for testdata/bench/chains.
//!
//! `chains_trace OUT EVENTS [SEED]`. Sixteen threads call the runtime, which calls the driver; PyTorch's allocator
//! is used in between, and the scheduler does its work. About 55 % of the rows are calls, 35 % events of the allocator,
//! 10 % intervals off the CPU and slices of other tasks. A hog takes the CPU of one call in 20,000 for milliseconds;
//! one synchronisation in 20,000 is a long one. The same seed gives the same rows.

use std::{error::Error, path::Path};

use trace_schema::{Clock, Kind, Run, Text};
use trace_writer::{Recorder, WriteError};

const PID: u32 = 1000;
const HOG: u32 = 2000;
const THREADS: usize = 16;
/// Kernels that are launched.
const KERNELS: u64 = 200;
/// System calls on x86-64.
const IOCTL: i32 = 16;
const FUTEX: i32 = 202;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Around `mean`, mostly a little below, sometimes far above.
    fn around(&mut self, mean: u64) -> i64 {
        let spread = (0..4).map(|_| self.below(mean)).sum::<u64>() / 4;
        let tail = if self.below(50) == 0 { self.below(mean) } else { 0 };
        (mean / 2 + spread + tail) as i64
    }
}

/// A function of the runtime and the one of the driver that it calls.
type Pair = (&'static str, &'static str);

const LAUNCH: Pair = ("cudaLaunchKernel", "cuLaunchKernel");
const COPY: Pair = ("cudaMemcpyAsync", "cuMemcpyHtoDAsync");
const SET: Pair = ("cudaMemsetAsync", "cuMemsetD8Async");
const SYNC: Pair = ("cudaStreamSynchronize", "cuStreamSynchronize");
const ALLOC: Pair = ("cudaMalloc", "cuMemAlloc");
const RECORD: Pair = ("cudaEventRecord", "cuEventRecord");

struct Workload {
    recorder: Recorder,
    random: Random,
    rows: u64,
    /// The time that each thread has reached.
    now: [i64; THREADS],
    /// When each CPU is free of the slice before.
    free: [i64; THREADS],
    calls: u64,
}

impl Workload {
    fn tid(thread: usize) -> u32 {
        PID + thread as u32
    }

    fn slice(
        &mut self,
        cpu: usize,
        (ts, end): (i64, i64),
        task: (u32, &'static str),
    ) -> Result<(), WriteError> {
        let ts = ts.max(self.free[cpu]);
        if ts >= end {
            return Ok(());
        }
        self.free[cpu] = end;
        self.rows += 1;
        self.recorder.push_with(|rows| {
            let mut row = rows.start(ts, Kind::Run, Text::Static("run"), task.0, task.0);
            row.dur(end - ts).cpu(cpu as u32).comm(Text::Static(task.1));
        })
    }

    /// A sleep of `sleep` in a system call, then a wait of `wait` for the CPU that `holder` has.
    fn away(
        &mut self,
        thread: usize,
        ts: i64,
        (sleep, wait): (i64, i64),
        syscall: i32,
        holder: (u32, &'static str),
    ) -> Result<(), WriteError> {
        let end = ts + sleep + wait;
        if wait > 0 {
            self.slice(thread, (ts + sleep, end), holder)?;
        }
        let waker = (self.random.below(3) > 0).then(|| self.random.below(THREADS as u64) as usize);
        self.rows += 1;
        self.recorder.push_with(|rows| {
            let state = if sleep > 0 { "sleeping" } else { "preempted" };
            let mut row = rows.start(ts, Kind::OffCpu, Text::Static(state), PID, Self::tid(thread));
            row.dur(end - ts)
                .cpu(thread as u32)
                .in_cpu(thread as u32)
                .comm(Text::Static("python"))
                .runnable_ns(wait);
            if sleep > 0 {
                row.syscall(syscall).next_pid(0_u32).next_tid(0_u32).next_comm(Text::Static("idle"));
                let waker = waker.map_or((0, 0), |waker| (PID, Self::tid(waker)));
                row.waker_pid(waker.0).waker_tid(waker.1).waker_comm(Text::Static("python"));
            } else {
                row.next_pid(holder.0).next_tid(holder.0).next_comm(Text::Static(holder.1));
            }
        })
    }

    fn call(
        &mut self,
        thread: usize,
        ts: i64,
        dur: i64,
        op: &'static str,
        about: &About,
    ) -> Result<(), WriteError> {
        self.rows += 1;
        self.recorder.push_with(|rows| {
            let mut row = rows.start(ts, Kind::Call, Text::Static(op), PID, Self::tid(thread));
            row.dur(dur).comm(Text::Static("python")).ret(0);
            row.caller(Text::Static(if op.starts_with("cuda") {
                "libtorch_cuda.so"
            } else {
                "libcudart.so.12"
            }));
            match *about {
                About::Kernel(func) => {
                    row.func(0x7f00_0000_0000 + func * 64).stream(7_u64);
                }
                About::Bytes(size, direction) => {
                    row.size_bytes(size).addr(0x7e00_0000_0000 + ts as u64 % 4096 * 512).stream(7_u64);
                    if let Some(direction) = direction {
                        row.direction(Text::Static(direction)).src_addr(0x5500_0000_0000_u64);
                    }
                }
                About::Nothing => {}
            }
        })
    }

    fn allocator(&mut self, thread: usize, ts: i64, freed: bool) -> Result<(), WriteError> {
        let size = 512 << self.random.below(16);
        let addr = 0x7d00_0000_0000 + self.random.below(1 << 20) * 512;
        self.rows += 1;
        self.recorder.push_with(|rows| {
            let op = if freed { "free_requested" } else { "alloc" };
            let mut row = rows.start(ts, Kind::Alloc, Text::Static(op), PID, Self::tid(thread));
            row.addr(addr).size_bytes(size).device(0).allocated_bytes(1 << 30).reserved_bytes(1 << 31);
        })
    }

    /// One call of the runtime with what belongs to it.
    fn step(&mut self, thread: usize) -> Result<(), WriteError> {
        let ts = self.now[thread] + self.random.around(6_000);
        self.calls += 1;
        let (pair, about, own) = match self.random.below(100) {
            0..55 => {
                let kernel = self.random.below(KERNELS);
                (LAUNCH, About::Kernel(kernel), self.random.around(4_000))
            }
            55..70 => {
                // Few copies are large.
                let large = self.random.below(10) == 0;
                let size =
                    if large { 1 << (18 + self.random.below(5)) } else { 1 << (6 + self.random.below(7)) };
                let direction = if self.random.below(2) == 0 { "h2d" } else { "d2h" };
                (COPY, About::Bytes(size, Some(direction)), self.random.around(5_000) + size / 20)
            }
            70..75 => (SET, About::Bytes(4096, None), self.random.around(3_000)),
            75..83 => (SYNC, About::Nothing, self.random.around(8_000)),
            83..90 => (ALLOC, About::Bytes(1 << 21, None), self.random.around(60_000)),
            _ => (RECORD, About::Nothing, self.random.around(1_500)),
        };
        let mut away = 0;
        if pair == SYNC {
            let long = self.random.below(20_000) == 0;
            let sleep = self.random.around(if long { 300_000_000 } else { 40_000 });
            let wait = self.random.around(3_000);
            self.away(thread, ts + 3_000, (sleep, wait), IOCTL, (0x4000 + thread as u32, "kworker"))?;
            away = sleep + wait;
        } else if self.random.below(20_000) == 0 {
            away = self.random.around(4_000_000);
            self.away(thread, ts + 1_000, (0, away), -1, (HOG, "cpu-hog"))?;
        } else if self.random.below(30) == 0 {
            away = self.random.around(2_000);
            self.away(thread, ts + 1_000, (0, away), -1, (0x4000 + thread as u32, "kworker"))?;
        }
        let inner = own * 3 / 4;
        self.call(thread, ts + own / 8, inner + away, pair.1, &about)?;
        self.call(thread, ts, own + away, pair.0, &about)?;
        let mut end = ts + own + away;
        for index in 0..5 {
            if self.random.below(1000) < 255 {
                end += 400;
                self.allocator(thread, end, index % 2 == 1)?;
            }
        }
        if self.random.below(10) == 0 {
            let sleep = self.random.around(20_000);
            let wait = self.random.around(2_000);
            self.away(thread, end + 500, (sleep, wait), FUTEX, (0x4000 + thread as u32, "kworker"))?;
            end += 500 + sleep + wait;
        }
        self.now[thread] = end;
        Ok(())
    }
}

enum About {
    Kernel(u64),
    Bytes(i64, Option<&'static str>),
    Nothing,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [out, events, seed @ ..] = words.as_slice() else {
        return Err("chains_trace OUT EVENTS [SEED]".into());
    };
    let events: u64 = events.parse()?;
    let seed: u64 = seed.first().map_or(Ok(1), |seed| seed.parse())?;
    let mut run = Run {
        producer: "chains_trace".to_owned(),
        lost_is_counted: true,
        throttling_is_recorded: true,
        ..Run::default()
    };
    let recorder = Recorder::create(Path::new(out), true, &run)?;
    let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let start = 1_000_000_000;
    let mut work =
        Workload { recorder, random, rows: 0, now: [start; THREADS], free: [0; THREADS], calls: 0 };
    let mut phase = start;
    while work.rows < events {
        // The thread that is furthest behind goes on, so that rows come nearly in order.
        let thread = (0..THREADS).min_by_key(|thread| work.now[*thread]).unwrap_or_default();
        if work.now[thread] - phase > 500_000_000 {
            let (from, end) = (phase, work.now[thread]);
            let name = ["forward", "backward", "optimizer"][(from / 500_000_000 % 3) as usize];
            work.rows += 1;
            work.recorder.push_with(|rows| {
                let mut row = rows.start(from, Kind::Mark, Text::Static("range"), PID, PID);
                row.dur(end - from).detail(Text::Static(name));
            })?;
            phase = end;
        }
        work.step(thread)?;
    }
    run.clock = Clock {
        start_ns: start,
        end_ns: work.now.iter().copied().max().unwrap_or(start),
        ..Clock::default()
    };
    let finished = work.recorder.finish(&run)?;
    println!(
        "{} rows, {} bytes, {} calls of the runtime",
        finished.rows_count, finished.size_bytes, work.calls
    );
    Ok(())
}
