"""Long-lived buffers among short-lived ones under a budget of about 7 GB, ending out of memory.

Usage: mixed_7gb.py [MARKS.json [HISTORY.json]]
HISTORY.json receives PyTorch's own memory history: every allocator event as [action, address, size].
"""

import json
import random
import sys
import time

import torch

STEPS = 400
BUDGET_RATIO = 0.05
SHORT_BYTES = [300_000, 700_000, 1_500_000, 3_000_000, 9_000_000, 11_000_000, 25_000_000, 64_000_000]


def buffer(size_bytes):
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def main():
    marks_path = sys.argv[1] if len(sys.argv) > 1 else None
    history_path = sys.argv[2] if len(sys.argv) > 2 else None
    chance = random.Random(7)
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    torch.cuda.set_per_process_memory_fraction(BUDGET_RATIO)
    marks = []

    def mark(name):
        torch.cuda.synchronize()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        marks.append(
            {
                "name": name,
                "ts_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
                "allocated_bytes": torch.cuda.memory_allocated(),
                "reserved_bytes": torch.cuda.memory_reserved(),
                "requested_bytes": torch.cuda.memory_stats()["requested_bytes.all.current"],
                "device_free_bytes": free_bytes,
                "device_total_bytes": total_bytes,
            }
        )

    mark("start")
    kept = []
    for step in range(STEPS):
        limit = chance.choice(SHORT_BYTES)
        short = [buffer(chance.randint(1_000, limit)) for _ in range(chance.randint(1, 12))]
        if chance.random() < 0.5:
            kept.append(buffer(chance.randint(200_000, 30_000_000)))
        if kept and chance.random() < 0.35:
            kept.pop(chance.randrange(len(kept)))
        del short
        if step % 100 == 99:
            mark(f"step {step}")
            torch.cuda.empty_cache()
            mark(f"step {step}, cache emptied")
    hoard = []
    try:
        while True:
            hoard.append(buffer(700_000_000))
    except torch.OutOfMemoryError as error:
        print("out of memory:", str(error).splitlines()[0][:200])
    mark("out of memory")
    hoard.clear()
    torch.cuda.empty_cache()
    mark("end")

    if history_path:
        snapshot = torch.cuda.memory._snapshot()
        # An out-of-memory entry has the device's free bytes in the place of an address, as its event has.
        events = [
            [e["action"], e["device_free"] if e["action"] == "oom" else e["addr"], e["size"]]
            for trace in snapshot["device_traces"]
            for e in trace
        ]
        with open(history_path, "w") as file:
            json.dump(events, file)
    if marks_path:
        with open(marks_path, "w") as file:
            json.dump(marks, file)


main()
