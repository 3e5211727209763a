#!/usr/bin/env bash
# Records how memory is held, in small programs of memory.py, on a machine with an NVIDIA GPU and PyTorch, as root.
# Usage: testdata/record/record_memory.sh CAPTURE_BINARY OUT_DIR [RUN...]     (RUN: only these)
# Leaves RUN.parquet and RUN.state.json each. What fails is named at the end; the rest is recorded all the same.
set -uo pipefail
capture=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shift 2
only=" $* "
cd "$(dirname "$0")" || exit
python=${PYTHON:-python3}
export TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
failed=()

wanted() { [ "$only" = "  " ] || [[ $only == *" $1 "* ]]; }

# record RUN SCENARIO [SEED] [-- FLAG...]
record() {
  local run=$1 words=("$2") status start=$SECONDS
  wanted "$run" || return 0
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  echo "== $run"
  timeout -k 5 90 "$capture" --quiet --force --nvml 100ms "$@" --out "$out/$run.parquet" -- \
    "$python" ${perf[@]+"${perf[@]}"} memory.py "${words[0]}" "$out/$run.state.json" "${words[@]:1}" >"$out/$run.log" 2>&1
  status=$?
  tail -n 4 "$out/$run.log"
  if [ $status -eq 0 ] && [ -s "$out/$run.parquet" ] && [ -s "$out/$run.state.json" ]; then
    grep -v '^capture:' "$out/$run.log" | grep -q . || rm "$out/$run.log"
    echo "   $((SECONDS - start)) s"
  else
    failed+=("$run (status $status)")
  fi
}

cc -O2 -fno-omit-frame-pointer -shared -fPIC -o pluggable.so pluggable.c -l:libcuda.so.1 || failed+=("building pluggable.so")
# Python functions have names in stacks if Python may write them down.
perf=()
with_names=()
"$python" -X perf -c pass 2>/dev/null && with_names=(-X perf)

record plain plain
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True record expandable plain
PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,roundup_power2_divisions:4 record settings plain
record crowded crowded
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True record crowded-expandable crowded
record fallback plain -- --without record_trace
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True record fallback-expandable plain -- --without record_trace
record history history
record graphs-memory graphs
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True record graphs-memory-expandable graphs
record streams streams
PYTORCH_ALLOC_CONF=expandable_segments:True record streams-expandable streams
record examples examples
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True record examples-expandable examples
perf=(${with_names[@]+"${with_names[@]}"})
record generate generate -- --stacks alloc
record leak leak 1 -- --stacks alloc
record no_leak no_leak 1 -- --stacks alloc
perf=()
record pause pause
record lent lend
record sleep sleep
for change in none no_empty_cache empty_cache_after mem_pool; do
  record "changed-$change" changed "$change"
done
record process process
rm -f "$out"/process.child.state.json.{ready,stop}

if wanted neighbour; then
  NEIGHBOUR=$out/neighbour.other.state.json
  export NEIGHBOUR
  rm -f "$NEIGHBOUR".*
  ("$python" memory.py hold "$NEIGHBOUR" >"$out/neighbour.other.log" 2>&1; touch "$NEIGHBOUR.gone") &
  other=$!
  record neighbour neighbour
  touch "$NEIGHBOUR.stop"
  wait "$other"
  rm -f "$NEIGHBOUR".*
  [ -s "$out/neighbour.other.log" ] || rm -f "$out/neighbour.other.log"
fi

ls -l "$out"
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all recorded in $SECONDS s"
