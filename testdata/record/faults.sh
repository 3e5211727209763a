#!/usr/bin/env bash
# Records planted faults and their healthy twins (faults/plan.py) on a machine with an NVIDIA GPU and PyTorch, as root.
# Usage: testdata/record/faults.sh CAPTURE_BINARY OUT_DIR [OPTION OF faults/run.py]...
# Leaves NAME.fault.parquet, NAME.twin.parquet, NAME.VARIANT.log and summary.json. What fails is named in the output; the rest is recorded all
# the same.
set -uo pipefail
export PYTHONDONTWRITEBYTECODE=1
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
exec "${PYTHON:-python3}" "$(dirname "$0")/faults/run.py" "$@"
