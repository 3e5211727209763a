#!/usr/bin/env bash
# Records the real traces of testdata/ on a machine with an NVIDIA GPU, PyTorch and transformers, as root.
# Usage: testdata/record/record.sh CAPTURE_BINARY OUT_DIR
# Beside each run it leaves what the program itself knew: marks, memory history, the profiler's counts.
set -euo pipefail
capture=$(realpath "$1")
out=$(realpath "$2")
cd "$(dirname "$0")"
core=3
python=${PYTHON:-python3}
export TOKENIZERS_PARALLELISM=false

"$capture" check --json >"$out/check.json" || true
# Warm the page cache and the driver, so that the runs differ by what they are meant to differ by.
CORE=$core "$python" qwen2_generate.py 1 4 >/dev/null 2>&1

CORE=$core "$capture" --out "$out/qwen2-quiet.parquet" -- "$python" qwen2_generate.py 3 64 "$out/qwen2-quiet.marks.json"

hogs=()
for _ in 1 2 3; do
  "$python" cpu_hog.py $core &
  hogs+=($!)
done
sleep 1
CORE=$core "$capture" --out "$out/qwen2-hogs.parquet" -- "$python" qwen2_generate.py 3 64 "$out/qwen2-hogs.marks.json"
kill "${hogs[@]}"
wait "${hogs[@]}" 2>/dev/null || true

"$capture" --out "$out/qwen2-profiled.parquet" -- "$python" qwen2_generate.py 1 8 "$out/qwen2-profiled.marks.json" --profile "$out/qwen2-profiled.kineto.json"
"$python" profiler_counts.py "$out/qwen2-profiled.kineto.json" "$out/qwen2-profiled.marks.json" "$out/qwen2-profiled.counts.json"

PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False "$capture" --out "$out/mixed-7gb.parquet" -- \
  "$python" mixed_7gb.py "$out/mixed-7gb.marks.json" "$out/mixed-7gb.history.json"
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "$capture" --out "$out/mixed-7gb-expandable.parquet" -- \
  "$python" mixed_7gb.py "$out/mixed-7gb-expandable.marks.json" "$out/mixed-7gb-expandable.history.json"

# One way to use the GPU each, with counts from a source of their own. NCCL needs two GPUs.
cc -O2 -fno-omit-frame-pointer -shared -fPIC -o pluggable.so pluggable.c -l:libcuda.so.1
scenarios=(graphs compile malloc_async pluggable shared)
[ "$(nvidia-smi -L | wc -l)" -lt 2 ] || scenarios+=(nccl)
for scenario in "${scenarios[@]}"; do
  [ "$scenario" != malloc_async ] || export PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
  "$capture" --nvml 100ms --out "$out/$scenario.parquet" -- "$python" scenarios.py "$scenario" "$out/$scenario.counts.json"
  unset PYTORCH_CUDA_ALLOC_CONF
done
ls -l "$out"
