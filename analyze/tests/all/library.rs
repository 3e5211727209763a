//! The library of queries: every file has its test, its header is what is planned, and the reference is current.

use std::path::Path;

use analyze::{library::LIBRARY, trace::Trace};

use super::support::{queries, query_files, stdout, testdata};

/// Files of the library, without the tests of functions, which have no SQL file.
fn files(ending: &str) -> Vec<String> {
    let files = query_files(ending).into_iter();
    let files = files.filter(|path| !path.parent().is_some_and(|parent| parent.ends_with("functions")));
    files.map(|path| path.strip_prefix(queries("")).expect("below").to_string_lossy().into_owned()).collect()
}

#[test]
fn every_file_is_listed_and_has_a_test() {
    let listed: Vec<_> = LIBRARY.files.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(files("sql"), listed);
    let tests: Vec<_> = listed.iter().map(|path| path.replace(".sql", ".slt")).collect();
    assert_eq!(files("slt"), tests);
}

#[tokio::test]
async fn headers_match_what_is_planned() {
    let trace = Trace::literal().await.expect("trace");
    for query in LIBRARY.queries(None).expect("queries") {
        let frame = trace.query(&query, &[]).await.expect("plan");
        let planned: Vec<String> = frame
            .schema()
            .fields()
            .iter()
            .map(|field| format!("{} {}", field.name(), type_name(field.data_type())))
            .collect();
        let documented: Vec<String> =
            query.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
        assert_eq!(planned, documented, "{}", query.path);
        for column in &query.columns {
            assert!(column.doc.ends_with('.'), "{}.{}", query.name, column.name);
            match column.unit.as_str() {
                "-" => {}
                "ns" if matches!(
                    column.name.as_str(),
                    "ts" | "dur" | "call_ts" | "range_ts" | "alloc_ts" | "wall_ts"
                ) => {}
                unit => {
                    assert!(column.name.ends_with(&format!("_{unit}")), "{}.{}", query.name, column.name)
                }
            }
        }
    }
}

#[test]
fn reference_is_current() {
    let path = queries("REFERENCE.md");
    let text = LIBRARY.reference().expect("a reference");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "queries/REFERENCE.md is not current: BLESS=1 writes it");
}

#[test]
fn a_user_s_directory_adds_and_replaces() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
    let header = "-- needs: ops\n-- columns:\n--   op  string  -  Function.\nSELECT op FROM ops";
    write("mine.sql", &format!("-- mine: one row per call.\n{header}"));
    write(
        "ops.sql",
        "-- samples: one row per call.\n-- needs: events\n-- columns:\n--   op  string  -  Function.\nSELECT op FROM events",
    );
    let found = LIBRARY.queries(Some(directory.path())).expect("queries");
    let library = LIBRARY.queries(None).expect("queries");
    assert_eq!(found.len(), library.len() + 1);
    assert!(found.iter().find(|query| query.name == "samples").is_some_and(|query| query.columns.len() == 1));
    write(
        "bad.sql",
        "-- bad: one row.\n-- needs: nothing_like_it\n-- columns:\n--   op  string  -  Function.\nSELECT 1",
    );
    let error = LIBRARY.queries(Some(directory.path())).expect_err("a need that is not met").to_string();
    assert!(error.contains("bad.sql needs nothing_like_it"), "{error}");
    write("bad.sql", "SELECT 1");
    let error = LIBRARY.queries(Some(directory.path())).expect_err("no header").to_string();
    assert!(error.contains("bad.sql: the header lacks"), "{error}");
}

fn type_name(ty: &arrow::datatypes::DataType) -> String {
    use arrow::datatypes::DataType;
    match ty {
        DataType::Dictionary(_, _) | DataType::Utf8 | DataType::Utf8View => "string".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

/// The metric of CONTRIBUTING.md, from the page itself, is a view and a figure of a comparison.
#[test]
fn the_metric_of_contributing_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let (_, rest) = page.split_once("```sql file=").expect("a query");
    let (name, rest) = rest.split_once('\n').expect("its name");
    let (query, _) = rest.split_once("```").expect("its end");
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join(name), query).expect("written");
    let (folder, run) = (directory.path().to_str().expect("a path"), testdata("h200/mixed-7gb.parquet"));
    let count = stdout(&["sql", "--queries", folder, &run, "SELECT frees_count FROM metrics_frees"]);
    let expected = stdout(&["sql", &run, "SELECT count(dur) AS frees_count FROM ops WHERE op = 'cudaFree'"]);
    assert_eq!(count, expected);
    assert_ne!(count, "frees_count\n0\n");
    let baseline = directory.path().join("main.baseline");
    let baseline = baseline.to_str().expect("a path");
    stdout(&["baseline", "save", baseline, &run, "--queries", folder]);
    let figures = stdout(&["baseline", "show", baseline, "--metric", "frees"]);
    assert!(figures.contains("frees_ns") && figures.contains("frees_count"), "{figures}");
}
