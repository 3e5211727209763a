"""Counts the CUDA calls that PyTorch's profiler saw inside the annotated span of qwen2_generate.py --profile.

Usage: profiler_counts.py KINETO.json MARKS.json COUNTS.json
"""

import collections
import json
import sys

with open(sys.argv[1]) as file:
    events = json.load(file)["traceEvents"]
with open(sys.argv[2]) as file:
    mark = next(mark for mark in json.load(file) if mark["name"] == "profiled")
span = next(e for e in events if e.get("cat") == "user_annotation" and e["name"] == "inquest span")
inside = [
    e["name"]
    for e in events
    if e.get("cat") in ("cuda_runtime", "cuda_driver") and span["ts"] <= e["ts"] <= span["ts"] + span["dur"]
]
counts = dict(sorted(collections.Counter(inside).items()))
with open(sys.argv[3], "w") as file:
    json.dump({"start_ns": mark["start_ns"], "end_ns": mark["end_ns"], "counts": counts}, file, indent=1)
