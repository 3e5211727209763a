#!/usr/bin/env bash
# Fuzzes every target for hours, guided by coverage.
#
#   fuzz/libfuzzer/long.sh build                     builds target/fuzz-long: the runner, the seeds, and this script
#   target/fuzz-long/long.sh run SECONDS [TARGET…]   runs the targets, as many at once as there are processors
#
# The folder can be carried to any Linux on x86-64 with glibc: nothing else is needed there. What a run finds stays in it:
# corpus/TARGET grows from run to run; results/TARGET.log is libFuzzer's log; results/summary.tsv has a line a target, with
# executions, coverage (branches, features), inputs, and findings; results/findings/TARGET-… are the inputs that are findings.
set -euo pipefail

usage() {
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

build() {
  local root here out
  root=$(cd "$(dirname "$0")/../.." && pwd)
  here=$root/fuzz/libfuzzer
  out=$root/target/fuzz-long
  # What is fuzzed has the versions of the dependencies that are built.
  cp "$root/Cargo.lock" "$here/Cargo.lock"
  RUSTC_WRAPPER=$here/rustc.sh cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "$root/target/libfuzzer"
  rm -rf "$out/seeds"
  mkdir -p "$out"
  cargo run --quiet --manifest-path "$root/Cargo.toml" --bin inquest-fuzz -- seeds "$out/seeds"
  cp "$root/target/libfuzzer/release/inquest-libfuzzer" "$here/long.sh" "$out/"
  echo "built $out: $out/long.sh run SECONDS"
}

# One target; its name is the argument.
fuzz() {
  local name=$1
  mkdir -p "corpus/$name" "$SCRATCH/$name"
  # In a process of its own (-fork), which is started anew after a finding.
  TMPDIR=$SCRATCH/$name timeout -k 60 $((SECONDS_EACH + 900)) ./inquest-libfuzzer "--target=$name" -fork=1 \
    -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1 -timeout=10 -rss_limit_mb=2560 -max_len=262144 \
    "-max_total_time=$SECONDS_EACH" "-artifact_prefix=results/findings/$name-" "corpus/$name" "seeds/$name" \
    >"results/$name.log" 2>&1 || true
  echo "$name: $(grep '^#[0-9]*: cov: ' "results/$name.log" | tail -1)"
}

run() {
  [ $# -ge 1 ] || usage
  cd "$(dirname "$0")"
  [ -x inquest-libfuzzer ] || { echo "$(pwd) has no runner: fuzz/libfuzzer/long.sh build" >&2; exit 2; }
  export SECONDS_EACH=$1
  shift
  [ $# -gt 0 ] || set -- $(ls seeds)
  mkdir -p results/findings
  SCRATCH=$(mktemp -d /dev/shm/inquest-fuzz.XXXXXX 2>/dev/null || mktemp -d)
  export SCRATCH
  trap 'rm -rf "$SCRATCH"' EXIT
  export -f fuzz
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz "$1"' _ '{}'
  {
    printf 'target\texecutions\tbranches\tfeatures\tinputs\tout_of_memory\ttimeouts\tcrashes\n'
    for name in "$@"; do
      # #1234: cov: 5 ft: 6 corp: 7 exec/s: 8 oom/timeout/crash: 0/0/0 time: 9s job: 1 dft_time: 0
      grep '^#[0-9]*: cov: ' "results/$name.log" | tail -1 | awk -v OFS='\t' -v name="$name" '
        { sub("#", "", $1); sub(":", "", $1); split($11, found, "/"); print name, $1, $3, $5, $7, found[1], found[2], found[3] }'
    done
  } >results/summary.tsv
  column -t -s "$(printf '\t')" results/summary.tsv 2>/dev/null || cat results/summary.tsv
  [ -z "$(ls results/findings)" ] || { echo "findings:"; ls results/findings; exit 1; }
}

case "${1:-}" in
  build) build ;;
  run) shift && run "$@" ;;
  *) usage ;;
esac
