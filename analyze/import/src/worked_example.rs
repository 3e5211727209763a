//! A whole importer, to copy from: texts of a made-up tool that times steps of a training loop.
//!
//! ```text
//! steps 1          the format's name and version
//! 1000 250 41      start in ns, duration in ns, thread id
//! ```
//!
//! An importer of a real format stands in a file of its own, and `FORMATS` in `lib.rs` has a line with it.

use std::{fs, io::Read, path::Path};

use trace_schema::{Clock, Kind, Row, Run};
use trace_writer::{Finished, Recorder};

use crate::{FORMATS, Head, Importer, Job, Layout, Registry, compressed};
use analyze_run::error::{AnalyzeError, Place};

/// The first line of a file.
const FIRST_LINE: &str = "steps 1";

struct Steps;

impl Importer for Steps {
    fn name(&self) -> &'static str {
        "steps"
    }

    fn about(&self) -> &'static str {
        "Text of the tool `steps`, also with gzip"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        head.bytes.starts_with(FIRST_LINE.as_bytes())
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        let mut text = String::new();
        compressed::open(job.file)
            .and_then(|(mut bytes, _)| bytes.read_to_string(&mut text))
            .map_err(|source| AnalyzeError::Io { path: job.file.to_owned(), source })?;
        let mut run = Run {
            producer: "imported from steps".to_owned(),
            // What the source cannot show is stated, and appears in every answer that it weakens.
            not_captured: vec!["calls of CUDA, and what the scheduler did".to_owned()],
            ..Run::default()
        };
        let mut recorder = Recorder::create(job.out, job.force, &run)?;
        match write(&text, job.file, &mut recorder) {
            Ok(clock) => {
                run.clock = clock;
                Ok(recorder.finish(&run)?)
            }
            Err(error) => {
                // No part of a run stays on disk.
                recorder.discard();
                Err(error)
            }
        }
    }
}

/// Writes a row for each line, and returns the time span of all rows.
fn write(text: &str, path: &Path, recorder: &mut Recorder) -> Result<Clock, AnalyzeError> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, line)| line != FIRST_LINE) {
        let reason = format!("the first line is not `{FIRST_LINE}`");
        return Err(AnalyzeError::unreadable(path, Place::WholeFile, reason));
    }
    let mut clock = Clock::default();
    for (number, line) in lines {
        let row = row(line).ok_or_else(|| {
            let reason = "it is not START_NS DURATION_NS THREAD_ID";
            AnalyzeError::unreadable(path, Place::Line(number), reason)
        })?;
        clock.end_ns = clock.end_ns.max(row.ts + row.dur.unwrap_or(0));
        recorder.push(&row)?;
    }
    Ok(clock)
}

/// Converts a line, or returns `None` if it is malformed or ends after the last time that a run can hold.
fn row(line: &str) -> Option<Row> {
    let [start, dur, tid] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let (start, dur) = (start.parse::<u32>().ok()?, dur.parse::<u32>().ok()?);
    let tid = tid.parse().ok()?;
    Some(Row { dur: Some(dur.into()), ..Row::new(start.into(), Kind::Mark, "range".into(), tid, tid) })
}

/// The list of the formats with the new one. In `lib.rs`, this is one more line of `FORMATS`.
const WITH_STEPS: Registry = Registry(&[&Steps]);

#[test]
fn a_registered_format_is_detected_and_converted() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("steps.txt"), directory.path().join("run.parquet"));
    let job = Job { file: &file, out: &out, force: false, layout: &Layout::default() };
    fs::write(&file, "steps 1\n1000 250 41\n1250 300 41\n").unwrap();
    assert_eq!(WITH_STEPS.sniff(&file).unwrap().map(Importer::name), Some("steps"));
    assert_eq!(WITH_STEPS.run(None, &job).unwrap().rows_count, 2);
    assert!(matches!(
        FORMATS.run(None, &Job { force: true, ..job }),
        Err(AnalyzeError::UnknownFormat { .. })
    ));
}

#[test]
fn a_damaged_file_says_where_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("steps.txt"), directory.path().join("run.parquet"));
    let job = Job { file: &file, out: &out, force: false, layout: &Layout::default() };
    for (text, words) in [
        (
            "steps 1\n1000 250 41\n1250 -300 41\n",
            "steps.txt: line 3: it is not START_NS DURATION_NS THREAD_ID",
        ),
        ("steps 2\n", "steps.txt: the first line is not `steps 1`"),
    ] {
        fs::write(&file, text).unwrap();
        let why = WITH_STEPS.run(Some(&Steps), &job).unwrap_err();
        assert!(why.to_string().ends_with(words), "{why}");
        assert!(!out.exists());
    }
}
