//! The functions of `analyze sql`: the reference is current, each has a test, and quantile sketches err as it says.

use std::{fs, path::PathBuf};

use analyze::trace::Trace;
use analyze_engine::functions::reference::{Function, functions};
use arrow::util::pretty::pretty_format_batches;

use super::support::{queries, run};

const HEAD: &str = "# Functions\n\nWhat `analyze sql` knows beside [the functions of DataFusion](https://datafusion.apache.org/user-guide/sql/), with what their examples answer. Generated; `BLESS=1 cargo nextest run functions` writes it.\nA null in a table of answers is empty.\n";

/// The bounds are those of [`sketches_err_as_little_as_is_said`].
const QUANTILES: &str = "\n## Quantiles\n\n\
    `percentile_cont(0.99) WITHIN GROUP (ORDER BY dur)` interpolates between the two values next to the rank. It counts whole values from 0 to 1,048,575 (durations up to 1.05 ms), and keeps up to\n\
    262,144 others in each group: so far it is exact. In a group with more of these it counts them in 1024 buckets for each power of two, and a quantile among them is within 0.05 %, which a note on\n\
    standard error says. `median(dur)` counts and keeps them so, too. `sum` of whole numbers is an error where it is beyond 64 bits.\n\n\
    `approx_percentile_cont(0.99) WITHIN GROUP (ORDER BY dur)` is a t-digest, in memory that does not grow with the rows. It errs in rank. Measured on the bundled runs `qwen2-quiet`\n\
    and `qwen2-hogs`, function by function of 10,000 calls or more, what it returns for the median is within 0.5 % of the calls of the rank asked for, for p99 and p99.9 within 0.1 %; with 1000\n\
    centroids (`approx_percentile_cont(0.99, 1000)`) within 0.1 % and 0.05 %. Where few calls are far apart, that can be another time altogether: p99.9 was off by up to 62 %. No verdict uses it.\n";

async fn answer(trace: &Trace, function: &Function) -> String {
    let example = function.documentation.sql_example.as_deref().expect("an example");
    let batches = trace.batches(example).await.unwrap_or_else(|error| panic!("{example}: {error}"));
    format!("{example}\n{}", pretty_format_batches(&batches).expect("a table"))
}

#[tokio::test]
async fn functions_reference_is_current() {
    let trace = Trace::literal().await.expect("a trace");
    let mut text = HEAD.to_owned();
    let mut section = "";
    let functions = functions();
    for function in &functions {
        let of = &function.documentation;
        if section != of.doc_section.label {
            section = of.doc_section.label;
            text += &format!("\n## {section}\n");
        }
        assert!(of.syntax_example.starts_with(&format!("{}(", function.name)), "{}", function.name);
        text += &format!(
            "\n### {}\n\n{}\n\n| argument | meaning |\n|---|---|\n",
            of.syntax_example, of.description
        );
        for (name, meaning) in of.arguments.iter().flatten() {
            text += &format!("| {name} | {meaning} |\n");
        }
        text += &format!("\n```sql\n{}\n```\n", answer(&trace, function).await);
    }
    text += QUANTILES;
    let path = queries("FUNCTIONS.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).expect("written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "queries/FUNCTIONS.md is not current: BLESS=1 writes it");
}

/// Each is called in some test of SQL.
#[test]
fn functions_have_tests() {
    let files = fs::read_dir(queries("functions")).expect("tests").flatten();
    let tests: String = files.map(|file| fs::read_to_string(file.path()).expect("a test")).collect();
    for function in functions() {
        assert!(tests.contains(&format!("{}(", function.name)), "{} is in no .slt", function.name);
    }
}

#[tokio::test]
async fn sketches_err_as_little_as_is_said() {
    for name in ["qwen2-quiet", "qwen2-hogs"] {
        let trace = Trace::open(&[PathBuf::from(run(name))]).await.expect("a run");
        for (quantile, allowed, allowed_of_1000) in
            [(0.5, 0.005, 0.001), (0.99, 0.001, 0.0005), (0.999, 0.001, 0.0005)]
        {
            // The rank of a value: all calls below it, up to all that are not above it.
            let query = format!(
                "WITH sketched AS (SELECT op, count(*) AS n, approx_percentile_cont({quantile}) WITHIN GROUP (ORDER BY dur) AS a, \
                 approx_percentile_cont({quantile}, 1000) WITHIN GROUP (ORDER BY dur) AS b FROM ops GROUP BY op HAVING count(*) >= 10000), \
                 ranks AS (SELECT o.op, avg(CASE WHEN dur < a THEN 1.0 ELSE 0.0 END) AS a_from, avg(CASE WHEN dur <= a THEN 1.0 ELSE 0.0 END) AS a_to, \
                 avg(CASE WHEN dur < b THEN 1.0 ELSE 0.0 END) AS b_from, avg(CASE WHEN dur <= b THEN 1.0 ELSE 0.0 END) AS b_to \
                 FROM ops o JOIN sketched s ON o.op = s.op GROUP BY o.op) \
                 SELECT count(*) AS ops_count, max(greatest(a_from - {quantile}, {quantile} - a_to, 0.0)) AS a, \
                 max(greatest(b_from - {quantile}, {quantile} - b_to, 0.0)) AS b FROM ranks"
            );
            let batches = trace.batches(&query).await.expect("ranks");
            let cells = pretty_format_batches(&batches).expect("a table").to_string();
            let row = cells.lines().nth(3).expect("a row");
            let values: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
            let [ops_count, a, b] = values[..] else { panic!("{cells}") };
            assert!(ops_count >= 3.0 && a <= allowed && b <= allowed_of_1000, "{name} p{quantile}:\n{cells}");
        }
    }
}
