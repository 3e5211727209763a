//! Parses what precedes the fields of an event, in the output of `perf script` and of ftrace.
//!
//! ```text
//! perf     hog_a 26471 [000] 45484.564029:       sched:sched_switch: …
//!                26469/26471                        process and thread, with -F +pid
//! ftrace   hog_a-26471   (  26469) [000] d..2. 45484.564029: sched_switch: …
//!                          tgid    cpu   flags
//! ```

use trace_schema::TIME_LIMIT_NS;

use super::machine::Moment;

/// The line of an event: its time and context are parsed, its fields are still text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Time, CPU and context of the event.
    pub(super) at: Moment,
    /// Name of the current thread; empty if it is not stated.
    pub(super) comm: &'a str,
    /// Name of the event, without the group before it.
    pub(super) event: &'a str,
    /// Fields of the event, as text.
    pub(super) fields: &'a str,
    /// Number of digits of the time after the decimal point.
    pub(super) digits: usize,
}

/// Parses seconds with a fraction of up to nine digits, up to the last time that a run can hold. Returns nanoseconds,
/// and the number of digits of the fraction.
pub(super) fn seconds(text: &str) -> Option<(i64, usize)> {
    let (whole, fraction) = text.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10_i64.pow(9 - fraction.len() as u32);
    let ns = whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
    let ns = ns.checked_add(fraction.parse::<i64>().ok()? * scale)?;
    (ns <= TIME_LIMIT_NS).then_some((ns, fraction.len()))
}

/// Finds the first time in a line. Returns the text before it, the time in ns, the number of digits of its
/// fraction, and the text after it.
fn split_at_time(line: &str) -> Option<(&str, i64, usize, &str)> {
    let mut from = 0;
    while let Some(found) = line[from..].find(": ") {
        let end = from + found;
        let start = line[..end].rfind([' ', '\t']).map_or(0, |at| at + 1);
        if let Some((ns, digits)) = seconds(&line[start..end]) {
            return Some((&line[..start], ns, digits, line[end + 2..].trim_start()));
        }
        from = end + 2;
    }
    None
}

/// Returns name and fields of the event, and whether the line is in perf's form. A number before the name is
/// the period of the sample.
fn event_of(rest: &str) -> Option<(&str, &str, bool)> {
    if rest.starts_with("PERF_RECORD_") {
        let (name, fields) = rest.split_once([' ', '(']).unwrap_or((rest, ""));
        return Some((name, fields, true));
    }
    let rest = match rest.split_once(char::is_whitespace) {
        Some((period, rest)) if period.bytes().all(|byte| byte.is_ascii_digit()) => rest.trim_start(),
        _ => rest,
    };
    let (name, fields) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let name = name.strip_suffix(':')?;
    let (group, name) = name.rsplit_once(':').map_or((None, name), |(group, name)| (Some(group), name));
    (!name.is_empty()).then_some((name, fields.trim(), group.is_some()))
}

/// Parses a number in brackets at the end of a text, and returns it after the text before it.
fn bracketed(text: &str) -> Option<(&str, u32)> {
    let (before, inner) = text.strip_suffix(']')?.rsplit_once('[')?;
    Some((before.trim_end(), inner.parse().ok()?))
}

/// Parses a number at the end of a text, and returns it after the text before it.
fn numbered(text: &str) -> Option<(&str, u32)> {
    let before = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
    Some((before, text[before.len()..].parse().ok()?))
}

/// Parses the line of an event. Returns `None` if the line is not an event's, or is damaged.
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    let (before, ts, digits, rest) = split_at_time(line)?;
    let (event, fields, is_perf) = event_of(rest)?;
    let mut at = Moment { ts, ..Moment::default() };
    let mut before = before.trim();
    if let Some((rest, cpu)) = bracketed(before) {
        (before, at.cpu) = (rest, Some(cpu));
    } else if let Some((rest, flags)) = before.rsplit_once(char::is_whitespace)
        && let Some((rest, cpu)) = bracketed(rest.trim_end())
    {
        (before, at.cpu) = (rest, Some(cpu));
        // These are latency flags: the third says whether an interrupt is served, and no other flag has these
        // letters.
        at.in_interrupt = (flags.len() >= 4).then(|| flags.contains(['h', 'H', 's', 'z', 'Z']));
    }
    let mut comm = before;
    if is_perf {
        // A thread that no longer exists has the id -1.
        let is_apart = |rest: &str| rest.is_empty() || rest.ends_with([' ', '\t', '/', '-']);
        if let Some((rest, tid)) = numbered(before).filter(|(rest, _)| is_apart(rest)) {
            (comm, at.tid) = (rest, Some(tid));
            if let Some(rest) = rest.strip_suffix('/') {
                let start = rest.rfind([' ', '\t']).map_or(0, |at| at + 1);
                // The process id comes first in perf's output.
                (comm, at.pid) = (&rest[..start], rest[start..].parse().ok());
            }
            if comm.ends_with('-') {
                (at.tid, at.pid) = (None, None);
                comm = "";
            }
        }
    } else {
        if let Some((rest, tgid)) = before.strip_suffix(')').and_then(|rest| rest.rsplit_once('('))
            && tgid.bytes().all(|byte| matches!(byte, b' ' | b'-' | b'0'..=b'9'))
        {
            (before, at.pid) = (rest.trim_end(), tgid.trim().parse().ok());
        }
        let (rest, tid) = numbered(before)?;
        (comm, at.tid) = (rest.strip_suffix('-')?, Some(tid));
    }
    let comm = comm.trim();
    let comm = if matches!(comm, "<...>" | "<idle>") { "" } else { comm };
    Some(Line { at, comm, event, fields, digits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> (Moment, String, String, String) {
        let line = parse(text).unwrap_or_else(|| panic!("{text}"));
        (line.at, line.comm.to_owned(), line.event.to_owned(), line.fields.to_owned())
    }

    #[test]
    fn forms_of_the_begin_of_a_line() {
        let at = |cpu, tid, pid, in_interrupt| Moment { ts: 45_484_564_029_000, cpu, tid, pid, in_interrupt };
        let (cpu, tid) = (Some(3), Some(26471));
        for (text, expected, comm) in [
            ("hog_a 26471 [003] 45484.564029: sched:sched_x: a=1 b", at(cpu, tid, None, None), "hog_a"),
            (
                "  a b-7 9/26471 [003] 45484.564029000:   1 sched:sched_x: a=1 b",
                at(cpu, tid, Some(9), None),
                "a b-7",
            ),
            (":-1    -1 [003] 45484.564029:  sched:sched_x: a=1 b", at(cpu, None, None, None), ""),
            ("hog_a 45484.564029: sched:sched_x: a=1 b", at(None, None, None, None), "hog_a"),
            ("hog7 45484.564029: sched:sched_x: a=1 b", at(None, None, None, None), "hog7"),
            ("26471 45484.564029: sched:sched_x: a=1 b", at(None, tid, None, None), ""),
            (
                " my task-26471 [003] d..2. 45484.564029: sched_x: a=1 b",
                at(cpu, tid, None, Some(false)),
                "my task",
            ),
            ("x-26471 (-----) [003] dNh2. 45484.564029: sched_x: a=1 b", at(cpu, tid, None, Some(true)), "x"),
            (
                "(sd-pam)-26471 (    9) [003] ..s1 45484.564029: sched_x: a=1 b",
                at(cpu, tid, Some(9), Some(true)),
                "(sd-pam)",
            ),
            ("(sd-pam)-26471 [003]  45484.564029: sched_x: a=1 b", at(cpu, tid, None, None), "(sd-pam)"),
            (" <...>-26471   [003] 45484.564029: sched_x: a=1 b", at(cpu, tid, None, None), ""),
        ] {
            let expected = (expected, comm.to_owned(), "sched_x".to_owned(), "a=1 b".to_owned());
            assert_eq!(moment(text), expected, "{text}");
        }
        for text in [
            "",
            "no event",
            "x-1 [000] 1.2 sched_x: a",
            "x-1 [000] 12: sched_x: a",
            "x [000] 1.5: sched_x: a",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(seconds("1.5"), Some((1_500_000_000, 1)));
        assert_eq!(seconds("45484.556409549"), Some((45_484_556_409_549, 9)));
        for bad in ["1", ".5", "1.", "1.0000000001", "a.5", "99999999999999999.0", "-1.5"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
