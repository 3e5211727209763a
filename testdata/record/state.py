"""What a program writes down of its memory, as STATE.json: the process, its settings, and its marks.

Every mark is also sent to the recorder under the same name; it lies after every event of the allocator that came before it and before every one
that comes after it. A mark has `name`, `ts_ns` (CLOCK_MONOTONIC, before it), `end_ns` (after it), `stats` (of torch.cuda.memory_stats),
`free_bytes` and `total_bytes` (of the device), and `segments` without frames:
[address, size, stream, type, is expandable, pool, [[address, size, requested size, state], ...]].
"""

import contextlib
import gc
import json
import os
import socket
import sys
import time

import torch

STATS = [
    *(f"{kind}_bytes.all.current" for kind in ("reserved", "allocated", "active", "inactive_split", "requested")),
    "segment.all.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
]
SETTINGS = ("PYTORCH_", "CUBLAS", "TORCH_CUBLAS", "NCCL_", "CUDA_")
# Between a mark and the allocator's events on either side of it: its time comes through two clocks.
QUIET_S = 0.0003


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class State:
    """The marks of this process, and the file that receives them."""

    def __init__(self, scenario, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.data = {
            "scenario": scenario,
            "pid": os.getpid(),
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(SETTINGS)},
            "marks": [],
        }

    def send(self, text):
        """Tells the recorder, if there is one; its time."""
        time.sleep(QUIET_S)
        ts_ns = now_ns()
        path = os.environ.get("INQUEST_MARKS")
        if path:
            with contextlib.suppress(OSError):
                self.socket.sendto(text.encode(), path)
        return ts_ns

    def mark(self, name, blocks=True, wait=True, **more):
        """What memory is like now. `wait`: for the GPU to have done its work; without, some of it may be under way."""
        collecting = gc.isenabled()
        gc.disable()  # The garbage it finds may be tensors.
        if wait:
            torch.cuda.synchronize()
        mark = {"name": name, "ts_ns": self.send(name)}
        stats = torch.cuda.memory_stats()
        mark["stats"] = {key: stats[key] for key in STATS if key in stats}
        if blocks:
            mark["segments"] = segments()
        mark["free_bytes"], mark["total_bytes"] = torch.cuda.mem_get_info()
        mark |= more
        mark["end_ns"] = now_ns()
        time.sleep(QUIET_S)
        if collecting:
            gc.enable()
        self.data["marks"].append(mark)

    def write(self):
        with open(self.path, "w") as file:
            json.dump(self.data, file, separators=(",", ":"))


def segments():
    """Every segment and block, in the order of their addresses."""
    found = []
    for segment in torch.cuda.memory._snapshot()["segments"]:
        blocks, address = [], segment["address"]
        for block in segment["blocks"]:
            address = block.get("address", address)
            blocks.append([address, block["size"], block["requested_size"], block["state"]])
            address += block["size"]
        found.append(
            [
                segment["address"],
                segment["total_size"],
                segment["stream"],
                segment["segment_type"],
                segment["is_expandable"],
                list(segment["segment_pool_id"]),
                blocks,
            ]
        )
    return sorted(found, key=lambda segment: segment[0])
