#!/usr/bin/env bash
# Records pairs for `analyze align` on a machine with an NVIDIA GPU and PyTorch, as root: a run of `capture`, and the trace that PyTorch's
# profiler made of a part of the same process.
# Usage: testdata/record/record_aligned.sh CAPTURE_BINARY OUT_DIR
# Leaves RUN.parquet, RUN.kineto.json.gz and RUN.truth.json for the runs aligned (default profile), aligned-full and aligned-light, and
# aligned-qwen2 if transformers is there. What fails is named at the end; the rest is recorded all the same.
set -uo pipefail
capture=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")" || exit
python=${PYTHON:-python3}
export TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
failed=()

# record RUN PROFILE PROGRAM ARGUMENT...
record() {
  local run=$1 profile=$2
  shift 2
  echo "== $run"
  if timeout -k 5 180 "$capture" --quiet --force --profile "$profile" --out "$out/$run.parquet" -- "$python" "$@" >"$out/$run.log" 2>&1 &&
    gzip -9f "$out/$run.kineto.json" && [ -s "$out/$run.truth.json" ]; then
    ls -l "$out/$run".*
  else
    tail -n 5 "$out/$run.log"
    failed+=("$run")
  fi
}

for profile in default full light; do
  run=aligned
  [ "$profile" = default ] || run=aligned-$profile
  record "$run" "$profile" record_aligned.py "$out/$run.kineto.json" "$out/$run.truth.json"
done
# Launch-bound, one thread, thousands of equal calls; its marks are on CLOCK_MONOTONIC, too.
if "$python" -c 'import transformers' 2>/dev/null; then
  record aligned-qwen2 default qwen2_generate.py 1 8 "$out/aligned-qwen2.truth.json" --profile "$out/aligned-qwen2.kineto.json"
fi
[ ${#failed[@]} -eq 0 ] || { printf 'FAILED: %s\n' "${failed[@]}"; exit 1; }
