"""Programs that run out of memory."""

import contextlib
import random

import torch
from buffers import MIB, begin, buffer, churn


# Random sizes under a budget, cache emptied in between, out of memory, and on.


def plain(state, budget_bytes=2500 * MIB):
    begin(state)
    _, total_bytes = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(budget_bytes / total_bytes)
    state.data["budget_bytes"] = budget_bytes
    chance, kept = random.Random(7), []

    def phase(name):
        churn(chance, kept, 40)
        state.mark(name)
        torch.cuda.empty_cache()
        state.mark(f"{name}, cache emptied")

    for number in range(3):
        phase(f"phase {number}")
    hoard = []
    with contextlib.suppress(torch.OutOfMemoryError):
        while True:
            hoard.append(buffer(9 * MIB))
    state.mark("full")
    del hoard[::2]
    state.mark("every other given back")
    wanted, got = 200 * MIB, None
    with contextlib.suppress(torch.OutOfMemoryError):
        got = buffer(wanted)
    state.mark("out of memory, though much is free", wanted_bytes=wanted, got=got is not None)
    got = None
    hoard.clear()
    got = buffer(wanted)
    state.mark("there is room again")
    got = None
    phase("phase 3")
    state.mark("before the end")
    kept.clear()
    state.mark("all given back")
    torch.cuda.empty_cache()
    state.mark("end")


def crowded(state):
    """The whole device in pairs of blocks, one of each given back: half of it is free, and no gigabyte of that in one piece."""
    begin(state)
    pairs = []
    with contextlib.suppress(torch.OutOfMemoryError):
        while True:
            buffer(600 * MIB)  # Comes as one segment and is free at once.
            pairs.append([buffer(300 * MIB), buffer(300 * MIB)])
    state.mark("full")
    for pair in pairs:
        pair.pop()
    state.mark("every other given back")
    got = None
    with contextlib.suppress(torch.OutOfMemoryError):
        got = buffer(1 << 30)
    state.mark("a gigabyte was wanted", got=got is not None)
    del got
    pairs.clear()
    torch.cuda.empty_cache()
    state.mark("end")
