#!/usr/bin/env bash
# Records runs to compare on a machine with a GPU: ROUNDS of the unchanged workload, thrice, and of each fault, once; in
# turn, so that a drift of the machine falls on all alike.
# Usage: record.sh CAPTURE FOLDER ROUNDS (root)
set -euo pipefail
capture=$1 out=$2 rounds=$3
here=$(cd "$(dirname "$0")" && pwd)
core=5 steps=900
mkdir -p "$out"
one() { # NAME FAULT
  "$capture" --quiet --force --out "$out/$1.parquet" -- python3 "$here/decode.py" $core $steps "$2" >/dev/null
}
for round in $(seq -w 1 "$rounds"); do
  for part in a b c; do one "none-$round$part" none; done
  python3 "$here/../record/cpu_hog.py" $core & hog=$!
  sleep 0.2
  one "hog-$round" none
  kill $hog; wait $hog 2>/dev/null || true
  one "sync-$round" sync
  one "empty_cache-$round" empty_cache
done
