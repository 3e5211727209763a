"""One program, changed in one way: without its empty_cache(), with more of them, with a pool of its own for a part."""

import contextlib
import random

import torch
from buffers import begin, buffer, churn, size_of


def changed(state, change):
    begin(state)
    chance, kept = random.Random(11), []
    pool = torch.cuda.MemPool() if change == "mem_pool" else None
    for number in range(16):
        churn(chance, kept, 12)
        if change != "no_empty_cache" and number % 5 == 4:
            torch.cuda.empty_cache()
        state.send("begin evaluate")
        with torch.cuda.use_mem_pool(pool) if pool else contextlib.nullcontext():
            outputs = [buffer(size_of(chance)) for _ in range(12)]
            del outputs[::2]
            outputs += [buffer(size_of(chance)) for _ in range(6)]
        state.send("end evaluate")
        if change == "empty_cache_after":
            torch.cuda.empty_cache()
        del outputs
    state.mark("end", peak_reserved_bytes=torch.cuda.max_memory_reserved())
    kept.clear()
