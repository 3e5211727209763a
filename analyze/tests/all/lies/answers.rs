//! The answers of a run that are compared with those of the whole run.

use std::collections::BTreeSet;

use analyze::{
    compare::{
        facts::Facts,
        figure::{self, Figure, Figures},
        gate::Rules,
        judge::{self, Outcome},
        runs::{RunFigures, Runs},
    },
    questions::memory::state::{self, At, Held},
    trace::Trace,
};
use analyze_run::columns::{Cell as _, floats, strings};
use arrow::array::{Array, Float64Array};

use super::{
    cut::Source,
    tally::{Rows, Tallies, Tally},
};

const STATES: &str = "on_cpu_ns, preempted_ns, runnable_ns, throttled_ns, blocked_ns, stopped_ns";
const GAPS: &str = "dur, host_ns, sync_ns, alloc_ns, copy_ns, nccl_ns, other_call_ns, runnable_ns, throttled_ns, \
     page_fault_ns, blocked_ns, stopped_ns";
const CAUSES: &str = "excess_ns, scheduler_ns, throttled_ns, blocked_ioctl_ns, blocked_futex_ns, blocked_page_fault_ns, \
     blocked_disk_ns, blocked_sleep_ns, blocked_poll_ns, blocked_other_ns, gpu_wait_ns, size_ns, first_call_ns, nested_ns, \
     stopped_ns, unexplained_ns";
const SUMMARY: &str = "(SELECT op, sum(calls_count) AS calls_count, sum(total_ns) AS total_ns, max(max_ns) AS max_ns \
     FROM op_summary GROUP BY op)";
/// Time on record, of each process and the thread that its account follows.
const RUN_TIME: &str = "(SELECT pid, tid, part, sum(time_ns) AS time_ns FROM run_time \
     WHERE part IN ('host', 'sync', 'waiting_for_cpu') AND state <> 'unknown' GROUP BY pid, tid, part)";
const PHASES: &str = "calls_count, launches_count, calls_ns, scheduler_ns, blocked_ns";

/// Reads rows by key.
pub(super) async fn rows(trace: &Trace, key: &str, values: &str, table: &str) -> Rows {
    let values: Vec<&str> = values.split(", ").collect();
    let list: Vec<String> = values.iter().map(|name| format!("CAST({name} AS DOUBLE) AS {name}")).collect();
    let query = format!("SELECT CAST({key} AS VARCHAR) AS key, {} FROM {table}", list.join(", "));
    let mut found = Rows::new();
    for batch in trace.batches(&query).await.unwrap() {
        let keys = strings(&batch, "key").unwrap();
        let columns: Vec<Float64Array> = values.iter().map(|name| floats(&batch, name).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let of_row = columns.iter().map(|column| column.is_valid(row).then(|| column.value(row)));
            found.insert(keys.value(row).to_owned(), of_row.collect());
        }
    }
    found
}

/// Something over `[from, to)` of a subject, such as a link of a range's path.
#[derive(Debug)]
struct Span {
    subject: String,
    from: f64,
    to: f64,
    what: String,
    bytes: f64,
}

async fn spans(trace: &Trace, subject: &str, what: &str, bytes: &str, table: &str) -> Vec<Span> {
    let query = format!(
        "SELECT CAST({subject} AS VARCHAR) AS subject, CAST({what} AS VARCHAR) AS what, CAST(ts AS DOUBLE) AS ts, \
         CAST(dur AS DOUBLE) AS dur, CAST({bytes} AS DOUBLE) AS bytes FROM {table} ORDER BY ts"
    );
    let mut found = Vec::new();
    for batch in trace.batches(&query).await.unwrap() {
        let (subjects, whats) = (strings(&batch, "subject").unwrap(), strings(&batch, "what").unwrap());
        let column = |name| floats(&batch, name).unwrap();
        let (times, durs, bytes) = (column("ts"), column("dur"), column("bytes"));
        found.extend((0..batch.num_rows()).map(|row| Span {
            subject: subjects.value(row).to_owned(),
            from: times.value(row),
            to: times.value(row) + durs.value(row),
            what: whats.value(row).to_owned(),
            bytes: bytes.at(row).unwrap_or(0.0),
        }));
    }
    found
}

/// What is asked of the times of a run.
pub(super) struct Times {
    states: Rows,
    gaps: Rows,
    causes: Rows,
    summary: Rows,
    run_time: Rows,
    steps: Rows,
    ranges: Rows,
    phases: Rows,
    path: Vec<Span>,
}

impl Times {
    pub(super) async fn of(trace: &Trace) -> Self {
        let call = "concat(pid, ' ', tid, ' ', ts, ' ', op)";
        Self {
            states: rows(trace, call, STATES, "op_time").await,
            gaps: rows(trace, "concat(pid, ' ', tid, ' ', ts)", GAPS, "launch_gaps").await,
            causes: rows(trace, call, CAUSES, "slow_calls").await,
            summary: rows(trace, "op", "calls_count, total_ns, max_ns", SUMMARY).await,
            run_time: rows(trace, "concat(pid, ' ', tid, ' ', part)", "time_ns", RUN_TIME).await,
            steps: rows(trace, "concat(pid, ' ', ts)", "dur_ns, calls_count, launches_count", "steps").await,
            ranges: rows(trace, "phase", "ranges_count, total_ns", "phases").await,
            phases: rows(trace, "phase", PHASES, "phases").await,
            path: spans(
                trace,
                "concat(phase, ' ', range_ts)",
                "concat(tid, ' ', state, ' ', coalesce(cause, 'none'))",
                "0",
                "critical_path",
            )
            .await,
        }
    }

    /// Compares the answers of a cut run.
    pub(super) fn judge(&self, part: &Self, source: Source, cut: &str, tallies: &mut Tallies) {
        tallies.of("op_time", cut, |tally| tally.equal(&self.states, &part.states));
        tallies.of("launch_gaps", cut, |tally| tally.equal(&self.gaps, &part.gaps));
        let (has_calls, has_marks) = (source != Source::Calls, source != Source::Marks);
        // Calls that are gone change what is nested in what and which calls are usual, marks which are comparable.
        if has_calls && has_marks {
            tallies.of("slow_calls", cut, |tally| tally.no_gain(&self.causes, &part.causes, CAUSES));
        }
        tallies.of("summary", cut, |tally| tally.at_most_if(!has_calls, &self.summary, &part.summary));
        tallies.of("run_time", cut, |tally| tally.at_most_if(true, &self.run_time, &part.run_time));
        // No step may reach across what is gone.
        if !self.steps.is_empty() {
            tallies.of("steps", cut, |tally| tally.equal(&self.steps, &part.steps));
        }
        tallies.of("phases", cut, |tally| {
            tally.at_most_if(!has_marks, &self.ranges, &part.ranges);
            tally.at_most_if(!has_calls || !has_marks, &self.phases, &part.phases);
        });
        tallies.of("critical_path", cut, |tally| judge_path(&self.path, &part.path, has_marks, tally));
    }
}

/// Compares links of paths: a link whose state is known must be on the whole run's path for all of its time.
fn judge_path(whole: &[Span], part: &[Span], has_marks: bool, tally: &mut Tally) {
    for link in part.iter().filter(|link| link.to > link.from) {
        let over =
            |other: &&Span| other.subject == link.subject && other.from < link.to && link.from < other.to;
        let same: f64 = whole
            .iter()
            .filter(over)
            .filter(|other| other.what == link.what)
            .map(|other| other.to.min(link.to) - other.from.max(link.from))
            .sum();
        let lie = || {
            let others: Vec<&Span> = whole.iter().filter(over).take(4).collect();
            format!("{link:?} is on the path, not {others:?}")
        };
        tally.judge((same - (link.to - link.from)).abs() < 1.0, link.what.contains(" unknown "), lie);
    }
    let subjects =
        |links: &[Span]| links.iter().map(|link| link.subject.clone()).collect::<BTreeSet<String>>();
    for subject in subjects(whole).difference(&subjects(part)) {
        tally.judge(false, !has_marks, || format!("{subject} has no path"));
    }
}

/// What is asked of the memory of a run.
pub(super) struct Memory {
    held: Vec<(&'static str, Held)>,
    releases: Vec<Span>,
    leaks: Vec<Span>,
}

impl Memory {
    pub(super) async fn of(trace: &Trace) -> Self {
        let moments = state::run_all(trace, &[At::Peak, At::End]).await.unwrap();
        let named = ["peak", "end"].into_iter().zip(moments);
        Self {
            held: named
                .flat_map(|(name, moment)| moment.allocators.into_iter().map(move |held| (name, held)))
                .collect(),
            releases: spans(trace, "concat(pid, ' ', tid)", "cause", "released_bytes", "memory_releases")
                .await,
            leaks: spans(
                trace,
                "concat(pid, ' ', device)",
                "verdict",
                "0",
                "(SELECT pid, device, verdict, 0 AS ts, 0 AS dur FROM leaks)",
            )
            .await,
        }
    }

    /// Compares the answers of a cut run.
    pub(super) fn judge(&self, part: &Self, cut: &str, tallies: &mut Tallies) {
        tallies.of("memory", cut, |tally| {
            for (name, held) in &part.held {
                let of = |(other_name, other): &&(&str, Held)| {
                    (*other_name, other.pid, other.device) == (*name, held.pid, held.device)
                };
                let other = self.held.iter().find(of).map(|(_, other)| other);
                let is_said = held.lost_count > 0 || !held.faults.is_empty() || held.is_inferred;
                let figures = |held: &Held| {
                    [held.reserved_bytes.unwrap(), held.allocated_bytes, held.pending_bytes, held.releasable_bytes]
                };
                let (found, expected) = (figures(held), other.map(figures));
                let lie = || format!("at the {name} (reserved, allocated, pending, reclaimable) {found:?}, not {expected:?}");
                tally.judge(expected == Some(found), is_said, lie);
            }
            tally.open += self.held.len().saturating_sub(part.held.len());
        });
        tallies.of("releases", cut, |tally| {
            for release in &part.releases {
                let over = |other: &&Span| {
                    other.subject == release.subject && other.from <= release.to && release.from <= other.to
                };
                let others: Vec<&Span> = self.releases.iter().filter(over).collect();
                let is_same = others.iter().any(|other| other.what == release.what)
                    && release.bytes <= others.iter().map(|other| other.bytes).sum::<f64>();
                let is_said = release.what == "not_known" && !others.is_empty();
                tally.judge(is_same, is_said, || format!("{release:?}, not {others:?}"));
            }
            tally.open += self.releases.len().saturating_sub(part.releases.len());
        });
        tallies.of("leaks", cut, |tally| {
            for verdict in &part.leaks {
                let other = self.leaks.iter().find(|other| other.subject == verdict.subject);
                let is_same = other.is_some_and(|other| other.what == verdict.what);
                tally.judge(is_same, verdict.what == "inconclusive" && !is_same, || {
                    format!("{verdict:?}, not {other:?}")
                });
            }
            tally.open += self.leaks.len().saturating_sub(part.leaks.len());
        });
    }
}

/// Runs of a side of a comparison.
const SIDE_RUNS: i32 = 6;

/// The figures of a run, and the circumstances of its recording.
pub(super) struct Compared {
    figures: Figures,
    facts: Facts,
}

impl Compared {
    pub(super) async fn of(trace: &Trace) -> Self {
        let file = &trace.files()[0];
        Self { figures: figure::of(trace).await.unwrap(), facts: Facts::read(trace, file).await.unwrap() }
    }

    /// Makes runs of a side whose figures lie around those of the run, a hundredth apart.
    fn side(&self, name: &str) -> Runs {
        let run = |number: i32| {
            let scale = (f64::from(number) / 100.0).exp();
            let figure =
                |figure: &Figure| Figure { value: figure.value * scale, calls_count: figure.calls_count };
            RunFigures {
                name: format!("{name}-{number}"),
                // No two runs may be taken for the same one.
                facts: Facts { start_wall_ns: None, ..self.facts.clone() },
                figures: self.figures.iter().map(|(key, of)| (key.clone(), figure(of))).collect(),
            }
        };
        Runs::new((0..SIDE_RUNS).map(run)).unwrap()
    }

    /// Compares the cut run with the whole one. They are one run, so that no difference may be claimed.
    pub(super) fn judge(&self, part: &Self, cut: &str, tallies: &mut Tallies) {
        let rules = Rules::new(&[], None, None).unwrap();
        let comparison = judge::compare(&self.side("whole"), &part.side("part"), &rules, &[]).unwrap();
        let is_said = comparison.discords.iter().any(|discord| discord.forbids);
        tallies.of("compare", cut, |tally| {
            for gate in &comparison.gates {
                let is_open = matches!(gate.outcome, Outcome::Inconclusive | Outcome::Suspect);
                tally.judge(gate.outcome == Outcome::Pass, is_open, || {
                    format!("{}: {}", gate.key, gate.reason)
                });
            }
            for change in &comparison.changes {
                let lie = || format!("{}: {} became {}", change.key, change.base_mean, change.new_mean);
                tally.judge(false, is_said, lie);
            }
        });
    }
}
