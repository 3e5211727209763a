//! Parses the fields of scheduler events, as the kernel and libtraceevent print them.
//!
//! The name of a thread may hold any characters, including spaces and `=`, so it is found by the text around
//! it.

use super::{
    machine::{Event, Task},
    state::State,
};
use crate::{hex::from_hex, limits::PATH_BYTES};

/// Flag of `clone`: the child is a thread of its parent's process.
const CLONE_THREAD: u64 = 0x10000;
/// Longest plausible name of a thread, in bytes; the kernel's limit is 16.
const MAX_NAME_BYTES: usize = 64;

/// Returns a thread, unless its name is longer than that of any.
pub(super) fn task(comm: &str, tid: u32) -> Option<Task<'_>> {
    (comm.len() <= MAX_NAME_BYTES).then_some(Task { tid, comm })
}

/// Returns the text after the last ` key=`, up to a space.
fn value<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    fields[fields.rfind(key)? + key.len()..].split(' ').next()
}

fn number(fields: &str, key: &str) -> Option<u32> {
    value(fields, key)?.parse().ok()
}

/// Parses `comm=NAME pid=NUMBER`, with the given keys.
fn named<'a>(fields: &'a str, comm: &str, pid: &str) -> Option<Task<'a>> {
    let rest = fields.strip_prefix(comm)?;
    task(&rest[..rest.rfind(pid)?], number(rest, pid)?)
}

/// Parses `NAME:NUMBER [PRIORITY]`, and returns the thread and the text after it.
fn short(fields: &str) -> Option<(Task<'_>, &str)> {
    let fields = fields.trim_start();
    let fields = fields.strip_prefix("task ").unwrap_or(fields);
    let (before, rest) = fields.rsplit_once(" [")?;
    // An older form ends with the CPU in brackets, too.
    let (before, rest) = match before.rsplit_once(" [") {
        Some((earlier, _)) => (earlier, &fields[earlier.len() + 2..]),
        None => (before, rest),
    };
    let (comm, tid) = before.rsplit_once(':')?;
    let (priority, rest) = rest.split_once(']')?;
    priority.parse::<i32>().ok()?;
    Some((task(comm, tid.parse().ok()?)?, rest.trim()))
}

fn switch(fields: &str) -> Option<Event<'_>> {
    if let Some((prev, next)) = fields.rsplit_once(" ==> next_comm=") {
        let next_fields = &fields[prev.len() + " ==> ".len()..];
        number(next, " next_prio=")?;
        return Some(Event::Switch {
            prev: Some(named(prev, "prev_comm=", " prev_pid=")?),
            state: State::of_text(value(prev, " prev_state=")?)?,
            next: named(next_fields, "next_comm=", " next_pid=")?,
        });
    }
    let (prev, next) = fields.rsplit_once(" ==> ")?;
    let (prev, state) = short(prev)?;
    let state = state.strip_prefix('(').and_then(|state| state.strip_suffix(')')).unwrap_or(state);
    Some(Event::Switch { prev: Some(prev), state: State::of_text(state)?, next: short(next)?.0 })
}

/// Returns the woken thread, and the CPU whose run queue it is put into.
fn wakeup(fields: &str) -> Option<(Task<'_>, Option<u32>)> {
    if let Some(task) = named(fields, "comm=", " pid=") {
        return Some((task, Some(number(fields, " target_cpu=")?)));
    }
    let (task, rest) = short(fields)?;
    let cpu = rest.rsplit_once("CPU:").map(|(_, cpu)| cpu);
    let cpu = cpu.or_else(|| rest.strip_suffix(']')?.rsplit_once('[').map(|(_, cpu)| cpu));
    Some((task, Some(cpu?.trim().parse().ok()?)))
}

/// Parses an event. Returns `None` if it is not one of the scheduler events that are used, and an error if
/// its fields have no known form.
pub(super) fn parse<'a>(event: &str, fields: &'a str) -> Option<Result<Event<'a>, ()>> {
    let found = match event {
        "sched_switch" => switch(fields),
        "sched_waking" => wakeup(fields).map(|(task, _)| Event::Waking { tid: task.tid }),
        "sched_wakeup" => wakeup(fields).map(|(task, cpu)| Event::Wakeup { tid: task.tid, cpu }),
        "sched_migrate_task" => named(fields, "comm=", " pid=")
            .and_then(|task| Some(Event::Migrate { tid: task.tid, cpu: number(fields, " dest_cpu=")? })),
        "sched_process_fork" => fields.rfind(" child_comm=").and_then(|at| {
            Some(Event::New {
                child: named(&fields[at + 1..], "child_comm=", " child_pid=")?,
                is_thread: None,
            })
        }),
        "task_newtask" => value(fields, " clone_flags=").and_then(|flags| {
            let flags = from_hex(flags.strip_prefix("0x").unwrap_or(flags))?;
            let comm = fields.split_once(" comm=")?.1;
            let comm = &comm[..comm.rfind(" clone_flags=")?];
            let child = task(comm, fields.strip_prefix("pid=")?.split(' ').next()?.parse().ok()?)?;
            Some(Event::New { child, is_thread: Some(flags & CLONE_THREAD != 0) })
        }),
        "sched_process_exec" => fields.strip_prefix("filename=").and_then(|rest| {
            let file = Some(&rest[..rest.rfind(" pid=")?]).filter(|f| !PATH_BYTES.is_exceeded_by(f.len()))?;
            number(rest, " old_pid=")?;
            Some(Event::Exec { tid: number(rest, " pid=")?, file })
        }),
        "sched_process_exit" => {
            number(fields, " prio=").and(named(fields, "comm=", " pid=")).map(|task| Event::Exit { task })
        }
        _ => return None,
    };
    Some(found.ok_or(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_events() {
        let t = |comm, tid| Task { tid, comm };
        for (event, fields, expected) in [
            (
                "sched_switch",
                "prev_comm=a pid=1 x prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=b c next_pid=0 next_prio=120",
                Event::Switch { prev: Some(t("a pid=1 x", 7)), state: State::Runnable, next: t("b c", 0) },
            ),
            (
                "sched_switch",
                "a:b:7 [120] S ==> c d:8 [-1]",
                Event::Switch { prev: Some(t("a:b", 7)), state: State::Sleeping, next: t("c d", 8) },
            ),
            (
                "sched_switch",
                "task a:7 [120] (D) ==> b:8 [120]",
                Event::Switch { prev: Some(t("a", 7)), state: State::Uninterruptible, next: t("b", 8) },
            ),
            ("sched_waking", "comm=a pid=7 prio=120 target_cpu=003", Event::Waking { tid: 7 }),
            (
                "sched_wakeup",
                "comm=a b pid=7 prio=120 success=1 target_cpu=003",
                Event::Wakeup { tid: 7, cpu: Some(3) },
            ),
            ("sched_wakeup", "a:7 [120] success=1 CPU:003", Event::Wakeup { tid: 7, cpu: Some(3) }),
            (
                "sched_wakeup",
                "a:7 [120]<CANT FIND FIELD success> CPU:003",
                Event::Wakeup { tid: 7, cpu: Some(3) },
            ),
            ("sched_wakeup", "task a:7 [120] success=1 [003]", Event::Wakeup { tid: 7, cpu: Some(3) }),
            (
                "sched_migrate_task",
                "comm=a pid=7 prio=120 orig_cpu=0 dest_cpu=1",
                Event::Migrate { tid: 7, cpu: 1 },
            ),
            (
                "sched_process_fork",
                "comm=a pid=7 child_comm=b child_pid=8",
                Event::New { child: t("b", 8), is_thread: None },
            ),
            (
                "task_newtask",
                "pid=8 comm=b x clone_flags=3d0f00 oom_score_adj=0",
                Event::New { child: t("b x", 8), is_thread: Some(true) },
            ),
            (
                "sched_process_exec",
                "filename=/bin/a b pid=7 old_pid=9",
                Event::Exec { tid: 7, file: "/bin/a b" },
            ),
            ("sched_process_exit", "comm=a pid=7 prio=120 group_dead=true", Event::Exit { task: t("a", 7) }),
        ] {
            assert_eq!(parse(event, fields), Some(Ok(expected)), "{fields}");
        }
        for (event, fields) in [
            ("sched_switch", "prev_comm=a prev_pid=7 prev_prio=120 prev_state=R ==> next_comm=b next_pid=8"),
            (
                "sched_switch",
                "prev_comm=a prev_pid=x prev_prio=120 prev_state=R ==> next_comm=b next_pid=8 next_prio=1",
            ),
            ("sched_switch", "a:7 [120] ? ==> b:8 [120]"),
            ("sched_switch", ""),
            ("sched_waking", "comm=a pid=7 prio=120"),
            ("sched_wakeup", "a:7 [120]"),
            ("sched_migrate_task", "comm=a pid=7 prio=120 orig_cpu=0"),
            ("sched_process_exec", "filename=/bin/a pid=7"),
            ("task_newtask", "pid=8 comm=b clone_flags=+3d0f00 oom_score_adj=0"),
            ("task_newtask", "pid=8 comm=b clone_flags=0x-3d0f00 oom_score_adj=0"),
        ] {
            assert_eq!(parse(event, fields), Some(Err(())), "{fields}");
        }
        assert_eq!(parse("sched_stat_runtime", "comm=a pid=7"), None);
    }
}
