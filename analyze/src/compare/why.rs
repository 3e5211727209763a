//! Breaks differences down into parts. Every account is an identity: its parts sum to the whole on either
//! side (as means over the side's runs), so the parts' differences sum to the whole's difference.
//!
//! A change of mix is told apart from a change within groups. A function's time is the sum over groups of
//! calls × mean time. The mix is what the new numbers of calls would cost at the base's means; the rest is
//! the change within groups.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use trace_schema::{Class, Op};

use super::{change::Change, figure::Key, metric::Metric};
use crate::questions::host_gaps;

/// Number of functions that are broken down.
const FUNCTIONS: usize = 3;
/// Number of parts that are listed; smaller ones are summed up in one.
const PARTS: usize = 7;

/// Share of a function's total change up to which its change of mix is too small for an account.
const TRIFLE: f64 = 0.01;

/// One part of a whole.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Name of the part.
    pub name: String,
    /// Mean over the base runs, in the unit of the account.
    pub base: f64,
    /// Mean over the new runs, in the unit of the account.
    pub new: f64,
    /// Share of the whole's difference. It may be negative or exceed 1.
    pub share_ratio: f64,
}

impl Part {
    /// Difference, new minus base.
    pub fn delta(&self) -> f64 {
        self.new - self.base
    }
}

/// A whole and its parts, largest difference first.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// Description of the whole.
    pub title: String,
    /// Figure that the whole is; if it is none itself, the figure of its parts.
    pub key: Key,
    /// Sum of the parts' means over the base runs, in the unit of `key`.
    pub base: f64,
    /// Sum of the parts' means over the new runs, in the unit of `key`.
    pub new: f64,
    /// The parts.
    pub parts: Vec<Part>,
    /// Query that returns these numbers for each run.
    pub sql: String,
}

impl Account {
    /// Difference, new minus base.
    pub fn delta(&self) -> f64 {
        self.new - self.base
    }

    /// Creates an account from parts: name, base mean, new mean. Returns `None` if the difference is no
    /// larger than the figure's floor.
    fn new(title: impl Into<String>, key: Key, view: &str, parts: Vec<(String, f64, f64)>) -> Option<Self> {
        let sum = |of: fn(&(String, f64, f64)) -> f64| parts.iter().map(of).sum::<f64>();
        let (base, new) = (sum(|part| part.1), sum(|part| part.2));
        let delta = new - base;
        let share = |base: f64, new: f64| if delta == 0.0 { 0.0 } else { (new - base) / delta };
        let mut parts: Vec<Part> = parts
            .into_iter()
            .filter(|(_, base, new)| *base != 0.0 || *new != 0.0)
            .map(|(name, base, new)| Part { name, base, new, share_ratio: share(base, new) })
            .collect();
        parts.sort_by(|a, b| b.delta().abs().total_cmp(&a.delta().abs()).then(a.name.cmp(&b.name)));
        if parts.len() > PARTS {
            let rest = parts.split_off(PARTS - 1);
            let sum = |of: fn(&Part) -> f64| rest.iter().map(of).sum::<f64>();
            let (base, new) = (sum(|part| part.base), sum(|part| part.new));
            parts.push(Part {
                name: format!("{} others", rest.len()),
                base,
                new,
                share_ratio: share(base, new),
            });
        }
        let sql = format!("SELECT * FROM {view}");
        let account = Self { title: title.into(), key, base, new, parts, sql };
        (account.delta().abs() > account.key.metric.declaration().floor).then_some(account)
    }

    /// Describes the account in one sentence.
    pub fn sentence(&self) -> String {
        let signed = |value: f64| format!("{}{}", if value < 0.0 { "" } else { "+" }, self.key.show(value));
        let title = &self.title;
        match self.parts.first() {
            Some(part) if part.share_ratio > 0.0 => format!(
                "{title}: {}, of which {} is {} ({:.0} %).",
                signed(self.delta()),
                signed(part.delta()),
                part.name,
                100.0 * part.share_ratio
            ),
            _ => format!("{title}: {}.", signed(self.delta())),
        }
    }
}

/// Mean figures of both sides, by key.
struct Both<'a>(HashMap<&'a Key, (f64, f64)>);

impl Both<'_> {
    fn of(&self, metric: &str, subject: Option<&str>) -> Option<(f64, f64)> {
        self.0.get(&Key::of(metric, subject, None)).copied()
    }

    /// Returns metrics of one subject under the given names.
    fn parts<'n>(
        &self,
        names: impl Iterator<Item = (&'n str, &'n str)>,
        subject: Option<&str>,
    ) -> Vec<(String, f64, f64)> {
        let part = |(metric, name): (&str, &str)| {
            self.of(metric, subject).map(|(base, new)| (name.to_owned(), base, new))
        };
        names.filter_map(part).collect()
    }

    /// Returns every subject of a metric.
    fn subjects(&self, metric: &str) -> BTreeMap<&str, (f64, f64)> {
        let of = self.0.iter().filter(|(key, _)| key.metric.name() == metric && key.stratum.is_none());
        of.filter_map(|(key, both)| key.subject.as_deref().map(|subject| (subject, *both))).collect()
    }
}

/// Parts of a top-level call's time: columns of the view `metrics_time`.
const TIME: [(&str, &str); 13] = [
    ("on_cpu_ns", "on CPU"),
    ("preempted_ns", "preempted: another task had the CPU"),
    ("runnable_ns", "woken, and waiting for a CPU"),
    ("throttled_ns", "throttled: its control group had used up its time"),
    ("blocked_ioctl_ns", "asleep in the driver (ioctl)"),
    ("blocked_futex_ns", "asleep for a lock (futex)"),
    ("blocked_page_fault_ns", "page faults"),
    ("blocked_disk_ns", "asleep for a file"),
    ("blocked_sleep_ns", "asleep by its own wish"),
    ("blocked_poll_ns", "asleep for an event (poll)"),
    ("blocked_other_ns", "asleep in another system call"),
    ("stopped_ns", "stopped by a signal"),
    ("unknown_ns", "the record does not say what the thread did"),
];

/// Causes of the excess latency of slow calls: columns of the view `metrics_causes`.
const LOST: [(&str, &str); 10] = [
    ("lost_scheduler_ns", "the scheduler: another task had the CPU"),
    ("lost_throttled_ns", "throttling"),
    ("lost_blocked_ns", "sleeping beyond the usual"),
    ("lost_gpu_wait_ns", "waiting for the GPU in synchronising calls"),
    ("lost_size_ns", "more bytes"),
    ("lost_first_call_ns", "first launches of kernels"),
    ("lost_nested_ns", "nested calls"),
    ("lost_stopped_ns", "stops by a signal"),
    ("lost_inconclusive_ns", "what the trace cannot tell"),
    ("lost_unexplained_ns", "nothing of these"),
];

/// Splits the change of a function with groups into mix and change within groups.
fn mix(all: &[Change], both: &Both<'_>, function: &str) -> Option<Account> {
    let strata =
        || all.iter().filter(|c| c.key.subject.as_deref() == Some(function) && c.key.stratum.is_some());
    let totals = strata().filter(|c| c.key.metric.name() == "calls_ns");
    let (mut mix, mut within, mut fresh) = (0.0, 0.0, 0.0);
    let mut base_ns = 0.0;
    for total in totals {
        let count = Key { metric: Metric::of("calls_count"), ..total.key.clone() };
        let (base_count, new_count) = both.0.get(&count)?;
        base_ns += total.base_mean;
        if *base_count == 0.0 {
            fresh += total.new_mean;
            continue;
        }
        let by_mix = (new_count - base_count) * total.base_mean / base_count;
        mix += by_mix;
        within += total.new_mean - total.base_mean - by_mix;
    }
    // If nothing else changed, the cost of the same calls is the whole difference, and an account would add
    // nothing.
    if (mix.abs() + fresh.abs()) < TRIFLE * (mix.abs() + fresh.abs() + within.abs()) {
        return None;
    }
    let key = Key::of("calls_ns", Some(function), None);
    let parts = vec![
        ("at the base's numbers and costs".to_owned(), base_ns, base_ns),
        ("other numbers of calls (mix)".to_owned(), 0.0, mix),
        ("other cost of the same calls (within strata)".to_owned(), 0.0, within),
        ("sizes, directions or first calls that the base has not".to_owned(), 0.0, fresh),
    ];
    Account::new(format!("{function} by stratum"), key, "metrics_strata", parts)
}

/// Returns the accounts of the time between launches and of the time in which threads waited for a CPU.
fn waits(both: &Both<'_>) -> Vec<Account> {
    let mut accounts = Vec::new();
    let gaps: Vec<(String, &str)> =
        host_gaps::PARTS.iter().map(|(column, _, meaning)| (format!("gap_{column}"), *meaning)).collect();
    let parts = both.parts(gaps.iter().map(|(metric, meaning)| (metric.as_str(), *meaning)), None);
    accounts.extend(Account::new(
        "Time between launches",
        Key::of("launch_gap_ns", None, None),
        "metrics_gaps",
        parts,
    ));

    let behind = both.subjects("behind_ns");
    let parts = behind.iter().map(|(name, (base, new))| ((*name).to_owned(), *base, *new)).collect();
    accounts.extend(Account::new(
        "Threads waited for a CPU that another task had",
        Key::of("behind_ns", None, None),
        "metrics_waiting",
        parts,
    ));
    accounts
}

/// Returns all accounts that the figures of the two sides allow. Those of the time between launches and of waiting for a
/// CPU are left out if the account of the whole runs has that time (`has_run_time`).
pub fn accounts(all: &[Change], has_run_time: bool) -> Vec<Account> {
    let both = Both(all.iter().map(|change| (&change.key, (change.base_mean, change.new_mean))).collect());
    let mut accounts = Vec::new();
    if !has_run_time {
        accounts.extend(waits(&both));
    }

    let mut functions: Vec<(&str, f64, f64)> = both
        .subjects("unknown_ns")
        .into_keys()
        .map(|op| {
            let parts = both.parts(TIME.into_iter(), Some(op));
            (op, parts.iter().map(|part| part.1).sum(), parts.iter().map(|part| part.2).sum())
        })
        .collect();
    functions.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()).then(a.0.cmp(b.0)));
    let parts = functions.iter().map(|(op, base, new)| ((*op).to_owned(), *base, *new)).collect();
    accounts.extend(Account::new(
        "Time in calls that no other is around",
        Key::of("calls_ns", None, None),
        "metrics_time",
        parts,
    ));
    for (op, ..) in functions.iter().take(FUNCTIONS) {
        let parts = both.parts(TIME.into_iter(), Some(op));
        accounts.extend(Account::new(
            format!("Time in {op}"),
            Key::of("calls_ns", Some(op), None),
            "metrics_time",
            parts,
        ));
        accounts.extend(mix(all, &both, op));
    }

    let lost = LOST.into_iter().map(|(metric, name)| {
        let (base, new) =
            both.subjects(metric).values().fold((0.0, 0.0), |sum, both| (sum.0 + both.0, sum.1 + both.1));
        (name.to_owned(), base, new)
    });
    accounts.extend(Account::new(
        "Lost in slow calls",
        Key::of("excess_ns", None, None),
        "metrics_causes",
        lost.collect(),
    ));

    let allocates = |op: &str| {
        Op::from_name(op).is_some_and(|op| matches!(op.class(), Class::Alloc | Class::Free | Class::Map))
    };
    let counts = both.subjects("calls_count").into_iter().filter(|(op, _)| allocates(op));
    let parts = counts.map(|(op, (base, new))| (op.to_owned(), base, new)).collect();
    accounts.extend(Account::new(
        "Calls that allocate, free or map memory, nested ones too",
        Key::of("calls_count", None, None),
        "metrics_calls",
        parts,
    ));

    if let Some((reserved, allocated)) =
        both.of("reserved_mean_bytes", None).zip(both.of("allocated_mean_bytes", None))
    {
        let parts = vec![
            ("allocated".to_owned(), allocated.0, allocated.1),
            ("reserved, and not allocated".to_owned(), reserved.0 - allocated.0, reserved.1 - allocated.1),
        ];
        accounts.extend(Account::new(
            "Reserved memory, mean over time",
            Key::of("reserved_mean_bytes", None, None),
            "metrics_memory",
            parts,
        ));
    }
    accounts
}
