# The daily commands: `just` lists them. Each is one that can be typed without just, and CI runs .ci/run itself.

set positional-arguments

_list:
    @just --list --unsorted

# Build the programs, the stub CUDA libraries and the examples
build:
    cargo build --workspace --bins --examples

# Run every test, the notebooks and the report's pages; with arguments for cargo nextest, a selection of the tests
test *args:
    .ci/test "$@"

# Run the tests of one crate: analyze, capture, capture-wire, cuda-stub, fault-injection, inquest, inquest-fuzz, trace-schema, trace-writer
t crate *args: build
    cargo nextest run --package "$@"

# Format the code
fmt:
    cargo fmt --all

# Check the format, and run clippy as CI does
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Build the documentation of all crates, private items included
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

# Accept changed goldens and regenerate the reference pages; read the diff before you commit it
bless *args:
    BLESS=1 .ci/test "$@"

# Write target/report.html for a run, by default a bundled one from an H200
report run="testdata/h200/qwen2-hogs.parquet":
    cargo run --bin analyze -- report "$1" --html target/report.html --force

# Run everything that CI checks
ci:
    .ci/run

# Check the licences and sources of dependencies, and whether they have known vulnerabilities (needs cargo-deny and network)
deny:
    cargo deny --log-level error check licenses bans sources
    cargo deny check advisories

# Fuzz every target, or those named, for some seconds each, guided by coverage; builds the runner first (a quarter of an hour)
fuzz seconds *targets:
    fuzz/libfuzzer/long.sh build
    target/fuzz-long/long.sh run "$@"

# Change the code in a sample of places, and list the changes that no test beside the code notices (needs cargo-mutants)
mutants *args:
    testdata/mutants.py "$@"

# Rebuild the eBPF object (Debian 12; installs what it needs)
ebpf:
    capture/ebpf/build.sh

# Print what a fresh clone, the programs and the packages cost, beside the last baseline (BLESS=1 keeps the numbers as the baseline)
sizes:
    .ci/sizes

# Make wheel, .deb, .rpm and archive in target/packages, and try each in a clean Debian (root; half an hour); a VERSION must be Cargo.toml's
release *version:
    .ci/release "$@"

_release:
    cargo build --release --workspace --bins --examples

# Benchmark `analyze chains` beside DataFusion's scan, on generated runs of up to 100,000,000 events
bench-chains *args: _release
    python3 testdata/bench/chains/bench.py "$@"

# Benchmark every verb that takes a run with 2 GiB of memory, on generated runs of up to 100,000,000 events; goes on where it was interrupted
bench-verbs *args: _release
    python3 testdata/bench/verbs/bench.py "$@"

# Benchmark the interval join beside other engines (Python packages duckdb, polars, numpy)
bench-interval-join *args: _release
    python3 testdata/bench/interval_join/bench.py "$@"

# Benchmark `analyze import kineto` beside Python's readers (Python package ijson)
bench-kineto *args: _release
    python3 testdata/bench/kineto/bench.py "$@"

# Ask `analyze mcp` questions with known answers, by agents without a model (Python package mcp); `--write` keeps results and transcript
bench-mcp *args: _release
    python3 testdata/bench/mcp/bench.py "$@"

# Benchmark the replay of PyTorch's allocator; ORACLE and VIZ are explained in the script
bench-memory oracle viz *args: _release
    python3 testdata/bench/memory/bench.py "$@"

# Benchmark queries beside DuckDB and polars (Python packages duckdb, polars)
bench-queries *args: _release
    python3 testdata/bench/queries/bench.py "$@"

# Benchmark `analyze import torch-snapshot` beside Python's pickle
bench-snapshot *args: _release
    python3 testdata/bench/snapshot/bench.py "$@"

# Score `analyze leaks` on the jobs that testdata/record/leaks.sh recorded into a folder
bench-leaks folder *args: _release
    testdata/bench/leaks/score.py target/release/analyze "$@"

# Record faults with known causes and score the verdicts on them (root)
bench-courtroom *args: build
    sudo target/debug/courtroom "$@"

# Try recorders and verbs under 10,000 injected failures, 300 kills at system calls and 500 at random moments (root); `--out FILE` keeps the counts
crash-test *args: _release
    sudo target/release/crash-test "$@"

# Measure what recording costs on this machine (root)
bench-capture *args: _release
    sudo target/release/capture bench "$@"
