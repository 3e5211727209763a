//! Imports short texts, both whole and damaged.

use std::{collections::BTreeMap, fs, path::Path};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int64Type, UInt32Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use trace_schema::{META_RUN, Run};

use super::{Source, import};
use analyze_run::random::Random;

/// Two threads on CPU 1: one is preempted and comes back, the other sleeps and is woken by an interrupt. Then
/// the latter ends.
const FTRACE: &str = "# tracer: nop
#
# entries-in-buffer/entries-written: 9/9   #P:2
            hog-10    [001] d..2.    50.000100: sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 prev_state=R ==> next_comm=nap 1 next_pid=20 next_prio=120
          nap 1-20    [001] d..2.    50.000150: sched_switch: prev_comm=nap 1 prev_pid=20 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120
            hog-10    [001] dNh3.    50.000250: sched_waking: comm=nap 1 pid=20 prio=120 target_cpu=001
            hog-10    [001] dNh4.    50.000260: sched_wakeup: comm=nap 1 pid=20 prio=120 target_cpu=001
            hog-10    [001] d..2.    50.000300: sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 prev_state=R+ ==> next_comm=nap 1 next_pid=20 next_prio=120
          nap 1-20    [001] d..2.    50.000350: sched_waking: comm=far pid=30 prio=120 target_cpu=000
           <...>-40   [000] d..2.    50.000360: sched_switch: prev_comm=swapper/0 prev_pid=40 prev_prio=120 prev_state=S ==> next_comm=far next_pid=30 next_prio=120
          nap 1-20    [001] .....    50.000400: sched_process_exit: comm=nap 1 pid=20 prio=120 group_dead=true
          nap 1-20    [001] d..2.    50.000500: sched_switch: prev_comm=nap 1 prev_pid=20 prev_prio=120 prev_state=X ==> next_comm=hog next_pid=10 next_prio=120
";

/// Returns the same events in the form of `perf script`, which has no flags.
fn perf() -> String {
    let lines = FTRACE.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (head, rest) = line.split_once("[0").unwrap();
        let (comm, tid) = head.trim().rsplit_once('-').unwrap();
        let (cpu, rest) = rest.split_once(']').unwrap();
        let (time, event) =
            rest.trim_start().split_once(' ').unwrap().1.trim_start().split_once(' ').unwrap();
        format!("{comm:>16} {tid:>5} [0{cpu}] {time}       sched:{event}\n")
    });
    lines.collect()
}

/// The cells of one row that these tests compare.
pub(crate) type Found = BTreeMap<&'static str, String>;

/// Reads the rows of a run, and its metadata.
pub(crate) fn rows(path: &Path) -> (Vec<Found>, Run) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let run = pairs.iter().find(|pair| pair.key == META_RUN).unwrap().value.as_deref().unwrap();
    let run = serde_json::from_str(run).unwrap();
    let mut found = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let mut cells = Found::new();
            for name in ["ts", "dur", "runnable_ns"] {
                let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
                if column.is_valid(row) {
                    cells.insert(name, column.value(row).to_string());
                }
            }
            for name in ["pid", "tid", "cpu", "in_cpu", "waker_pid", "waker_tid", "next_tid"] {
                let column = batch.column_by_name(name).unwrap().as_primitive::<UInt32Type>();
                if column.is_valid(row) {
                    cells.insert(name, column.value(row).to_string());
                }
            }
            for name in ["kind", "op", "comm"] {
                let column = arrow::compute::cast(
                    batch.column_by_name(name).unwrap(),
                    &arrow::datatypes::DataType::Utf8,
                );
                let column = column.unwrap();
                let column = column.as_string::<i32>();
                if column.is_valid(row) {
                    cells.insert(name, column.value(row).to_owned());
                }
            }
            found.push(cells);
        }
    }
    (found, run)
}

/// Returns the rows as lines of text, with `-` for null.
pub(crate) fn said(rows: &[Found]) -> String {
    let line = |row: &Found| {
        let cells: Vec<String> =
            ["ts", "dur", "op", "tid", "cpu", "in_cpu", "runnable_ns", "waker_tid", "next_tid"]
                .map(|name| row.get(name).cloned().unwrap_or_else(|| "-".to_owned()))
                .to_vec();
        cells.join(" ") + "\n"
    };
    rows.iter().map(line).collect()
}

/// Imports a text. Returns the message for the user if it is refused.
fn converted(source: Source, text: &[u8]) -> Result<(Vec<Found>, Run), String> {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("text"), directory.path().join("run.parquet"));
    fs::write(&file, text).unwrap();
    let result = import(source, &file, &out, false);
    let left = fs::read_dir(directory.path()).unwrap().count();
    match result {
        Ok(_) => Ok(rows(&out)),
        Err(error) => {
            assert_eq!(left, 1, "something is left beside the text");
            Err(error.to_string())
        }
    }
}

#[test]
fn switches_become_the_intervals_that_capture_records() {
    let (found, run) = converted(Source::Ftrace, FTRACE.as_bytes()).unwrap();
    let expected = "\
50000100000 50000 preempted 10 1 1 50000 - 20
50000100000 50000 run 20 1 - - - -
50000150000 150000 sleeping 20 1 1 50000 0 10
50000150000 150000 run 10 1 - - - -
50000300000 200000 preempted 10 1 1 200000 - 20
50000300000 200000 run 20 1 - - - -
50000360000 - sleeping 40 0 - - - 30
50000400000 - exit 20 - - - - -
";
    let mut sorted: Vec<&str> = expected.lines().collect();
    sorted.sort_unstable();
    let text = said(&found);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, sorted, "{text}");
    assert_eq!((run.clock.start_ns, run.clock.end_ns), (50_000_100_000, 50_000_500_000));
    assert!(run.lost_is_counted && run.lost.is_empty());
    assert_eq!(found.iter().find(|row| row["tid"] == "20").unwrap()["comm"], "nap 1");
}

#[test]
fn perf_says_the_same_but_for_who_woke() {
    let (found, run) = converted(Source::Perf, perf().as_bytes()).unwrap();
    let (other, _) = converted(Source::Ftrace, FTRACE.as_bytes()).unwrap();
    assert_eq!(
        said(&found).replace(" - ", " ? "),
        said(&other).replace(" 50000 0 10", " 50000 - 10").replace(" - ", " ? ")
    );
    assert!(!run.lost_is_counted);
    let limits = run.not_captured.join("\n");
    for words in ["which clock", "who ended 1 sleeps", "the processes of 4 of 4 threads"] {
        assert!(limits.contains(words), "{words}: {limits}");
    }
    // The process is known if its id stands before that of the thread.
    let text = perf().replace("    10 [", "   9/10 [").replace("    20 [", "   9/20 [");
    let (found, _) = converted(Source::Perf, text.as_bytes()).unwrap();
    assert!(found.iter().filter(|row| row["tid"] == "10").all(|row| row["pid"] == "9"), "{found:?}");
    // Ids of another namespace say nothing about processes.
    let text = perf().replace("    10 [", "   9/11 [");
    let (found, run) = converted(Source::Perf, text.as_bytes()).unwrap();
    assert!(found.iter().all(|row| row["pid"] == "0"), "{found:?}");
    assert!(run.not_captured.join("\n").contains("threads have other numbers"));
}

#[test]
fn the_header_says_which_clock_it_is() {
    let (_, run) = converted(Source::Perf, perf().as_bytes()).unwrap();
    assert_eq!((run.clock_base(), run.clock.wall_offset()), (None, None));
    let header = "# hostname : box\n# clockid: monotonic (1)\n\
        # reference time: 2026-11-22 21:00:00.000100 = 1795381200.000100 (TOD) = 50.000000100 (monotonic)\n";
    let text = format!("{header}{}", perf());
    let (_, run) = converted(Source::Perf, text.as_bytes()).unwrap();
    assert_eq!((run.host.name.as_str(), run.clock_base()), ("box", Some("CLOCK_MONOTONIC")));
    assert_eq!(run.clock.wall_offset_ns, 1_795_381_150_000_099_900);
    assert_eq!(run.clock.resolution_ns, Some(1_000), "its times have six digits");
    assert!(
        !run.not_captured.iter().any(|what| what.starts_with("the time of day")),
        "{:?}",
        run.not_captured
    );
}

#[test]
fn losses_are_counted_and_open_what_spans_them() {
    let lost = |line: &str| {
        FTRACE.replacen(
            "            hog-10    [001] d..2.    50.0003",
            &format!("{line}\n            hog-10    [001] d..2.    50.0003"),
            1,
        )
    };
    for (line, count) in
        [("CPU:1 [LOST 123 EVENTS]", 123), ("CPU:1 [7 EVENTS DROPPED]", 7), ("CPU:1 [LOST EVENTS]", 1)]
    {
        let (found, run) = converted(Source::Ftrace, lost(line).as_bytes()).unwrap();
        assert_eq!(run.lost.len(), 1, "{line}");
        assert_eq!((run.lost[0].count, run.lost[0].to_ns), (count, 50_000_260_000), "{line}");
        let text = said(&found);
        assert!(text.contains("50000150000 - sleeping 20"), "it spans the loss: {text}");
        assert!(!text.contains("run 10"), "nor is known who ran: {text}");
    }
    let text = perf().replacen(
        "             hog    10 [001] 50.000300",
        "  hog 10 [001] 50.000290: PERF_RECORD_LOST lost 5\n             hog    10 [001] 50.000300",
        1,
    );
    let (_, run) = converted(Source::Perf, text.as_bytes()).unwrap();
    assert_eq!(run.lost[0].count, 5);
}

#[test]
fn what_is_no_such_text_is_refused_with_its_line() {
    let line = |number: usize, text: &str| {
        let mut lines: Vec<&str> = FTRACE.lines().collect();
        lines[number - 1] = text;
        lines.join("\n") + "\n"
    };
    for (text, words) in [
        (line(5, "nothing that is known"), "line 5: it is no event of the scheduler"),
        (
            line(5, "x-1 [000] ..... 50.000100: sched_switch: prev_comm=a"),
            "line 5: its fields are of no known form of sched_switch",
        ),
        (
            line(6, "x-1 [000] ..... 49.000100: sched_waking: comm=a pid=1 prio=1 target_cpu=0"),
            "line 6: its time is before",
        ),
        (line(4, "CPU 3 is strange"), "line 4: it is no event, and nothing else"),
        (line(4, "x-1 [000] ..... 123: sched_waking: comm=a pid=1 prio=1 target_cpu=0"), "line 4: "),
        (line(4, &"x".repeat(1 << 17)), "line 4: it is longer than the limit line_bytes of 65536"),
        ("# tracer: nop\n".to_owned(), "it has no sched_switch events"),
        ("a-1 [000] ..... 1.000100: irq_entry: x\n".to_owned(), "not read: irq_entry (1)"),
        (FTRACE.trim_end().to_owned(), "line 12: the file is cut off in it"),
    ] {
        let why = converted(Source::Ftrace, text.as_bytes()).unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    }
}

/// A text that is cut anywhere but at the end of a line is refused with the line; one that is changed
/// anywhere never causes a panic.
#[test]
fn no_damage_passes_for_a_line_or_panics() {
    let perf = perf();
    for (source, text) in [(Source::Ftrace, FTRACE), (Source::Perf, &perf)] {
        for end in (0..text.len()).filter(|end| *end > 0 && text.as_bytes()[end - 1] != b'\n') {
            let why = converted(source, &text.as_bytes()[..end]).unwrap_err();
            assert!(why.contains(": line "), "{end}: {why}");
        }
        let mut random = Random(7);
        for _ in 0..300 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"0123 =:[]-\n"[random.below(11)]),
                }
            }
            if let Err(why) = converted(source, &bytes) {
                assert!(why.contains(": line ") || why.contains("tells nothing"), "{why}");
            }
        }
    }
}
