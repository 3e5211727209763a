//! Merges several runs of one host into one: slices of a run, or recordings of different processes or times.
//!
//! The runs must share a clock, and no process may have rows of overlapping times in two of them, because
//! copies could not be told from originals. Only a run of calls and one of the scheduler may: they are joined (`join`).

use std::{collections::BTreeMap, path::Path};

use trace_schema::{Run, ScheduleSource};
use trace_writer::Finished;

use super::{
    add_new, blocking, clocks,
    in_order::InOrder,
    join::{self, StatedOffset},
};
use crate::trace::Trace;
use analyze_run::new_file;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    reading::plain,
    run_file::RunFile,
};

/// Result of a merge.
pub struct Merged {
    /// Number of rows and size of the merged run.
    pub finished: Finished,
    /// Descriptions of metadata that disagree between the runs.
    pub conflicts: Vec<String>,
    /// What was joined; `None` if the runs were only merged.
    pub joined: Option<String>,
}

/// Merges the runs of `trace` and writes them to `out`. Calls of one source and scheduler rows of another source of the same
/// threads are joined on one clock, which `stated` relates if the runs do not.
///
/// # Errors
/// Returns an error if the runs are from different hosts or boots, if they overlap, if they cannot be read,
/// or if `out` cannot be written.
pub async fn run(
    trace: &Trace,
    stated: Option<StatedOffset>,
    out: &Path,
    force: bool,
) -> Result<Merged, AnalyzeError> {
    let mut files = trace.files().to_vec();
    files.sort_by_key(|file| file.run.clock.start_ns);
    new_file::check(out, force, files.iter().flat_map(|file| &file.paths))?;
    if let Some(pair) = join::pair(trace, stated).await?
        && let Some(joined) = pair.join(out, force).await?
    {
        let (finished, sentence) = (joined.finished, joined.sentence);
        return Ok(Merged { finished, conflicts: Vec::new(), joined: Some(sentence) });
    }
    if stated.is_some() {
        return Err(AnalyzeError::Query(
            "--offset relates the scheduler rows of one run to the calls of another one, and these are not two such runs with a \
             thread in common"
                .to_owned(),
        ));
    }
    one_clock(&files)?;
    no_overlap(trace).await?;
    let (mut run, conflicts) = described(&files);
    run.schedules = schedules(trace, &files).await?;
    let out = out.to_owned();
    let finished = blocking(move || {
        let inputs = files.into_iter().map(|file| plain::batches(file.paths, None)).collect();
        trace_writer::write(&out, force, InOrder::new(inputs), || run)
    });
    Ok(Merged { finished: finished.await?, conflicts, joined: None })
}

/// Checks that the runs' times are on the same clock.
fn one_clock(files: &[RunFile]) -> Result<(), AnalyzeError> {
    for pair in files.windows(2) {
        let [a, b] = pair else { continue };
        if a.run.host.name != b.run.host.name {
            return Err(AnalyzeError::Query(format!(
                "{} is of host {:?}, {} of {:?}: their clocks have nothing in common",
                a.name, a.run.host.name, b.name, b.run.host.name
            )));
        }
        if let Some(apart) = clocks::boots_apart_ns(&a.run.clock, &b.run.clock) {
            return Err(AnalyzeError::Query(format!(
                "{} and {} are of different boots of the host: their clocks are {apart} ns apart",
                a.name, b.name
            )));
        }
    }
    Ok(())
}

/// Checks that no process has rows of the same time in two runs.
async fn no_overlap(trace: &Trace) -> Result<(), AnalyzeError> {
    let query = "SELECT run, pid, min(ts) AS first_ns, max(ts) AS last_ns FROM events \
         WHERE kind NOT IN ('name', 'run') AND pid > 0 GROUP BY run, pid ORDER BY pid, first_ns, run";
    let mut last: Option<(i64, i64, String)> = None;
    for batch in trace.batches(query).await? {
        let (run, pid) = (strings(&batch, "run")?, integers(&batch, "pid")?);
        let (from, to) = (integers(&batch, "first_ns")?, integers(&batch, "last_ns")?);
        for row in 0..batch.num_rows() {
            let (pid, run) = (pid.value(row), run.at(row).unwrap_or_default());
            if let Some((_, end, other)) =
                last.as_ref().filter(|(of, end, _)| *of == pid && *end >= from.value(row))
            {
                return Err(AnalyzeError::Query(format!(
                    "process {pid} has rows of the same time in {other} (until {end} ns) and {run} (from {} ns): copies could \
                     not be told from originals; cut one with `analyze slice`",
                    from.value(row)
                )));
            }
            last = Some((pid, to.value(row), run.to_owned()));
        }
    }
    Ok(())
}

/// Returns the sources of the scheduler's rows. A merged run needs them if one of its runs does not say itself from when to when
/// it watched the scheduler: the metadata of the others would say so of it.
async fn schedules(trace: &Trace, files: &[RunFile]) -> Result<Vec<ScheduleSource>, AnalyzeError> {
    let mut own: BTreeMap<String, ScheduleSource> = BTreeMap::new();
    let query = "SELECT run, CAST(pid AS BIGINT) AS pid, min(ts) AS first_ns, max(ts + coalesce(dur, 0)) AS last_ns FROM events \
         WHERE kind = 'off_cpu' GROUP BY run, pid ORDER BY run, pid";
    for batch in trace.batches(query).await? {
        let (run, pid) = (strings(&batch, "run")?, integers(&batch, "pid")?);
        let (first, last) = (integers(&batch, "first_ns")?, integers(&batch, "last_ns")?);
        for row in 0..batch.num_rows() {
            let source = own.entry(run.value(row).to_owned()).or_default();
            source.pids.push(pid.value(row) as u32);
            source.from_ns = Some(source.from_ns.map_or(first.value(row), |from| from.min(first.value(row))));
            source.to_ns = Some(source.to_ns.map_or(last.value(row), |to| to.max(last.value(row))));
        }
    }
    let mut found: Vec<ScheduleSource> = Vec::new();
    let mut is_needed = false;
    for file in files {
        is_needed |= !file.run.schedules.is_empty();
        let sources = match own.remove(&file.name) {
            Some(source) if file.run.schedules.is_empty() => {
                let knows = file.run.knows_schedule_span();
                is_needed |= !knows;
                let (trace, producer) = (file.name.clone(), file.run.producer.clone());
                let clock = &file.run.clock;
                let (from_ns, to_ns) = if knows {
                    (Some(clock.start_ns), Some(clock.end_ns))
                } else {
                    (source.from_ns, source.to_ns)
                };
                vec![ScheduleSource { trace, producer, from_ns, to_ns, ..source }]
            }
            _ => file.run.schedules.clone(),
        };
        add_new(&mut found, &sources);
    }
    Ok(if is_needed { found } else { Vec::new() })
}

/// Builds the metadata of the merged run, and describes what disagrees.
fn described(files: &[RunFile]) -> (Run, Vec<String>) {
    let mut conflicts = Vec::new();
    let mut whole = files.first().map(|file| file.run.clone()).unwrap_or_default();
    (whole.part_number, whole.part_is_last) = (0, false);
    whole.not_captured.clear();
    let mut commands: BTreeMap<u32, &[String]> = BTreeMap::new();
    for file in files {
        let run = &file.run;
        whole.clock.end_ns = whole.clock.end_ns.max(run.clock.end_ns);
        if run.clock.end_ns >= whole.clock.end_ns {
            let drift = run.clock.wall_offset_ns.saturating_sub(whole.clock.wall_offset_ns);
            whole.clock.wall_step_ns = drift.saturating_add(run.clock.wall_step_ns);
        }
        let kept = whole.clock.is_synchronised.zip(run.clock.is_synchronised);
        whole.clock.is_synchronised = kept.map(|(one, other)| one && other);
        let utc_errors = whole.clock.utc_error_ns.zip(run.clock.utc_error_ns);
        whole.clock.utc_error_ns = utc_errors.map(|(one, other)| one.max(other));
        whole.lost_is_counted &= run.lost_is_counted;
        whole.throttling_is_recorded &= run.throttling_is_recorded;
        add_new(&mut whole.gpus, &run.gpus);
        add_new(&mut whole.libraries, &run.libraries);
        add_new(&mut whole.probes, &run.probes);
        add_new(&mut whole.threads, &run.threads);
        add_new(&mut whole.lost, &run.lost);
        add_new(&mut whole.stored, &run.stored);
        add_new(&mut whole.processes, &run.processes);
        add_new(&mut whole.redacted, &run.redacted);
        if run.host.name.is_empty() {
            conflicts.push(format!(
                "the host of {} is not on record: that it is the others' is not known",
                file.name
            ));
        }
        for process in &run.processes {
            let command = commands.entry(process.pid).or_insert(&process.command);
            if *command != process.command.as_slice() {
                conflicts.push(format!(
                    "process {} is {:?} in one run and {:?} in {}",
                    process.pid,
                    command.join(" "),
                    process.command.join(" "),
                    file.name
                ));
            }
        }
        whole.not_captured.extend(run.not_captured.iter().map(|what| format!("in {}: {what}", file.name)));
    }
    for pair in files.windows(2) {
        if let [a, b] = pair
            && b.run.clock.start_ns > a.run.clock.end_ns
        {
            let gap = trace_schema::Nanos(b.run.clock.start_ns - a.run.clock.end_ns);
            whole
                .not_captured
                .push(format!("nothing was recorded for {gap} between {} and {}", a.name, b.name));
        }
    }
    whole.not_captured.extend(conflicts.iter().map(|what| format!("a merge: {what}")));
    (whole, conflicts)
}
