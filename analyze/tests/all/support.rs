//! Helpers of all integration tests: paths of recorded files, and the program run with its answers parsed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// The path of a file in `testdata/`.
pub(crate) fn testdata(name: &str) -> String {
    path(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name)).to_owned()
}

/// The path of a file in `queries/`.
pub(crate) fn queries(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../queries").join(name)
}

/// The path of a run recorded on an H200.
pub(crate) fn run(name: &str) -> String {
    testdata(&format!("h200/{name}.parquet"))
}

/// The files in directories that have this ending, sorted.
fn files_in(directories: impl Iterator<Item = PathBuf>, ending: &str) -> Vec<PathBuf> {
    let entries = directories.flat_map(|directory| fs::read_dir(directory).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == ending));
    files.sort();
    files
}

/// The paths of all runs in directories of `testdata/`, sorted.
pub(crate) fn runs_in(directories: &[&str]) -> Vec<String> {
    let files = files_in(directories.iter().map(|name| PathBuf::from(testdata(name))), "parquet");
    files.iter().map(|file| path(file).to_owned()).collect()
}

/// The files in all directories of `queries/` that have this ending, sorted.
pub(crate) fn query_files(ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(queries("")).unwrap().map(|entry| entry.unwrap().path());
    files_in(entries.filter(|entry| entry.is_dir()), ending)
}

/// A path as an argument.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The JSON in a file of `testdata/`.
pub(crate) fn truth(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(testdata(name)).unwrap()).unwrap()
}

/// Runs the program.
pub(crate) fn analyze(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_analyze")).args(args).output().unwrap()
}

/// Runs the program; returns its exit code, standard output and standard error.
pub(crate) fn outcome(args: &[&str]) -> (i32, String, String) {
    let output = analyze(args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs the program, which must succeed; returns its standard output.
pub(crate) fn stdout(args: &[&str]) -> String {
    let (code, out, err) = outcome(args);
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

/// Runs the program, which must succeed; returns the JSON that it prints.
pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

/// Runs the program, which must exit with the code of bad input; returns its standard error.
pub(crate) fn refused(args: &[&str]) -> String {
    let (code, _, err) = outcome(args);
    assert_eq!(code, 2, "{args:?}: {err}");
    err
}

/// Runs a query; returns each row as a JSON object.
pub(crate) fn rows(run: &str, query: &str) -> Vec<Value> {
    let text = stdout(&["sql", run, query, "--format", "ndjson"]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a query that answers with one row of numbers.
pub(crate) fn numbers(run: &str, query: &str) -> Vec<i64> {
    let text = stdout(&["sql", run, query]);
    text.lines().nth(1).unwrap().split(',').map(|cell| cell.parse().unwrap()).collect()
}

/// Imports a file whose format is recognised; returns the run's path, in a directory that must be kept.
pub(crate) fn import(file: impl AsRef<Path>) -> (TempDir, String) {
    import_with(&[path(file.as_ref())])
}

/// Imports a file of a named format; returns the run's path, in a directory that must be kept.
pub(crate) fn import_as(format: &str, file: impl AsRef<Path>) -> (TempDir, String) {
    import_with(&[format, path(file.as_ref())])
}

/// Imports rows, sorted by time, as the run of this name in a directory; returns its path.
pub(crate) fn import_rows(directory: &Path, name: &str, mut rows: Vec<Value>) -> String {
    rows.sort_by_key(|row| row["ts"].as_i64());
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let (source, run) = (directory.join(format!("{name}.ndjson")), directory.join(format!("{name}.parquet")));
    fs::write(&source, text).unwrap();
    stdout(&["import", "events", path(&source), "--out", path(&run)]);
    path(&run).to_owned()
}

fn import_with(args: &[&str]) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let out = path(&directory.path().join("run.parquet")).to_owned();
    stdout(&[&["import"], args, &["--out", &out]].concat());
    (directory, out)
}

/// What a run says about itself.
pub(crate) fn provenance(run: &str) -> Value {
    json(&["info", "--json", run])[0]["provenance"].clone()
}
