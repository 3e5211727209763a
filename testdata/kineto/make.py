#!/usr/bin/env python3
"""Makes traces as PyTorch's profiler writes them, and says what an import must find in one.

    make.py small                  small.json.gz and, computed from its text by Python's json, small.rows.csv
    make.py rows TRACE[.gz]        the same figures of any trace
    make.py big OUT BYTES          a trace of at least that many bytes, its events in no order
"""

import csv
import gzip
import io
import json
import random
import sys
from decimal import Decimal
from pathlib import Path

BASE = 1_790_857_026_000_000_000
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, {})"
DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset", "cuda_sync": "sync",
          "gpu_user_annotation": "annotation"}


def time(ns):
    """Microseconds with three decimals, as text that no float has touched."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def step(rng, number, ts):
    """Events of one step, as JSON text."""
    def event(ph, cat, name, at, dur=None, pid=4242, tid=4242, **args):
        text = f'"ph": "{ph}", "cat": "{cat}", "name": {json.dumps(name)}, "pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}, "ts": {time(at)}'
        if dur is not None:
            text += f', "dur": {time(dur)}'
        if ph == "i":
            text += ', "s": "t"'
        return "{ " + text + (', "args": ' + json.dumps(args) if args else "") + " }"

    yield event("X", "user_annotation", f"ProfilerStep#{number}", ts, 900_000)
    yield event("X", "gpu_user_annotation", f"ProfilerStep#{number}", ts + 5000, 890_000, 0, 7, **{"External id": number})
    yield event("X", "python_function", f"train.py({number % 50}): forward", ts + 100, 800_000, **{"Python id": number, "Python parent id": None})
    addr = 0x7F00_0000_0000 + (number << 20)
    yield event("i", "cpu_instant_event", "[memory]", ts + 150, **{
        "Total Reserved": 1 << 30, "Total Allocated": (number + 1) << 10, "Bytes": 1024, "Addr": addr, "Device Id": 0, "Device Type": 1})
    yield event("i", "cpu_instant_event", "[memory]", ts + 160, **{
        "Total Reserved": 0, "Total Allocated": 0, "Bytes": -64, "Addr": (1 << 64) - 64 - number, "Device Id": -1, "Device Type": 0})
    for index in range(8):
        at, correlation = ts + 1000 + 100_000 * index, number * 100 + index + 1
        dur = rng.randrange(2000, 60_000)
        yield event("X", "cpu_op", rng.choice(["aten::add", "aten::mm", 'quoted "op" \u00e9']), at, dur + 2000, **{
            "External id": correlation, "Input Dims": [[4, 896], [], [rng.randrange(9)]], "Input type": ["float", "", "Scalar"], "Ev Idx": index})
        function, cat, name, args = [
            ("cudaLaunchKernel", "kernel", KERNEL.format(index), {"grid": [index + 1, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 50}),
            ("cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", {"bytes": rng.randrange(1 << 33)}),
            ("cudaMemsetAsync", "gpu_memset", "Memset (Device)", {"bytes": 4096}),
            ("cuLaunchKernelEx", "kernel", "triton_poi_fused_0", {"grid": [9, 1, 1], "block": [64, 2, 1]}),
        ][rng.choice([0, 0, 0, 1, 2, 3])]
        yield event("X", "cuda_driver" if function.startswith("cu") and function[2] == "L" else "cuda_runtime", function, at + 1000, dur,
                    **{"External id": correlation, "cbid": 211, "correlation": correlation})
        yield event("s", "ac2g", "ac2g", at + 1000)
        yield event("X", cat, name, at + dur + 3000, rng.randrange(800, 50_000), 0, 7, **{
            "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": correlation, **args})
        yield event("f", "ac2g", "ac2g", at + dur + 3000, pid=0, tid=7)
    yield event("X", "cuda_runtime", "cudaDeviceGetAttribute_v2", ts + 850_000, 137, tid=-140_737_000_000_000, correlation=number * 100 + 99)
    yield event("X", "cuda_sync", "Stream Sync", ts + 860_000, 1500, 0, 7, device=0, stream=-1, correlation=number * 100 + 99)
    yield event("X", "overhead", "Activity Buffer Request", ts + 870_000, 250, -1, 0)


def head(out):
    out.write('{\n"schemaVersion": 1,\n"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320}],\n'
              f'"cuda_driver_version": 13000,\n"baseTimeNanoseconds": {BASE},\n"traceEvents": [\n')


def tail(out):
    named = [(4242, 0, "process_name", {"name": "python3"}), (4242, 0, "process_labels", {"labels": "CPU"}),
             (0, 0, "process_name", {"name": "python3"}), (0, 0, "process_labels", {"labels": "GPU 0"}),
             (4242, 4242, "thread_name", {"name": "thread 4242 (trainer)"}), (0, 7, "thread_name", {"name": "stream 7 "})]
    for pid, tid, name, args in named:
        out.write(",\n" + json.dumps({"name": name, "ph": "M", "ts": 0.5, "pid": pid, "tid": tid, "args": args}))
    out.write(',\n{"ph": "X", "cat": "Trace", "ts": 4329410542000.000, "dur": 100.250, "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"}'
              ',\n{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 4329410542101.001}'
              ',\n{"name": "counter", "ph": "C", "cat": "c", "pid": 1, "tid": 1, "ts": 1, "args": {"x": 1}}\n],\n"traceName": "trace.json"\n}\n')


def rows(path):
    """Kind, op, number of rows, and sums that change if any of them does."""
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt") as file:
        trace = json.load(file, parse_float=Decimal)
    base = trace.get("baseTimeNanoseconds", 0)
    found = {}
    for event in trace["traceEvents"]:
        phase, cat, args = event["ph"], event.get("cat", ""), event.get("args", {})
        is_usage = event["name"] == "[memory]" and args.get("Device Type") == 1
        if phase == "X" and cat in ("cuda_runtime", "cuda_driver"):
            key = ("call", event["name"].removesuffix("_v2"))
        elif phase == "X" and cat in DEVICE:
            key = ("device", DEVICE[cat])
        elif phase == "X" and cat == "user_annotation":
            key = ("mark", "range")
        elif phase == "i" and is_usage:
            key = ("alloc", "usage")
        elif phase in "Xi":
            key = ("host", cat or "instant")
        else:
            continue
        sums = found.setdefault(key, [0] * 6)
        size = args.get("bytes", 0) if key[0] == "device" else args.get("Bytes", 0)
        correlation = args.get("correlation", 0) if key[0] in ("call", "device") else 0
        sums[0] += 1
        sums[1] += (base + int(Decimal(event["ts"]) * 1000)) % 1_000_000_007
        sums[2] += int(Decimal(event.get("dur", 0)) * 1000)
        sums[3] += size
        sums[4] += correlation
        sums[5] += args.get("Addr", 0) % 1_000_000_007
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["kind", "op", "n", "ts", "dur_ns", "size_bytes", "correlation", "addr"])
    for key in sorted(found):
        out.writerow([*key, *found[key]])


def main():
    here = Path(__file__).parent
    match sys.argv[1:]:
        case ["small"]:
            rng = random.Random(6)
            events = [event for number in range(40) for event in step(rng, number, 4_329_410_542_873_928 + 1_000_003 * number)]
            rng.shuffle(events)
            text = io.StringIO()
            head(text)
            text.write(",\n".join(events))
            tail(text)
            (here / "small.json.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
            sys.stdout = open(here / "small.rows.csv", "w")
            rows(here / "small.json.gz")
        case ["rows", path]:
            rows(path)
        case ["big", path, size]:
            rng = random.Random(7)
            with open(path, "w") as out:
                head(out)
                number = 0
                while out.tell() < int(size):
                    # As in real traces: one category after the other, not one step after the other.
                    steps = [list(step(rng, number + at, 4_329_410_542_873_928 + 1_000_003 * rng.randrange(1 << 20))) for at in range(1000)]
                    out.write(",\n" if number else "")
                    out.write(",\n".join(event for same in zip(*steps) for event in same))
                    number += 1000
                tail(out)
        case _:
            sys.exit(__doc__)


main()
