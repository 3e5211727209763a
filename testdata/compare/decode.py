"""Decodes token by token with a small transformer, launch-bound, one marked step a token; or the same with a fault.

Usage: decode.py CORE STEPS none|sync|empty_cache

The process is pinned to one core. `sync`: it waits for the GPU twice in every layer, for nothing. `empty_cache`: it gives
PyTorch's cache back after every step.
"""

import os
import socket
import sys

core, steps, fault = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
assert fault in ("none", "sync", "empty_cache"), fault
os.sched_setaffinity(0, {core})

import torch

LAYERS, WIDTH, HEADS = 8, 512, 8


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache):
        q, k, v = self.qkv(self.norm1(x)).view(-1, 3, HEADS, WIDTH // HEADS).unbind(1)
        cache[0] = torch.cat([cache[0], k.unsqueeze(2)], 2)
        cache[1] = torch.cat([cache[1], v.unsqueeze(2)], 2)
        if fault == "sync":
            torch.cuda.synchronize()
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), *cache).flatten(1))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def mark(text):
    path = os.environ.get("INQUEST_MARKS")
    if path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks:
            marks.sendto(text.encode(), path)


torch.manual_seed(0)
with torch.device("cuda"), torch.no_grad():
    layers = [Layer() for _ in range(LAYERS)]
    x = torch.randn(4, WIDTH)
    empty = lambda: torch.zeros(4, HEADS, 0, WIDTH // HEADS)
    caches = [[empty(), empty()] for _ in layers]
    for step in range(steps):
        mark(f"begin step {step}")
        for layer, cache in zip(layers, caches):
            x = layer(x, cache)
            if fault == "sync":
                torch.cuda.synchronize()
        x = x / x.norm()
        if step % 128 == 127:
            caches = [[empty(), empty()] for _ in layers]
        if fault == "empty_cache":
            torch.cuda.empty_cache()
        if step % 16 == 15:
            torch.cuda.synchronize()
        mark(f"end step {step}")
    torch.cuda.synchronize()
print("done")
