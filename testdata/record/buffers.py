"""Memory of random sizes, for the programs of memory.py."""

import torch

MIB = 1 << 20


def buffer(size_bytes):
    """Memory and nothing else: no kernel runs."""
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def begin(state):
    """The device's context is there, and nothing else."""
    torch.cuda.init()
    torch.cuda.synchronize()
    state.mark("start")


def size_of(chance):
    kind = chance.random()
    if kind < 0.4:
        return chance.randint(1, MIB)
    if kind < 0.75:
        return chance.randint(MIB, 10 * MIB)
    if kind < 0.97:
        return chance.randint(10 * MIB, 50 * MIB)
    return chance.randint(65 * MIB, 120 * MIB)


def churn(chance, kept, steps):
    for _ in range(steps):
        short = [buffer(size_of(chance)) for _ in range(chance.randint(1, 5))]
        if chance.random() < 0.6:
            kept.append(buffer(size_of(chance)))
        while sum(tensor.nbytes for tensor in kept) > 500 * MIB or kept and chance.random() < 0.3:
            kept.pop(chance.randrange(len(kept)))
        del short
