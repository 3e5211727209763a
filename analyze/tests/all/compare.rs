//! Runs compared, from the command line: recordings of one workload on an H200, unchanged and with three faults.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use super::support::{analyze, testdata};

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn side(name: &str) -> String {
    testdata(&format!("compare/{name}"))
}

/// Windows of unchanged runs, one of three that were recorded in turn.
fn windows(part: char) -> Vec<String> {
    (1..=6).map(|round| side(&format!("calls/none-{round}{part}.parquet"))).collect()
}

fn compare(base: &str, new: &str, more: &[&str]) -> Output {
    let sides = ["compare", &side(base), &side(new)];
    analyze(&sides.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn faults_are_found_and_named() {
    let cases: [(&str, &str, &[&str]); 3] = [
        ("hog.baseline", "Regression: wall_ns +", &["cpu-hog", "preempted: another task had the CPU"]),
        (
            "sync.baseline",
            "Regression: launch_gap_ns +",
            &["Time in cudaDeviceSynchronize", "waited for the GPU"],
        ),
        ("empty_cache.baseline", "alloc_calls_count × 30.2", &["Time in cudaMalloc", "cudaFree"]),
    ];
    for (fault, verdict, causes) in cases {
        let output = compare("none.baseline", fault, &[]);
        assert_eq!(output.status.code(), Some(1), "{fault}: {}", stderr(&output));
        let text = stdout(&output).replace('\n', " ");
        for words in [verdict].iter().chain(causes) {
            assert!(text.contains(words), "{fault}: {words}: {text}");
        }
        assert!(stderr(&output).starts_with("analyze: regression: "), "{}", stderr(&output));
        assert!(stdout(&output).lines().all(|line| line.chars().count() <= 80));
        assert!(!text.contains("do different work"), "the faults launch as much: {text}");
    }
}

#[test]
fn accounts_sum_to_what_they_account_for() {
    let output = compare("none.baseline", "sync.baseline", &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["comparison_version"], 1);
    assert_eq!(json["outcome"], "regression");
    let accounts = json["accounts"].as_array().unwrap();
    assert!(accounts.len() > 3);
    for account in accounts {
        for of in ["base", "new"] {
            let whole = account[of].as_f64().unwrap();
            let parts: f64 =
                account["parts"].as_array().unwrap().iter().map(|part| part[of].as_f64().unwrap()).sum();
            assert!((whole - parts).abs() <= 1e-6 * whole.abs().max(1.0), "{account}");
        }
    }
    // The account of the gaps is the figure of the gate.
    let gate = json["gates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|gate| gate["key"]["metric"] == "launch_gap_ns")
        .unwrap();
    let gaps = accounts.iter().find(|account| account["key"]["metric"] == "launch_gap_ns").unwrap();
    for (of, mean) in [("base", "base_mean"), ("new", "new_mean")] {
        let (account, figure) = (gaps[of].as_f64().unwrap(), gate["change"][mean].as_f64().unwrap());
        assert!((account - figure).abs() < 1.0, "{account} {figure}");
    }
}

#[test]
fn a_comparison_begins_with_what_the_difference_was_spent_on() {
    let run = |name: &str| testdata(&format!("courtroom/h200/{name}.parquet"));
    let sides = ["compare", &run("nothing"), &run("many_hogs")];
    let output = analyze(&[&sides[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (whole, parts) = (&json["run_time"], json["run_time"]["parts"].as_array().unwrap());
    assert_eq!(whole["is_recorded"], true);
    assert_eq!(parts[0]["part"], "waiting_for_cpu");
    assert_eq!(parts[0]["stage"], "running");
    assert_eq!(parts[0]["names"][0]["name"], "court-hog");
    for (of, mean) in [("base_ns", &whole["base"]["mean_ns"]), ("new_ns", &whole["new"]["mean_ns"])] {
        let sum: f64 = parts.iter().map(|part| part[of].as_f64().unwrap()).sum();
        assert!((sum - mean.as_f64().unwrap()).abs() < 1.0, "{of}: {sum} {mean}");
    }
    let findings = json["findings"].as_array().unwrap();
    let waiting = findings.iter().find(|finding| finding["kind"] == "waiting-for-cpu").unwrap();
    assert_eq!(waiting["difference"], "new");
    assert!(waiting["new_ns"].as_f64() > parts[0]["delta_ns"].as_f64(), "{waiting}: start-up is in it, too");

    let text = stdout(&analyze(&sides)).split_whitespace().collect::<Vec<_>>().join(" ");
    let told = [
        "The process took ",
        "it waited for a CPU that another task had – court-hog.",
        "Suspect, but not proven: wall_ns +",
        "new: waiting-for-cpu 612 ms (court-hog).",
        "What was the difference in wall time spent on?",
        "What is wrong on one side and not on the other?",
        "Did it get slower, or use more memory?",
    ]
    .map(|part| text.find(part));
    assert!(told.iter().all(Option::is_some) && told.is_sorted(), "{told:?}: {text}");
    // The account has the time between launches, too.
    assert!(!text.contains("Time between launches"), "{text}");
}

#[test]
fn unchanged_runs_do_not_fail() {
    let directory = tempfile::tempdir().unwrap();
    let mut sides = Vec::new();
    for part in ['a', 'b', 'c'] {
        let out = directory.path().join(format!("{part}.baseline")).to_string_lossy().into_owned();
        let runs = windows(part);
        let args: Vec<&str> =
            ["baseline", "save", &out].into_iter().chain(runs.iter().map(String::as_str)).collect();
        let output = analyze(&args);
        assert!(output.status.success(), "{}", stderr(&output));
        sides.push(out);
    }
    for (base, new) in [(0, 1), (1, 2), (2, 0)] {
        let output = analyze(&["compare", &sides[base], &sides[new], "--format", "json"]);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(json["outcome"], "regression");
        assert_eq!(json["base"].as_array().unwrap().len(), 6);
    }
    // A quiet gate passes: it is the same program.
    let output = analyze(&["compare", &sides[0], &sides[1], "--gate", "reserved_peak_bytes < +2%"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("No regression."));

    // The baseline says what the runs say.
    let run = windows('a').remove(0);
    let sql = "SELECT launch_gap_ns, gap_host_ns FROM metrics_gaps";
    let asked = stdout(&analyze(&["sql", &run, sql, "--format", "csv"]));
    let json = stdout(&analyze(&[
        "compare",
        &sides[0],
        &sides[1],
        "--gate",
        "launch_gap_ns < +9000%",
        "--format",
        "json",
    ]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let first = json["gates"][0]["change"]["base"][0].as_f64().unwrap();
    assert_eq!(asked.lines().nth(1).unwrap().split(',').next().unwrap().parse::<f64>().unwrap(), first);
    let list = stdout(&analyze(&["baseline", "list", &sides[0]]));
    assert!(list.contains("none-1a") && list.contains("NVIDIA H200"), "{list}");
    let shown = stdout(&analyze(&["baseline", "show", &sides[0], "--metric", "launch_gap"]));
    assert_eq!(shown.lines().count(), 7, "{shown}");
}

#[test]
fn what_cannot_be_told_is_said() {
    let (one, other) = (windows('a').remove(0), windows('b').remove(0));
    let output = analyze(&["compare", &one, &other]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("one run a side"), "{}", stderr(&output));

    // Runs that are too noisy for a limit of 2 % say how many would do; a resolution that the user gives decides.
    let output = compare("none.baseline", "sync.baseline", &["--gate", "calls_ns < +2%"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    let words =
        "beyond its limit, but with 18 and 6 runs not significant (p 0.100); about 50 runs a side would";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    let output =
        compare("none.baseline", "sync.baseline", &["--gate", "calls_ns < +2%", "--resolution", "15%"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    // No such function in any run; too few calls for a quantile.
    let output = compare("none.baseline", "sync.baseline", &["--gate", "p50(cuMemcpy) < +5%"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("no run has it"), "{}", stderr(&output));
    // The recorder did not probe it: that is no zero.
    let output = compare("none.baseline", "sync.baseline", &["--gate", "calls_count(cudaLaunchKernel) < +0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("no run has it, so it may not have been measured"),
        "{}",
        stderr(&output)
    );
    let output = compare("none.baseline", "sync.baseline", &["--gate", "p99(cudaMalloc) < +5%"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("no base run has the 500 calls that p99_ns needs"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn runs_that_mean_something_else_are_not_compared() {
    let directory = tempfile::tempdir().unwrap();
    let patched = |from: &str, to: &str| {
        let mut bytes = fs::read(side("hog.baseline")).unwrap();
        assert_eq!(from.len(), to.len());
        let places: Vec<usize> =
            (0..bytes.len() - from.len()).filter(|i| bytes[*i..].starts_with(from.as_bytes())).collect();
        assert!(!places.is_empty(), "{from}");
        places.iter().for_each(|i| bytes[*i..*i + to.len()].copy_from_slice(to.as_bytes()));
        let path = directory.path().join("new.baseline");
        fs::write(&path, bytes).unwrap();
        path.to_string_lossy().into_owned()
    };
    let base = side("none.baseline");
    let new = patched("NVIDIA H200", "NVIDIA H100");
    let output = analyze(&["compare", &base, &new]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("not comparable: the runs differ in GPU"), "{}", stderr(&output));
    let output = analyze(&["compare", &base, &new, "--allow", "GPU"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));

    let new = patched("{\"version\":1,", "{\"version\":7,");
    let output = analyze(&["compare", &base, &new]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("version 7"), "{}", stderr(&output));

    let whole = fs::read(side("hog.baseline")).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        let cut = directory.path().join("cut.baseline");
        fs::write(&cut, &whole[..length]).unwrap();
        let output = analyze(&["compare", &base, &cut.to_string_lossy()]);
        assert_eq!(output.status.code(), Some(2), "{length}: {}", stderr(&output));
    }
}

#[test]
fn bad_gates_are_refused() {
    let cases: [(&[&str], &str); 7] = [
        (&["--gate", "speed < +5%"], "no run has a metric speed; there are"),
        (&["--gate", "wall_ns < +5%", "--gate", "wall_ns < +2%"], "contradict"),
        (&["--gate", "wall_ns < 5%"], "a gate says by how much"),
        (&["--gate", "p99 < +5%"], "name one, or all by p99_ns(*)"),
        (&["--gate", "no_such.toml"], "no_such.toml"),
        (&["--alpha", "2"], "alpha is 2"),
        (&["--resolution", "ten"], "not a share from 0%"),
    ];
    for (args, words) in cases {
        let output = compare("none.baseline", "hog.baseline", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
    }
    let output = compare("none.baseline", "none.baseline", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the same run"), "{}", stderr(&output));
    for args in [&["compare"][..], &["compare", "--base", "x"], &["compare", "only-one"]] {
        assert_eq!(analyze(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_file_of_gates_and_metrics_of_one_s_own() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gates.toml");
    fs::write(&file, "resolution = \"20%\"\nalpha = 0.01\ngates = [\n  \"launch_gap_ns < +50%\",\n  \"steps_ns < +10%\",\n]\n").unwrap();
    let sql = "-- metrics_steps: one row per run: its steps.\n-- needs: marks\n-- columns:\n--   run       string  -   Run.\n--   steps_ns  int64   ns  Length of all of them.\nSELECT run, sum(dur) AS steps_ns FROM marks GROUP BY run\n";
    fs::write(directory.path().join("metrics_steps.sql"), sql).unwrap();
    let (base, new) = (windows('a'), windows('b'));
    let mut args = vec!["compare", "--format", "json", "--base"];
    args.extend(base.iter().take(3).map(String::as_str));
    args.push("--new");
    args.extend(new.iter().take(3).map(String::as_str));
    let (queries, gates) = (directory.path().to_string_lossy(), file.to_string_lossy());
    args.extend(["--queries", &queries, "--gate", &gates]);
    let output = analyze(&args);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["gates"][1]["key"]["metric"], "steps_ns", "{}", stderr(&output));
    assert_eq!(json["gates"][1]["change"]["method"], "welch");
    assert_eq!(
        (json["rules"]["alpha"].as_f64(), json["rules"]["resolution_ratio"].as_f64()),
        (Some(0.01), Some(0.2))
    );

    fs::write(&file, "gates = [\"wall_ns < +5%\"]\nlimit = 3\n").unwrap();
    let output = compare("none.baseline", "hog.baseline", &["--gate", &gates]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("unknown field `limit`"), "{}", stderr(&output));
}

#[test]
fn every_format_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html").to_string_lossy().into_owned();
    let output = compare("none.baseline", "sync.baseline", &["--format", "junit", "--html", &page]);
    let xml = stdout(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        xml.contains("<failure message=\"+18.8 %")
            && xml.contains("<skipped message=\"inconclusive: +14.2 %"),
        "{xml}"
    );
    assert!(xml.contains("failures=\"1\"") && xml.contains("tests=\"6\""), "{xml}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("launch_gap_ns") && html.contains("\"comparison_version\":1") && !html.contains("src="),
        "{}",
        html.len()
    );
    let output = compare("none.baseline", "sync.baseline", &["--html", &page]);
    assert_eq!(output.status.code(), Some(2), "it exists");

    let markdown = stdout(&compare("none.baseline", "sync.baseline", &["--format", "markdown"]));
    assert!(markdown.contains("| launch\\_gap\\_ns &lt; +5% | regression |"), "{markdown}");
    let lines = stdout(&compare("none.baseline", "sync.baseline", &["--format", "github"]));
    assert!(
        lines.contains("::error title=regression%3A launch_gap_ns::launch_gap_ns < +5%25: +18.8 %25"),
        "{lines}"
    );
    assert!(lines.contains("::warning title=inconclusive%3A wall_ns::"), "{lines}");
}

#[test]
fn continuous_integration_fails_when_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/actions/compare/compare.sh");
    let step = |new: &str, gates: &str, inconclusive: &str| {
        let (summary, outputs) = (directory.path().join("summary"), directory.path().join("outputs"));
        fs::write(&summary, "").unwrap();
        fs::write(&outputs, "").unwrap();
        let output = Command::new("bash")
            .arg(&script)
            .env("BASE", side("none.baseline"))
            .env("NEW", side(new))
            .env("GATES", gates)
            .env("ANALYZE", env!("CARGO_BIN_EXE_analyze"))
            .env("INCONCLUSIVE", inconclusive)
            .env("HTML", directory.path().join("compare.html"))
            .env("GITHUB_STEP_SUMMARY", &summary)
            .env("GITHUB_OUTPUT", &outputs)
            .output()
            .unwrap();
        (
            output.status.code(),
            stdout(&output),
            fs::read_to_string(summary).unwrap(),
            fs::read_to_string(outputs).unwrap(),
        )
    };
    let (code, annotations, summary, outputs) = step("hog.baseline", "", "fail");
    assert_eq!((code, outputs.as_str()), (Some(1), "outcome=regression\n"));
    assert!(
        annotations.contains("::error title=regression%3A wall_ns::") && summary.contains("cpu-hog"),
        "{summary}"
    );
    assert!(directory.path().join("compare.html").exists());
    let gates = "reserved_peak_bytes < +2%\nallocated_peak_bytes < +2%\n";
    let (code, annotations, _, outputs) = step("hog.baseline", gates, "fail");
    assert_eq!((code, annotations.as_str(), outputs.as_str()), (Some(0), "", "outcome=pass\n"));
    let gates = "p99(cudaMalloc) < +5%";
    assert_eq!(step("hog.baseline", gates, "fail").0, Some(3));
    assert_eq!(step("hog.baseline", gates, "warn").0, Some(0));
    assert_eq!(step("hog.baseline", "nonsense < +5%", "warn").0, Some(2));

    // make turns every code into 2, as its users are told.
    let makefile = directory.path().join("Makefile");
    let (base, new) = (side("none.baseline"), side("hog.baseline"));
    fs::write(
        &makefile,
        format!("gate:\n\t@{} compare {base} {new} >/dev/null\n", env!("CARGO_BIN_EXE_analyze")),
    )
    .unwrap();
    let made = Command::new("make").arg("-f").arg(&makefile).output().expect("make, which .ci/test installs");
    assert_eq!(made.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&made.stderr).contains("Error 1"),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

#[test]
fn a_series_changes_where_it_changed() {
    let (none, hog) = (side("none.baseline"), side("hog.baseline"));
    let output = analyze(&["trend", &none, &hog, "--order", "given", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let wall = json.as_array().unwrap().iter().find(|series| series["metric"] == "wall_ns").unwrap();
    assert_eq!(wall["points"].as_array().unwrap().len(), 1, "{wall}");
    assert_eq!(
        (wall["points"][0]["place"].as_i64(), wall["points"][0]["run"].as_str()),
        (Some(18), Some("hog-1"))
    );
    let memory =
        json.as_array().unwrap().iter().find(|series| series["metric"] == "reserved_peak_bytes").unwrap();
    assert!(memory["points"].as_array().unwrap().is_empty());
    // In order of time the faults come and go: no level, no change.
    let text = stdout(&analyze(&["trend", &none, &hog]));
    assert!(text.contains("No change."), "{text}");
    // 20 calls a run carry no 99th percentile, in a trend as in a comparison.
    let p99 = analyze(&["trend", &none, "--metric", "p99(cudaMalloc)"]);
    assert_eq!(p99.status.code(), Some(3), "{}", stdout(&p99));
    let words = stdout(&p99).split_whitespace().collect::<Vec<_>>().join(" ");
    let note = "p99_ns(cudaMalloc): 18 runs have fewer than the 500 calls that it needs, and no value.";
    assert!(words.contains(note) && words.contains("Too few runs to tell levels apart."), "{words}");
    let few = analyze(&["trend", &windows('a')[0], &windows('a')[1]]);
    assert_eq!(few.status.code(), Some(3), "{}", stderr(&few));
}

#[test]
fn how_many_runs_are_enough() {
    let output = analyze(&["compare", "plan", &side("none.baseline"), "--comparisons", "40", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |place: usize| json[place]["found"]["+20%"].as_f64().unwrap();
    assert!(found(0) < found(6) && found(6) > 0.9, "more runs find more: {json}");
    assert!(
        json.as_array().unwrap().iter().all(|line| line["false_ratio"].as_f64().unwrap() <= 0.125),
        "{json}"
    );
    let few = analyze(&["compare", "plan", &windows('a')[0]]);
    assert_eq!(few.status.code(), Some(3));
}
