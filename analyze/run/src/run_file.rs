//! A run on disk: one file, or the numbered parts that `capture --max-size` wrote in its place.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use trace_schema::{COLUMNS, FORMAT_VERSION, META_RUN, META_VERSION, Run};

use crate::{error::AnalyzeError, stored_file::StoredFile, times};

/// One opened file.
#[derive(Clone, Debug, Default)]
pub struct RunFile {
    /// Name in the `run` column: the file's name without its ending.
    pub name: String,
    /// Where it is: one file, or its parts in order.
    pub paths: Vec<PathBuf>,
    /// What it says about itself.
    pub run: Run,
    /// Its size.
    pub size_bytes: u64,
    /// Its rows.
    pub rows_count: u64,
}

/// Reads the footer and checks that the file is a run this program understands.
pub fn open_file(path: &Path) -> Result<RunFile, AnalyzeError> {
    let not_a_run = |reason: String| AnalyzeError::NotARun { path: path.to_owned(), reason };
    let file = StoredFile::open(path)?;
    let version =
        file.value(META_VERSION).ok_or_else(|| not_a_run(format!("its metadata has no {META_VERSION}")))?;
    let version: u32 =
        version.parse().map_err(|_| not_a_run(format!("its {META_VERSION} is {version:?}, not a number")))?;
    if version > FORMAT_VERSION {
        return Err(AnalyzeError::NewerVersion {
            path: path.to_owned(),
            found: version,
            known: FORMAT_VERSION,
        });
    }
    let run: Run = serde_json::from_str(file.value(META_RUN).unwrap_or("{}"))
        .map_err(|error| not_a_run(format!("its {META_RUN} is not what it should be: {error}")))?;
    if let Some(fault) = times::metadata_fault(&run) {
        return Err(AnalyzeError::Damaged(format!("{}: its {META_RUN}: {fault}", path.display())));
    }
    // A run of an earlier version lacks the columns that came later; they read as null.
    let mut required = COLUMNS.iter().filter(|column| !column.nullable);
    if let Some(missing) = required.find(|column| file.schema().field_with_name(column.name).is_err()) {
        return Err(not_a_run(format!("it has no column {}", missing.name)));
    }
    Ok(RunFile {
        name: path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
        paths: vec![path.to_owned()],
        run,
        size_bytes: file.size_bytes(),
        rows_count: file.rows_count(),
    })
}

/// Returns the recording that becomes this run, if it is there.
fn recording_of(path: &Path) -> Option<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(".recording");
    Some(PathBuf::from(name)).filter(|recording| recording.is_file())
}

/// Opens a run: a file, or the numbered parts that `capture --max-size` wrote in its place.
pub fn open(path: &Path) -> Result<RunFile, AnalyzeError> {
    let parts = if path.exists() { Vec::new() } else { trace_writer::parts_of(path) };
    let Some((last, earlier)) = parts.split_last() else {
        return open_file(path).map_err(|error| match (error, recording_of(path)) {
            (AnalyzeError::Io { .. } | AnalyzeError::NotParquet { .. }, Some(recording)) => {
                AnalyzeError::Unfinished(recording)
            }
            (error, _) => error,
        });
    };
    // The last part knows what was true to the end; losses, and who has ended before, are in the earlier ones.
    let mut whole = open_file(last)?;
    for part in earlier.iter().rev() {
        let file = open_file(part)?;
        if file.run.clock.start_ns != whole.run.clock.start_ns || file.run.host.name != whole.run.host.name {
            return Err(AnalyzeError::NotARun {
                path: part.clone(),
                reason: format!("it is not a part of the run that {} ends", last.display()),
            });
        }
        whole.rows_count += file.rows_count;
        whole.size_bytes += file.size_bytes;
        whole.paths.insert(0, part.clone());
        add_earlier(&mut whole.run, file.run);
    }
    whole.name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if !whole.run.part_is_last {
        whole.run.not_captured.push(format!(
            "the run goes on after {}: its last parts are missing, or wait for `analyze recover`",
            last.display()
        ));
        whole.run.lost_is_counted = false;
    }
    if parts.len() as u32 != whole.run.part_number {
        return Err(AnalyzeError::NotARun {
            path: last.clone(),
            reason: format!("it is part {} of its run, and {} are here", whole.run.part_number, parts.len()),
        });
    }
    Ok(whole)
}

/// Adds what an earlier part knows to what later ones do.
fn add_earlier(run: &mut Run, mut earlier: Run) {
    run.lost_is_counted &= earlier.lost_is_counted;
    let known: HashSet<String> = run.not_captured.iter().cloned().collect();
    run.not_captured.extend(earlier.not_captured.drain(..).filter(|what| !known.contains(what)));
    earlier.lost.append(&mut run.lost);
    run.lost = earlier.lost;
    earlier.stored.append(&mut run.stored);
    run.stored = earlier.stored;
    let threads: HashSet<_> = run.threads.iter().map(|thread| (thread.pid, thread.tid)).collect();
    run.threads.extend(earlier.threads.into_iter().filter(|t| !threads.contains(&(t.pid, t.tid))));
    let processes: HashSet<_> = run.processes.iter().map(|process| process.pid).collect();
    run.processes.extend(earlier.processes.into_iter().filter(|p| !processes.contains(&p.pid)));
}

/// Names of which two are the same get a number.
pub fn tell_apart<'a>(names: impl Iterator<Item = &'a mut String>) {
    let mut known = HashSet::new();
    for name in names {
        let base = name.clone();
        let mut number = 1;
        while !known.insert(name.clone()) {
            number += 1;
            *name = format!("{base}-{number}");
        }
    }
}
