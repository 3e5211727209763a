"""Makes a profiler's trace of a captured run's own calls, on a clock of which all is known: for tests of `analyze align`.

Usage: make.py ANALYZE RUN.parquet OUT.kineto.json.gz TRUTH.json [--other]

The calls are those that the run has between two times, as PyTorch's profiler would have them: within those of the runtime's library that the
recorder saw from outside, around those of which it saw the driver's alone. Some are left out, and calls that no recorder knows are added; each
launch has a kernel, each synchronisation of a stream a copy that it waits for. The clock has another zero and is 12.5 ppm slow. `--other`: as if it
were another run of the program, each gap as long as in this one, but for a tenth.
"""

import csv
import gzip
import io
import json
import random
import subprocess
import sys

# What a profiler's time of day may be off.
WALL_DIFFERENCE_NS = 1_234_567
DRIFT_PPM = 12.5
QUERY = """
SELECT op, ts, dur, pid, tid, nested_in FROM ops
WHERE ts BETWEEN 168294731452 AND 168485812456 AND dur IS NOT NULL AND (depth = 0 OR nested_in LIKE 'cudaGraph%') ORDER BY ts
"""
AROUND = {"cuLaunchKernel": "cudaLaunchKernel", "cuMemsetD8Async": "cudaMemsetAsync"}


def main():
    analyze, run, out, truth = sys.argv[1:5]
    rng = random.Random(7)
    text = subprocess.run([analyze, "sql", run, QUERY, "--format", "csv"], check=True, capture_output=True, text=True)
    calls = [
        (row["op"], int(row["ts"]), int(row["dur"]), int(row["pid"]), int(row["tid"]))
        for row in csv.DictReader(io.StringIO(text.stdout))
    ]
    info = subprocess.run([analyze, "info", "--json", run], check=True, capture_output=True, text=True)
    offset = json.loads(info.stdout)[0]["provenance"]["clock"]["wall_offset_ns"] + WALL_DIFFERENCE_NS
    if "--other" in sys.argv:
        moved, now, last = [], calls[0][1], calls[0][1]
        for op, ts, dur, pid, tid in calls:
            now += round((ts - last) * rng.uniform(0.9, 1.1))
            moved.append((op, now, dur, pid, tid))
            last = ts
        calls = moved
    middle = (calls[0][1] + calls[-1][1]) // 2

    def theirs(ts):
        return ts + offset - round((ts - middle) * DRIFT_PPM / 1e6)

    base = theirs(calls[0][1]) - 1_000_000_000
    events, free, number, copy = [], 0, 0, 0

    def event(category, name, start, end, pid, tid, **args):
        since = theirs(start) - base
        ts = f"{since // 1000}.{since % 1000:03d}"
        dur = f"{(theirs(end) - theirs(start)) / 1000:.3f}"
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args}
        events.append(json.dumps(event)[:-1] + f', "ts": {ts}, "dur": {dur}}}')

    matchable = 0
    ends = [ts for _, ts, *_ in calls[1:]] + [calls[-1][1] + calls[-1][2]]
    for (op, ts, dur, pid, tid), next_ts in zip(calls, ends):
        end, number = ts + dur, number + 1
        if rng.random() < 0.002:
            continue
        matchable += 1
        name = AROUND.get(op, op)
        if op == "cuLaunchKernelEx" and rng.random() < 0.1:
            name = "cudaLaunchKernelExC"
        if name == op:
            start, stop = ts + rng.randint(700, 1400), end - rng.randint(200, 700)
            start, stop = (start, stop) if start < stop else (ts + dur // 3, end - dur // 3)
        else:
            start, stop = ts - rng.randint(600, 1300), end + rng.randint(400, 900)
        kind = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        event(kind, name, start, stop, pid, tid, correlation=number)
        if "Launch" in name:
            free = max(end + rng.randint(2_000, 6_000), free + 900)
            took = rng.randint(1_500, 9_000)
            event("kernel", "gemm" if rng.random() < 0.3 else "elementwise", free, free + took, 0, 7, device=0, stream=7,
                  correlation=number, grid=[64, 1, 1], block=[128, 1, 1])  # fmt: skip
            free += took
        copy = number if op == "cudaMemcpyAsync" else copy
        if op == "cudaStreamSynchronize":
            # What it waits for: the copy before it, which is done shortly before it returns.
            begin = max(free, ts - 5_000)
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin, end - 2_000, 0, 7, device=0, stream=7, bytes=32, correlation=copy)
            free = end - 2_000
        if rng.random() < 0.1 and next_ts > end + 4_000:
            event("cuda_runtime", "cudaStreamIsCapturing", end + 1_500, end + 1_900, pid, tid, correlation=number + 1_000_000)
    first, last = calls[0], calls[-1]
    event("user_annotation", "inquest span", first[1] - 100_000, last[1] + last[2] + 50_000, first[3], first[4])
    event("cpu_op", "aten::empty", first[1] - 90_000, first[1] - 40_000, first[3], first[4])
    rng.shuffle(events)
    head = f'{{"schemaVersion": 1, "baseTimeNanoseconds": {base}, "traceEvents": [\n'
    with open(out, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
        packed.write((head + ",\n".join(events) + "\n]}\n").encode())
    with open(truth, "w") as file:
        json.dump({"origin_ns": theirs(middle), "offset_ns": -offset, "drift_ppm": DRIFT_PPM, "calls_count": matchable}, file)
        file.write("\n")


main()
