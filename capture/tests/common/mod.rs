//! What the end-to-end tests share: whether they can run here, running `capture` on a workload, reading the file.
//!
//! libtest cannot ignore a test at run time, so the programs that need eBPF have their `main` from [`tests!`].
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    sync::LazyLock,
};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::{cast, concat_batches},
    datatypes::{DataType, Int64Type},
};
use libtest_mimic::{Arguments, Trial};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

pub const CAPTURE: &str = env!("CARGO_BIN_EXE_capture");

/// Where this build's programs are; the stub and `analyze` lie beside `capture`.
pub fn built(name: &str) -> PathBuf {
    let path = Path::new(CAPTURE).parent().unwrap().join(name);
    assert!(path.exists(), "{} is not built: run the tests of the whole workspace", path.display());
    path
}

/// What `capture check --json` says of this machine.
static CHECK: LazyLock<Value> = LazyLock::new(|| {
    let check = Command::new(CAPTURE).args(["check", "--json"]).output().unwrap();
    serde_json::from_slice(&check.stdout).unwrap()
});

fn finding(name: &str) -> &'static Value {
    let findings = CHECK["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).unwrap()
}

/// Whether `capture check` finds that this machine has something.
pub fn is_ok(name: &str) -> bool {
    finding(name)["status"] == "ok"
}

/// Whether this kernel has no links over many functions, so that probes need CAP_SYS_ADMIN.
pub fn probes_single_functions_only() -> bool {
    finding("cheapest probes")["detail"].as_str().unwrap().starts_with("single")
}

/// Whether a program can be run and succeeds.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// A test: its name, what it does, and whether this machine has what it needs besides eBPF.
pub type Test = (&'static str, fn(), fn() -> bool);

/// Makes `main` of a test program whose tests need eBPF: `tests! { a_test, another_test if what_else_it_needs() }`.
macro_rules! tests {
    ($($name:ident $(if $needs:expr)?),* $(,)?) => {
        fn main() -> std::process::ExitCode {
            common::run_tests(&[$((stringify!($name), $name, || true $(&& $needs)?)),*])
        }
    };
}
pub(crate) use tests;

/// Runs tests, or lists them, as libtest does. A test that cannot run here is ignored; where the environment has
/// INQUEST_EBPF=required and this machine cannot record, every test fails.
pub fn run_tests(tests: &[Test]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Tests that measure the scheduler run alone; nextest starts a process for each of them anyway.
    arguments.test_threads = Some(1);
    let can_record = CHECK["can_record"] == true;
    let is_required = std::env::var("INQUEST_EBPF").is_ok_and(|value| value == "required");
    if !can_record && !arguments.list {
        eprintln!("This machine cannot record:\n{:#}", CHECK["findings"]);
    }
    let trials = tests.iter().map(|&(name, test, has_needs)| {
        let can_run = if can_record { has_needs() } else { is_required };
        let run = move || {
            assert!(can_record, "this machine cannot record: see `capture check`");
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(!can_run)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

pub struct Run {
    pub directory: tempfile::TempDir,
    pub output: Output,
}

impl Run {
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("run.parquet")
    }

    pub fn log(&self) -> Value {
        let text = std::fs::read(self.directory.path().join("log.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// The stub's command line, with its log in `directory`.
pub fn workload(directory: &Path, scenario: &[&str]) -> Command {
    workload_with(&built("examples"), directory, scenario)
}

fn workload_with(libraries: &Path, directory: &Path, scenario: &[&str]) -> Command {
    let mut command = Command::new(built("cuda-stub"));
    command.arg(libraries).arg(directory.join("log.json")).args(scenario);
    command
}

pub fn record(flags: &[&str], scenario: &[&str]) -> Run {
    record_with(&built("examples"), flags, scenario)
}

/// Records the stub with the CUDA libraries of a directory.
pub fn record_with(libraries: &Path, flags: &[&str], scenario: &[&str]) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let stub = workload_with(libraries, directory.path(), scenario);
    let output = Command::new(CAPTURE)
        .arg("--out")
        .arg(directory.path().join("run.parquet"))
        .args(if flags.contains(&"--profile") { &[][..] } else { &["--profile", "full"] })
        .args(flags)
        .arg("--")
        .arg(stub.get_program())
        .args(stub.get_args())
        .output()
        .unwrap();
    Run { directory, output }
}

/// All rows of a run, and its metadata.
pub struct Rows {
    pub batch: RecordBatch,
    pub meta: Value,
}

impl Rows {
    pub fn open(path: &Path) -> Self {
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let pairs = builder.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let json = pairs.iter().find(|pair| pair.key == "inquest.run").unwrap().value.clone().unwrap();
        let schema = builder.schema().clone();
        let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
        Self { batch: concat_batches(&schema, &batches).unwrap(), meta: serde_json::from_str(&json).unwrap() }
    }

    pub fn text(&self, row: usize, column: &str) -> Option<String> {
        let array = cast(self.batch.column_by_name(column).unwrap(), &DataType::Utf8).unwrap();
        let array = array.as_string::<i32>();
        (!array.is_null(row)).then(|| array.value(row).to_owned())
    }

    pub fn number(&self, row: usize, column: &str) -> Option<i64> {
        let array = cast(self.batch.column_by_name(column).unwrap(), &DataType::Int64).unwrap();
        let array = array.as_primitive::<Int64Type>();
        (!array.is_null(row)).then(|| array.value(row))
    }

    /// Rows with this kind (and op), in file order: by `ts`.
    pub fn select(&self, kind: &str, op: Option<&str>) -> Vec<usize> {
        let text = |column| cast(self.batch.column_by_name(column).unwrap(), &DataType::Utf8).unwrap();
        let (kinds, ops) = (text("kind"), text("op"));
        let (kinds, ops) = (kinds.as_string::<i32>(), ops.as_string::<i32>());
        (0..self.batch.num_rows())
            .filter(|row| kinds.value(*row) == kind && op.is_none_or(|op| ops.value(*row) == op))
            .collect()
    }

    pub fn column(&self, name: &str) -> Vec<Option<i64>> {
        let array = cast(self.batch.column_by_name(name).unwrap(), &DataType::Int64).unwrap();
        array.as_primitive::<Int64Type>().iter().collect()
    }

    /// Events lost by a probe.
    pub fn lost(&self, probe: &str) -> u64 {
        let lost = self.meta["lost"].as_array().unwrap();
        lost.iter().filter(|lost| lost["probe"] == probe).map(|lost| lost["count"].as_u64().unwrap()).sum()
    }
}

/// Asks a run in SQL; the answer as CSV.
pub fn sql(run: &Path, query: &str) -> String {
    let args = ["--format", "csv"];
    let output = Command::new(built("analyze")).arg("sql").args(args).arg(run).arg(query).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
