//! What ended a run or keeps it from going on: a process that crashed, was killed or ended early, a call that failed, a call
//! that does not return.
//!
//! A run has at most one such finding, the first: what fails after it may be its consequence, and is its evidence. A process
//! that ends badly while others wait for it comes before their wait; a wait that begins earlier comes before the kill that
//! ends it.

mod ended;
mod hang;

use trace_schema::{Counted, Layer, Nanos};

use self::{
    ended::{Failed, FailedCall, How},
    hang::{Hang, Uneven},
};
use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
        records::Failures,
    },
    info::Info,
    where_time_went::Slice,
};
use analyze_verdict::blocker::syscall_name;

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        (
            "crash",
            "A process was killed by a fault of its own, or ended with an error after a call had failed.",
        ),
        (
            "failed-call",
            "A CUDA or NCCL call returned an error, after which the process did no more of its work.",
        ),
        ("hang", "A call was open for long at the end, while its process got nothing else done."),
        ("killed", "Another process or the kernel ended a process by a signal."),
        ("exited-early", "A process ended with an error, and no call is on record that failed before."),
    ],
    detect,
};

/// Number of threads and processes that are named.
const NAMED: usize = 3;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    find(facts.info, &facts.records.failures, ledgers)
}

fn find(info: &Info, failures: &Failures, ledgers: &mut [Ledger<'_>]) -> Vec<Finding> {
    let failed = ended::failed(info, failures);
    let hangs = hang::hangs(info, failures);
    let names = Names { info, failures };
    let Some(hang) = hangs.first() else {
        let first = failed.first().map(|first| names.failure(first, &failed));
        return first.into_iter().collect();
    };
    // A process that ended before the others had waited for long is what they wait for.
    let cause = failed.iter().find(|failed| {
        let hung = hangs.iter().any(|hang| hang.call.pid == failed.pid);
        !hung && failed.ts.saturating_add(hang::LEAST_NS) <= hang.end
    });
    let finding = match cause {
        Some(failed_first) => {
            let text = format!("others wait: {}", names.waiting(hang));
            names.failure(failed_first, &failed).shown_by(text, open_calls(hang), "")
        }
        None => names.hang(hang, &hangs, &failed),
    };
    vec![claimed(finding, hang, ledgers)]
}

/// Claims the time of the open call from the account of its process.
fn claimed(finding: Finding, hang: &Hang, ledgers: &mut [Ledger<'_>]) -> Finding {
    let Some(ledger) = ledgers.iter_mut().find(|ledger| ledger.process.pid == hang.call.pid) else {
        return finding;
    };
    let wall_ns = ledger.process.wall_ns;
    // If it is the driving thread that waits, time of the thread that ended the sleep at last is in the account instead.
    let is_driver = ledger.process.tid == hang.call.tid;
    let claim = ledger.claim_at_most(hang.waited_ns(), |slice| {
        (is_driver || slice.thread_tid == hang.call.tid) && slice.op.as_deref() == Some(hang.call.op.name())
    });
    // The thread that the account follows may be another one, which slept at least for as long.
    let open_ns = hang.waited_ns().saturating_sub(claim.time_ns());
    let is_beside = |slice: &Slice| slice.longest_ns >= open_ns && slice.state == "blocked";
    let beside = if open_ns > 0 { ledger.claim_at_most(open_ns, is_beside).time_ns() } else { 0 };
    let cost_ns = claim.time_ns().saturating_add(beside);
    if cost_ns == 0 { finding } else { finding.costs(cost_ns, wall_ns) }
}

fn open_calls(hang: &Hang) -> String {
    format!("SELECT * FROM ops WHERE pid = {} AND dur IS NULL ORDER BY ts", hang.call.pid)
}

/// Words for what is on record.
struct Names<'a> {
    info: &'a Info,
    failures: &'a Failures,
}

impl Names<'_> {
    /// A thread, with its name if that is known.
    fn thread(&self, pid: i64, tid: i64) -> Option<&str> {
        let threads = &self.info.provenance.threads;
        let is_it = |of: u32, number: u32| (i64::from(of), i64::from(number)) == (pid, tid);
        let found = threads.iter().find(|thread| is_it(thread.pid, thread.tid));
        found.map(|thread| thread.comm.as_str()).filter(|comm| !comm.is_empty())
    }

    fn process(&self, pid: i64) -> String {
        self.thread(pid, pid)
            .map_or_else(|| format!("process {pid}"), |comm| format!("process {pid} ({comm})"))
    }

    /// The time since the start of the recording.
    fn at(&self, ts: i64) -> Nanos {
        Nanos(ts.saturating_sub(self.info.provenance.clock.start_ns))
    }

    fn failure(&self, failed: &Failed, all: &[Failed]) -> Finding {
        let process = self.process(failed.pid);
        let after = match failed.call {
            Some(call) => format!(" after {} returned {}", call.op.name(), code(&call)),
            None if failed.is_out_of_memory => {
                " after a request to PyTorch's allocator had failed".to_owned()
            }
            None => String::new(),
        };
        let (kind, title) = match failed.how {
            How::KilledForMemory => ("killed", format!("The kernel killed {process} to free memory{after}.")),
            How::Killed(signal) => {
                ("killed", format!("{} ended {process}{after}.", ended::signal_name(signal)))
            }
            How::Crash(signal, why) => ("crash", format!("{signal} killed {process}{after}: {why}.")),
            How::Status(status) => {
                let ended = format!("{} ended with exit status {status}", capital(&process));
                if after.is_empty() {
                    ("exited-early", format!("{ended}, and no call is on record that failed before."))
                } else {
                    ("crash", format!("{ended}{after}."))
                }
            }
            How::Well | How::Unknown => match failed.call {
                Some(call) => {
                    let (op, code) = (call.op.name(), code(&call));
                    ("failed-call", format!("{op} returned {code} to {process}."))
                }
                // Without a call and an end there is no failure.
                None => ("failed-call", format!("A call of {process} failed.")),
            },
        };
        let rank = if failed.is_out_of_memory { Rank::OutOfMemory } else { Rank::Failure };
        let mut finding = Finding::new(kind, rank, Some(failed.pid), title).to_do(to_do(failed));
        if let Some(call) = failed.call {
            let text = format!(
                "{} returned {}, the first {} after the start in thread {}",
                Counted(call.calls_count, "call"),
                call.code.code,
                self.at(call.ts),
                call.tid
            );
            let sql = format!(
                "SELECT * FROM ops WHERE pid = {} AND ret = {} AND layer = '{}' ORDER BY ts",
                failed.pid,
                call.code.code,
                call.code.layer.name()
            );
            finding = finding.shown_by(text, sql, "");
        }
        if let Some(ts) = failed.exit_ts {
            finding = finding.shown_by(
                format!("the process ended {} after the start", self.at(ts)),
                end_of(failed.pid),
                "",
            );
        }
        let others = all.iter().filter(|other| other.pid != failed.pid && other.exit_ts >= Some(failed.ts));
        let others: Vec<String> = others.map(|other| other.pid.to_string()).collect();
        if !others.is_empty() {
            let sql = format!(
                "SELECT * FROM process_events WHERE op = 'exit' AND tid = pid AND pid IN ({}) ORDER BY ts",
                others.join(", ")
            );
            finding =
                finding.shown_by(format!("{} failed after it", Counted(others.len(), "process")), sql, "");
        }
        finding.open = match (failed.how, failed.call) {
            (How::Killed(_), _) => "Who sent the signal is not on record.".to_owned(),
            (How::Unknown, Some(_)) => "How the process ended is not on record.".to_owned(),
            (How::Status(_) | How::Crash(..), None) if !failed.is_out_of_memory => {
                "What the process wrote about it is not on record.".to_owned()
            }
            _ => String::new(),
        };
        finding
    }

    /// The open call: thread, function and for how long.
    fn waiting(&self, hang: &Hang) -> String {
        let call = &hang.call;
        let name = self.thread(call.pid, call.tid).map_or_else(String::new, |comm| format!(" ({comm})"));
        let (op, waited) = (call.op.name(), Nanos(hang.waited_ns()));
        format!("thread {}{name} of process {} was in {op} for {waited}", call.tid, call.pid)
    }

    fn hang(&self, hang: &Hang, all: &[Hang], failed: &[Failed]) -> Finding {
        let pid = hang.call.pid;
        let uneven = hang::uneven(self.failures);
        let mut title = capital(&self.waiting(hang));
        title += if hang.has_ended {
            " until the process ended, and it got nothing else done"
        } else {
            " until the recording ended, and the process got nothing else done"
        };
        if let Some(Uneven { op, size_bytes, fewest, most }) = &uneven {
            let size = size_bytes.map_or_else(String::new, |size| format!(" of {size} bytes"));
            let name = op.name();
            title += &format!(
                "; process {} made {} of the {} {name} calls{size} of process {}",
                fewest.0, fewest.1, most.1, most.0
            );
        }
        title.push('.');
        let mut finding = Finding::new("hang", Rank::Failure, Some(pid), title)
            .shown_by(
                format!("the call began {} after the start", self.at(hang.call.ts)),
                open_calls(hang),
                "",
            )
            .to_do(if !self.failures.collectives.is_empty() {
                "Run again with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1, which writes the last \
                 collectives of each rank when one does not finish, and compare them."
            } else {
                "While it hangs, run `py-spy dump --native --pid PID` for the code, and cuda-gdb for the kernel that does not end."
            });
        if let Some(text) = self.others(hang) {
            let sql = format!(
                "SELECT tid, comm, state, syscall, ts FROM off_cpu WHERE pid = {pid} AND dur IS NULL ORDER BY tid"
            );
            finding = finding.shown_by(text, sql, "");
        }
        if all.len() > 1 {
            let text = format!("{} wait in calls that did not return", Counted(all.len(), "process"));
            let pids: Vec<String> = all.iter().map(|hang| hang.call.pid.to_string()).collect();
            let pids = pids.join(", ");
            let sql = format!("SELECT * FROM ops WHERE dur IS NULL AND pid IN ({pids}) ORDER BY pid, ts");
            finding = finding.shown_by(text, sql, "");
        }
        if let Some(Uneven { op, fewest, most, .. }) = &uneven {
            let sql = format!(
                "SELECT pid, size_bytes, count(*) AS calls_count FROM nccl WHERE op = '{}' GROUP BY pid, size_bytes \
                 ORDER BY pid, size_bytes",
                op.name()
            );
            let text = format!(
                "process {} made {}, process {} made {}",
                fewest.0,
                Counted(fewest.1, "call"),
                most.0,
                most.1
            );
            finding = finding.shown_by(text, sql, "nccl");
        }
        if let Some(end) = failed.iter().find(|failed| failed.pid == pid && failed.how.is_bad()) {
            let text = match end.how {
                How::Killed(signal) => format!("{} ended it", ended::signal_name(signal)),
                How::KilledForMemory => "the kernel killed it to free memory".to_owned(),
                How::Crash(signal, _) => format!("{signal} ended it"),
                How::Status(status) => format!("exit status {status} ended it"),
                How::Well | How::Unknown => "it ended".to_owned(),
            };
            finding = finding.shown_by(text, end_of(pid), "");
        }
        let run = &self.info.provenance;
        let was_lost = run.lost.iter().any(|lost| lost.from_ns < hang.end && lost.to_ns > hang.since);
        if was_lost || !run.lost_is_counted || !run.stored.is_empty() {
            return finding.inconclusive("Calls that returned in this time may be missing from the record.");
        }
        if !hang.has_ended {
            finding.open = "Whether the call returned after the recording is not on record.".to_owned();
        }
        finding
    }

    /// What other threads of a hanging process were in at the end.
    fn others(&self, hang: &Hang) -> Option<String> {
        let failures = self.failures;
        let (pid, own) = (hang.call.pid, hang.call.tid);
        let is_other = |of: i64, tid: i64| of == pid && tid != own;
        let calls = failures.open_calls.iter().filter(|call| is_other(call.pid, call.tid));
        let in_calls = calls.map(|call| (call.tid, call.op.name().to_owned(), call.ts));
        let sleeps = failures.sleeps.iter().filter(|sleep| is_other(sleep.pid, sleep.tid));
        let is_in_call = |tid: i64| failures.open_calls.iter().any(|call| (call.pid, call.tid) == (pid, tid));
        let asleep = sleeps.filter(|sleep| !is_in_call(sleep.tid)).map(|sleep| {
            let state = match sleep.syscall.and_then(syscall_name) {
                Some(name) => format!("{} in {name}", sleep.state),
                None => sleep.state.clone(),
            };
            (sleep.tid, state, sleep.ts)
        });
        let all: Vec<(i64, String, i64)> = in_calls.chain(asleep).collect();
        let said = |(tid, state, ts): &(i64, String, i64)| {
            let name = self.thread(pid, *tid).map_or_else(|| format!("thread {tid}"), str::to_owned);
            format!("{name}: {state} for {}", Nanos(hang.end.saturating_sub(*ts)))
        };
        let named: Vec<String> = all.iter().take(NAMED).map(said).collect();
        let more =
            if all.len() > NAMED { format!(", and {} more", all.len() - NAMED) } else { String::new() };
        (!all.is_empty()).then(|| format!("other threads at the end: {}{more}", named.join(", ")))
    }
}

fn end_of(pid: i64) -> String {
    format!("SELECT * FROM process_events WHERE pid = {pid} AND op IN ('exit', 'oom_kill') ORDER BY ts")
}

/// The code with its name.
fn code(call: &FailedCall) -> String {
    let number = call.code.code;
    call.code.name().map_or_else(|| number.to_string(), |name| format!("{number} ({name})"))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The one thing to do about a failed process.
fn to_do(failed: &Failed) -> &'static str {
    if failed.is_out_of_memory {
        return "Run `analyze oom RUN` and `analyze memory RUN --at peak`: they say what held the memory.";
    }
    let cuda = failed.call.filter(|call| call.code.layer != Layer::Nccl).map(|call| call.code.code);
    match (failed.how, failed.call, cuda) {
        (_, _, Some(710)) => {
            "Run again with CUDA_LAUNCH_BLOCKING=1: the call that then fails is the launch of the kernel whose assertion \
             failed, often for an index out of range; the kernel prints the assertion to standard error."
        }
        (_, _, Some(700 | 714..=719)) => {
            "Run again under `compute-sanitizer`: it names the kernel and the address; CUDA_LAUNCH_BLOCKING=1 shows the launch."
        }
        (_, _, Some(214 | 220 | 226)) => {
            "Look for Xid messages in `dmesg` and for errors in `nvidia-smi -q`: the GPU or a link has a fault."
        }
        (_, Some(call), _) if call.code.layer == Layer::Nccl => {
            "Run again with NCCL_DEBUG=INFO: NCCL then prints what failed and on which rank."
        }
        (_, Some(_), _) => {
            "Run again with CUDA_LAUNCH_BLOCKING=1 and read the message of the call that fails."
        }
        (How::KilledForMemory, ..) => {
            "Raise the memory limit of the control group, or let fewer loader workers hold fewer batches (num_workers, \
             prefetch_factor, pin_memory)."
        }
        (How::Killed(_), ..) => {
            "Look in the log of the job scheduler for a time or memory limit, and in `dmesg` for a kill by the kernel."
        }
        (How::Crash("SIGBUS", _), ..) => {
            "Enlarge /dev/shm (`docker run --shm-size=8g`), through which loader workers pass batches, or lower num_workers."
        }
        (How::Crash(..), ..) => {
            "Run again with PYTHONFAULTHANDLER=1, which prints the Python stack at the signal, or open the core dump (`coredumpctl gdb`)."
        }
        (How::Status(_) | How::Well | How::Unknown, ..) => {
            "Read the last lines that the process wrote to standard error."
        }
    }
}

#[cfg(test)]
mod tests {
    use trace_schema::{Clock, Op, ProcessInfo, Run, Thread};

    use super::*;
    use crate::questions::{
        findings::{
            finding::Confidence,
            records::{CallSum, CollectiveSum, End, OpenCall, OpenSleep},
        },
        where_time_went::{ProcessTime, Slice},
    };

    const S: i64 = 1_000_000_000;

    /// A run of 60 s in which process 1, a launcher, started processes 2 and 3.
    fn info() -> Info {
        let process = |pid, parent_pid| ProcessInfo { pid, parent_pid, ..ProcessInfo::default() };
        let thread = |pid, tid, comm: &str| Thread { pid, tid, comm: comm.to_owned() };
        let provenance = Run {
            clock: Clock { start_ns: S, end_ns: 61 * S, ..Clock::default() },
            lost_is_counted: true,
            processes: vec![process(1, 900), process(2, 1), process(3, 1)],
            threads: vec![thread(2, 2, "python3"), thread(2, 20, "pt_autograd_0"), thread(3, 3, "python3")],
            ..Run::default()
        };
        Info {
            run: "run".to_owned(),
            rows_count: 1,
            size_bytes: 1,
            provenance,
            counts: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn calls(pid: i64, op: Op, ret: i32, first_ts: i64, last_ts: i64) -> CallSum {
        CallSum {
            pid,
            tid: pid,
            op,
            ret: Some(ret),
            calls_count: 3,
            open_count: 0,
            first_ts,
            last_ts,
            last_end: Some(last_ts + 10),
            longest_ns: Some(10),
        }
    }

    fn end(pid: i64, exit_ts: i64, status: i64) -> End {
        End { pid, exit_ts: Some(exit_ts), status: Some(status), oom_kill_ts: None }
    }

    fn found(failures: &Failures) -> Vec<(&'static str, Option<i64>, String)> {
        let found = find(&info(), failures, &mut []);
        found.into_iter().map(|finding| (finding.kind, finding.pid, finding.title)).collect()
    }

    #[test]
    fn an_assertion_on_the_device_is_what_the_process_ended_after() {
        let launches = calls(2, Op::CudaLaunchKernel, 0, 2 * S, 5 * S);
        let sync = calls(2, Op::CudaStreamSynchronize, 710, 6 * S, 7 * S);
        let mut failures = Failures { calls: vec![launches, sync], ..Failures::default() };
        let title = "cudaStreamSynchronize returned 710 (cudaErrorAssert) to process 2 (python3).";
        assert_eq!(found(&failures), [("failed-call", Some(2), title.to_owned())]);
        // The launcher ends with an error because of it.
        failures.ends = vec![end(1, 9 * S, 1), end(2, 8 * S, 1), end(3, 8 * S, -15)];
        let title = "Process 2 (python3) ended with exit status 1 after cudaStreamSynchronize returned 710 (cudaErrorAssert).";
        assert_eq!(found(&failures), [("crash", Some(2), title.to_owned())]);
        let finding = &find(&info(), &failures, &mut [])[0];
        let texts: Vec<&str> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "3 calls returned 710, the first 5.00 s after the start in thread 2",
                "the process ended 7.00 s after the start",
                "1 process failed after it",
            ]
        );
    }

    #[test]
    fn signals_and_statuses_of_processes_that_matter_are_failures() {
        let of = |ends: Vec<End>| {
            let calls = vec![calls(2, Op::CudaLaunchKernel, 0, 2 * S, 5 * S)];
            found(&Failures { calls, ends, ..Failures::default() })
        };
        let kinds = |ends| of(ends).into_iter().map(|(kind, pid, _)| (kind, pid)).collect::<Vec<_>>();
        assert_eq!(kinds(vec![end(2, 8 * S, -11)]), [("crash", Some(2))]);
        assert_eq!(kinds(vec![end(2, 8 * S, 1)]), [("exited-early", Some(2))]);
        assert_eq!(kinds(vec![end(2, 8 * S, -9), end(1, 9 * S, 137)]), [("killed", Some(2))]);
        let victim = End { oom_kill_ts: Some(7 * S), ..end(7, 8 * S, -9) };
        assert_eq!(kinds(vec![victim, end(1, 9 * S, 0)]), [("killed", Some(7))]);
        // A worker that is killed when the job is done, a helper that fails, an interrupt from the keyboard.
        assert!(kinds(vec![end(2, 8 * S, -9), end(3, 8 * S, -15), end(1, 9 * S, 0)]).is_empty());
        assert!(kinds(vec![end(7, 3 * S, 1), end(8, 3 * S, -15), end(2, 8 * S, 0)]).is_empty());
        assert!(kinds(vec![end(2, 8 * S, -2)]).is_empty());
        // A helper without calls that crashes is what a job that fails later may have failed by.
        assert_eq!(kinds(vec![end(7, 3 * S, -7), end(1, 9 * S, 1)]), [("crash", Some(7))]);
        assert!(kinds(vec![end(7, 3 * S, -7), end(1, 9 * S, 0)]).is_empty());
    }

    #[test]
    fn memory_that_is_not_there_ranks_as_that() {
        let launches = calls(2, Op::CudaLaunchKernel, 0, 2 * S, 5 * S);
        let malloc = calls(2, Op::CudaMalloc, 2, 6 * S, 6 * S);
        let ends = vec![end(2, 8 * S, 1)];
        let by_call = Failures { calls: vec![launches, malloc], ends: ends.clone(), ..Failures::default() };
        let out_of_memory = vec![(2, 6 * S)];
        let by_request = Failures { calls: vec![launches], ends, out_of_memory, ..Failures::default() };
        for failures in [by_call, by_request] {
            let finding = &find(&info(), &failures, &mut [])[0];
            assert_eq!((finding.kind, finding.rank), ("crash", Rank::OutOfMemory), "{}", finding.title);
        }
    }

    fn hanging() -> Failures {
        Failures {
            calls: vec![
                calls(2, Op::CudaLaunchKernel, 0, 2 * S, 50 * S),
                calls(3, Op::CudaLaunchKernel, 0, 2 * S, 51 * S),
            ],
            open_calls: vec![OpenCall { pid: 2, tid: 2, op: Op::CudaStreamSynchronize, ts: 51 * S }],
            sleeps: vec![OpenSleep {
                pid: 2,
                tid: 20,
                state: "sleeping".to_owned(),
                syscall: Some(202),
                ts: 41 * S,
            }],
            collectives: [(2, 272), (3, 247)]
                .map(|(pid, calls_count)| CollectiveSum {
                    pid,
                    op: Op::NcclAllReduce,
                    size_bytes: Some(4),
                    calls_count,
                })
                .to_vec(),
            ..Failures::default()
        }
    }

    #[test]
    fn a_call_that_does_not_return_is_a_hang_that_costs_its_time() {
        let slice = |op: &str, time_ns| Slice {
            part: "sync".to_owned(),
            op: Some(op.to_owned()),
            thread_pid: 2,
            thread_tid: 2,
            time_ns,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 2,
            tid: 2,
            wall_ts_ns: S,
            wall_ns: 60 * S,
            slices: vec![slice("cudaStreamSynchronize", 14 * S), slice("cudaMalloc", 46 * S)],
            ..ProcessTime::default()
        };
        let mut ledgers = [Ledger::new(&process)];
        let findings = find(&info(), &hanging(), &mut ledgers);
        assert_eq!(findings.len(), 1);
        let finding = &findings[0];
        assert_eq!((finding.kind, finding.cost_ns), ("hang", Some(10 * S)));
        assert_eq!(ledgers[0].left_ns(), 50 * S);
        assert_eq!(
            finding.title,
            "Thread 2 (python3) of process 2 was in cudaStreamSynchronize for 10.0 s until the recording ended, and the \
             process got nothing else done; process 3 made 247 of the 272 ncclAllReduce calls of process 2."
        );
        let texts: Vec<&str> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
        assert!(
            texts.contains(&"other threads at the end: pt_autograd_0: sleeping in futex for 20.0 s"),
            "{texts:?}"
        );
        assert!(!finding.open.is_empty());
        assert_eq!(finding.confidence, Confidence::Measured);
        let mut lossy = info();
        lossy.provenance.lost_is_counted = false;
        assert_eq!(find(&lossy, &hanging(), &mut [])[0].confidence, Confidence::Inconclusive);
    }

    #[test]
    fn what_the_others_wait_for_comes_before_their_wait() {
        let mut failures = hanging();
        failures.ends = vec![end(3, 52 * S, -11)];
        let finding = &find(&info(), &failures, &mut [])[0];
        assert_eq!((finding.kind, finding.pid), ("crash", Some(3)));
        assert!(
            finding
                .evidence
                .iter()
                .any(|evidence| evidence.text.contains("cudaStreamSynchronize for 10.0 s"))
        );
        // What is killed after it has hung was killed because it hung.
        failures.ends = vec![end(2, 60 * S, -6)];
        let finding = &find(&info(), &failures, &mut [])[0];
        assert_eq!((finding.kind, finding.pid, finding.open.as_str()), ("hang", Some(2), ""));
        assert!(finding.evidence.iter().any(|evidence| evidence.text == "SIGABRT ended it"));
    }

    #[test]
    fn a_run_that_ends_well_has_none() {
        let launches = calls(2, Op::CudaLaunchKernel, 0, 2 * S, 50 * S);
        let queries = calls(2, Op::CudaEventQuery, 600, 2 * S, 50 * S);
        let unload = calls(2, Op::CuLibraryUnload, 4, 51 * S, 51 * S);
        let failures = Failures {
            calls: vec![launches, queries, unload],
            ends: vec![end(1, 53 * S, 0), end(2, 52 * S, 0)],
            ..Failures::default()
        };
        assert!(found(&failures).is_empty());
        assert!(found(&Failures::default()).is_empty());
    }
}
