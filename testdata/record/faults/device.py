"""Faults in how a program uses the GPU: synchronisations, copies, small kernels, compilation, the allocator's cache."""

import os

import torch
from harness import MIB, burn, mlp, warm_up


def work_of(size, times):
    """A function that keeps the GPU busy with matrix products, and launches few kernels for it."""
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def work():
        for _ in range(times):
            torch.mm(a, a, out=out)
        return out

    return work


def item_each_step(run):
    """The host prepares a step while the GPU computes the one before, unless it reads the loss in each step."""
    run.plant(call="Tensor.item", calls_a_step=1)
    work = work_of(4096, 8)
    warm_up(work)
    losses = []
    with torch.no_grad(), run.loop():
        for _ in run.each(500):
            burn(40_000)
            loss = work()[0, 0]
            losses.append(loss.item() if run.fault else loss)
        torch.stack(losses[-2:]).sum().item() if not run.fault else None


def pageable_copies(run):
    """Each step copies 64 MiB to the GPU: from pageable memory, or from pinned memory and asynchronously."""
    run.plant(call="Tensor.copy_", direction="HtoD", memory="pageable", bytes_a_step=64 * MIB)
    host = [torch.zeros(64 * MIB, dtype=torch.uint8, pin_memory=not run.fault) for _ in range(2)]
    device = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    work = work_of(4096, 4)

    def step(number):
        device.copy_(host[number % 2], non_blocking=not run.fault)
        work()

    warm_up(step, 0)
    warm_up(step, 1)
    with run.loop():
        for number in run.each(250):
            step(number)


def copies_back(run):
    """Each step copies its result of 32 MiB to the host, where the twin keeps it on the GPU and copies the last one."""
    run.plant(call="Tensor.cpu", direction="DtoH", memory="pageable", bytes_a_step=32 * MIB)
    work = work_of(4096, 4)
    warm_up(lambda: work().cpu())
    with run.loop():
        for _ in run.each(200):
            result = work()
            if run.fault:
                result = result.cpu()
        result.cpu()


def tiny_kernels(run):
    """A tensor is updated row by row, each row by a kernel of its own; the twin updates all of it by one."""
    run.plant(call="Tensor.add_", kernels_a_step=1024, instead_of=1)
    rows, change = torch.zeros(1024, 256, device="cuda"), torch.ones(1024, 256, device="cuda")
    pairs = list(zip(rows.unbind(0), change.unbind(0)))

    def step():
        if run.fault:
            for row, difference in pairs:
                row.add_(difference, alpha=0.1)
        else:
            rows.add_(change, alpha=0.1)

    warm_up(step, times=2)
    with run.loop():
        for _ in run.each(60):
            burn(100_000)
            step()


def recompilation(run):
    """Each of six batch sizes is compiled anew in the loop; the twin pads its batches to one size."""
    import torch._dynamo

    # PyTorch 2.6 renamed the limit after which a function is no longer compiled anew.
    for limit in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 64)
            break
    model = mlp(256, 2)

    def forward(batch):
        return torch.nn.functional.gelu(model(batch) * 2 + 1).softmax(-1).sum()

    compiled = torch.compile(forward, dynamic=False)
    sizes = [64, 56, 48, 40, 32, 24]
    batches = [torch.randn(size if run.fault else 64, 256, device="cuda") for size in sizes]
    run.plant(call="torch.compile", shapes=len(sizes), compiled_in_loop=len(sizes) - 1)
    with torch.no_grad():
        warm_up(compiled, batches[0], times=3)
        with run.loop():
            for number in run.each(300):
                compiled(batches[number // 10 % len(sizes)])
                burn(40_000)
    run.figures["cache"] = os.environ.get("TORCHINDUCTOR_CACHE_DIR")


def limit_memory(limit_bytes):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit_bytes / total, 0)


def alloc_retries(run):
    """Sizes grow from step to step under a limit of 6 GiB, so that no cached segment fits; the twin begins with the largest size."""
    run.plant(limit_bytes=6 << 30, cause="cudaMalloc retries")
    limit_memory(6 << 30)
    steps, parts = run.count(400), 4
    largest = (64 + 2 * steps) * MIB

    def step(size):
        kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(parts)]
        for block in kept:
            block[:MIB].zero_()

    step(64 * MIB if run.fault else largest)
    with run.loop():
        for number in run.each(400):
            burn(20_000)
            step((64 + 2 * number) * MIB)
    memory = torch.cuda.memory_stats()
    run.figures.update(num_alloc_retries=memory["num_alloc_retries"], num_device_alloc=memory.get("num_device_alloc"))


def empty_cache(run):
    """Each step returns the cache to the driver, and the next one asks for it again."""
    run.plant(call="torch.cuda.empty_cache", calls_a_step=1)

    def step():
        kept = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(6)]
        for block in kept:
            block[:MIB].zero_()
        burn(20_000)

    warm_up(step)
    with run.loop():
        for _ in run.each(250):
            step()
            if run.fault:
                torch.cuda.empty_cache()
