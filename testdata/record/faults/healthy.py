"""Runs without a fault: each is bound by what such a job should be bound by."""

import os

import torch
from harness import burn, mlp, trainer, warm_up
from torch.utils.data import DataLoader, Dataset

LAYERS, WIDTH, HEADS = 6, 512, 8


def healthy_compute(run):
    """Bound by the GPU: large matrix products, one kernel after another."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
    warm_up(lambda: torch.mm(a, a, out=out))
    run.figures["bound_by"] = "gpu"
    with run.loop():
        for number in run.each(1500):
            torch.mm(a, a, out=out)
            if number % 100 == 99:
                torch.cuda.synchronize()


def healthy_launch_bound(run):
    """Bound by the host, which launches small kernels as fast as it can."""
    model, batch = mlp(256, 8), torch.randn(32, 256, device="cuda")
    run.figures["bound_by"] = "launches"
    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            for number in run.each(3000):
                model(batch)
                if number % 50 == 49:
                    torch.cuda.synchronize()


class Light(Dataset):
    """Batches that take about 2 ms of CPU each."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        burn(40_000)
        return torch.full((512, 1024), index / 1e5), index


def healthy_training(run):
    """A loader with four workers, which is fast enough, and a checkpoint every 200 steps."""
    step = trainer(model := mlp(1024, 8))
    run.figures["bound_by"] = "training"
    path = os.path.join(run.scratch, f"checkpoint-{os.getpid()}.pt")
    batches = iter(DataLoader(Light(), batch_size=None, num_workers=4, pin_memory=True))
    warm_up(step, next(batches)[0].cuda(non_blocking=True))
    try:
        with run.loop():
            for number in run.each(600):
                loss = step(next(batches)[0].cuda(non_blocking=True))
                if number % 200 == 199:
                    torch.save(model.state_dict(), path)
                    run.figures["loss"] = loss.item()
        run.figures["checkpoint_bytes"] = os.path.getsize(path) if os.path.exists(path) else 0
    finally:
        if os.path.exists(path):
            os.remove(path)
    del batches


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
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), *cache).flatten(1))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


@torch.no_grad()
def healthy_decode(run):
    """A small transformer decodes sequences of 64 tokens, token by token; its cache grows and is dropped after each sequence."""
    run.figures["bound_by"] = "launches"
    torch.manual_seed(0)
    with torch.device("cuda"):
        layers = [Layer() for _ in range(LAYERS)]
        x = torch.randn(4, WIDTH)
        vocabulary = torch.nn.Linear(WIDTH, 32_000)

    def empty():
        return [[torch.zeros(4, HEADS, 0, WIDTH // HEADS, device="cuda") for _ in range(2)] for _ in layers]

    def token(x, caches):
        for layer, cache in zip(layers, caches):
            x = layer(x, cache)
        vocabulary(x).argmax(-1)
        return x / x.norm()

    warm_up(token, x, empty())
    caches = empty()
    with run.loop():
        for number in run.each(320):
            x = token(x, caches)
            if number % 64 == 63:
                caches = empty()
                torch.cuda.synchronize()
