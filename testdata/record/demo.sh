#!/usr/bin/env bash
# Cuts the recordings that `analyze demo` has beside those of other folders: a part of round 1 of h200/qwen2-hogs and of h200/qwen2-quiet.
#
# Usage: demo.sh ANALYZE OUT
set -euo pipefail
analyze=$1 out=$2
runs=$(cd "$(dirname "$0")/../h200" && pwd)
# Times are since the recording began; the rounds are in the .marks.json beside the runs.
"$analyze" slice "$runs/qwen2-hogs.parquet" --from 34481262068ns --to 35481262068ns --out "$out/hog.parquet"
"$analyze" slice "$runs/qwen2-quiet.parquet" --from 18488448707ns --to 18768448707ns --out "$out/healthy.parquet"
