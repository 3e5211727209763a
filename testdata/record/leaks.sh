#!/usr/bin/env bash
# Records many made-up jobs, each with a leak and without, on a machine with an NVIDIA GPU and PyTorch, as root.
# Usage: testdata/record/leaks.sh CAPTURE_BINARY OUT_DIR SEEDS [JOBS_AT_ONCE]
# Leaves leak-SEED.parquet, no_leak-SEED.parquet and their .state.json. Most of a job's time is the import of PyTorch, so several run at once.
set -uo pipefail
capture=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
seeds=$3
jobs=${4:-8}
cd "$(dirname "$0")" || exit
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
export capture out python
perf=
"$python" -X perf -c pass 2>/dev/null && perf="-X perf"
export perf

one() {
  local run=$1-$2
  # shellcheck disable=SC2086
  timeout -k 5 120 "$capture" --quiet --force --nvml off --buffer 16MiB --stacks alloc --out "$out/$run.parquet" -- \
    "$python" $perf memory.py "$1" "$out/$run.state.json" "$2" >"$out/$run.log" 2>&1 && [ -s "$out/$run.state.json" ] ||
    { echo "FAILED: $run: $(tail -n 1 "$out/$run.log")"; return 1; }
  # Only what was lost is worth keeping.
  grep -q ' 0 lost' "$out/$run.log" && rm "$out/$run.log"
}
export -f one

for seed in $(seq 1 "$seeds"); do
  echo "leak $seed"
  echo "no_leak $seed"
done | xargs -P "$jobs" -L 1 bash -c 'one "$0" "$1"'
status=$?
echo "$(find "$out" -name '*leak-*.parquet' | wc -l) of $((2 * seeds)) recorded in $SECONDS s, $(du -sh "$out" | cut -f 1)"
exit $status
