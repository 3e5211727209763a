//! Parses `perf sched timehist`, which has a line for each scheduling slice of a thread, at the slice's end.
//!
//! ```text
//! thread  ████ line ░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒ ████████ line
//!              ├── wait time ────┴─────────┤         with --state, each line says how the thread left
//!                                ├ sch delay ┤├ run time ┤
//! ```
//! The wait time is the whole off-CPU interval, and the delay is its part since the wakeup. The waker is not
//! stated.

use std::io::Read;

use super::{
    Failure, event, line,
    lines::Lines,
    machine::{Machine, Slice, Task},
    state::State,
};

/// Largest error of a time that is computed from others, in ns: the end of a slice, the time that it ran and the delay before
/// it are each rounded to a microsecond.
const RESOLUTION_NS: i64 = 3_000;

/// Returns whether a line is the first of the table's header.
pub(super) fn is_head(text: &str) -> bool {
    ["time", "task name", "wait time", "sch delay", "run time"].iter().all(|word| text.contains(word))
}

/// The fields of a line; times are in ns.
#[derive(Debug, PartialEq, Eq)]
struct Found<'a> {
    ts: i64,
    cpu: u32,
    /// The thread. The text has `tid/pid`, or one number for both.
    task: Task<'a>,
    pid: u32,
    wait_ns: i64,
    delay_ns: i64,
    run_ns: i64,
    rest: &'a str,
}

/// Parses milliseconds with three decimals, and returns nanoseconds.
fn milliseconds(text: &str) -> Option<i64> {
    let (ns, digits) = line::seconds(text)?;
    (digits == 3).then_some(ns / 1000)
}

/// Parses a line. Returns `None` if it is not that of a scheduling slice.
fn parse(text: &str) -> Option<Found<'_>> {
    let (time, rest) = text.trim_start().split_once(char::is_whitespace)?;
    let (ts, _) = line::seconds(time)?;
    let (cpu, rest) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    // Names may hold brackets: those of the ids are the last before the times.
    rest.match_indices(']').find_map(|(at, _)| {
        let mut after = rest[at + 1..].trim_start();
        let mut time = || {
            let (word, more) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
            after = more.trim_start();
            milliseconds(word)
        };
        let (wait_ns, delay_ns, run_ns) = (time()?, time()?, time()?);
        let (comm, numbers) = rest[..at].rsplit_once('[')?;
        let (tid, pid) = numbers.split_once('/').unwrap_or((numbers, numbers));
        Some(Found {
            ts,
            cpu: cpu.parse().ok()?,
            task: event::task(comm.trim(), tid.parse().ok()?)?,
            pid: pid.parse().ok()?,
            wait_ns,
            delay_ns,
            run_ns,
            rest: after,
        })
    })
}

/// Reads the lines that follow the table's header.
pub(super) fn read(
    lines: &mut Lines<impl Read>,
    machine: &mut Machine,
    has_state: bool,
) -> Result<(), Failure> {
    let run = &mut machine.run;
    run.producer.push_str(" sched timehist");
    run.not_captured.push("who got the CPU when a thread left, and who ended sleeps".to_owned());
    run.not_captured.push("times finer than 1000 ns".to_owned());
    run.clock.resolution_ns = Some(RESOLUTION_NS);
    if !has_state {
        run.not_captured.push("why threads were off CPU: perf sched timehist --state tells".to_owned());
    }
    let mut gone_count = 0_u64;
    while lines.read()? {
        let text = lines.text();
        // The summaries follow the table.
        if text.starts_with("Runtime summary") || text.starts_with("Idle stats") {
            break;
        }
        let trimmed = text.trim();
        let is_other = trimmed.is_empty()
            || trimmed.starts_with("[tid/pid]")
            || trimmed.starts_with("---")
            || ["awakened: ", "migrated: ", "<idle>"].iter().any(|word| trimmed.contains(word));
        if is_other {
            continue;
        }
        // A thread that has ended has no id any more.
        if trimmed.contains("[-1/") || trimmed.contains("[-1]") {
            gone_count += 1;
            continue;
        }
        let Some(found) = parse(&text) else {
            return Ok(lines.wrong("it is no line of perf sched timehist")?);
        };
        if machine.last_ns().is_some_and(|last| last > found.ts) {
            return Ok(lines.wrong("its time is before that of an earlier line")?);
        }
        let state = match has_state {
            false => State::Unknown,
            true => match found.rest.split_whitespace().next().and_then(State::of_text) {
                Some(state) => state,
                None => return Ok(lines.wrong("it has no state")?),
            },
        };
        let start = found.ts.checked_sub(found.run_ns);
        let Some(start) =
            start.filter(|start| start.checked_sub(found.wait_ns).is_some_and(|left| left >= 0))
        else {
            return Ok(lines.wrong("its times reach before the clock's zero")?);
        };
        let slice = Slice {
            task: found.task,
            pid: found.pid,
            cpu: found.cpu,
            start,
            end: found.ts,
            wait_ns: found.wait_ns,
            delay_ns: found.delay_ns,
            state,
        };
        machine.slice(&slice)?;
        if let Some(reason) = machine.excess() {
            return Ok(lines.wrong(reason)?);
        }
    }
    if gone_count > 0 {
        let what = format!("the last slices of {gone_count} threads, which had no number any more");
        machine.run.not_captured.push(what);
    }
    Ok(())
}
