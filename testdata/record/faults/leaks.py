"""Leaks: in each step of the fault, 2 MiB or more of the GPU's memory stay in use for ever. No twin keeps any."""

import ctypes

from harness import MIB, burn, mlp, warm_up

STEPS, LEAK_BYTES = 300, 2 * MIB
# A cache that lives as long as the module.
CACHE = {}


def leak_list(run):
    import torch

    run.plant(kept_in="list", bytes_a_step=LEAK_BYTES, library="torch")
    model, batch, outputs = mlp(1024, 3), torch.randn(512, 1024, device="cuda"), []
    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            for _ in run.each(STEPS):
                output = model(batch)
                if run.fault:
                    outputs.append(output)
                burn(40_000)


def leak_graph(run):
    """The sum of the losses keeps every step's graph, for want of `no_grad` and `detach`."""
    import torch

    run.plant(kept_in="autograd graph", cause="loss without detach", library="torch")
    model, batch = mlp(1024, 3), torch.randn(256, 1024, device="cuda")
    total = torch.zeros((), device="cuda")
    with torch.no_grad():
        warm_up(model, batch)
    with torch.set_grad_enabled(run.fault), run.loop():
        for _ in run.each(STEPS):
            total = total + model(batch).square().mean()
            burn(40_000)


def leak_cache(run):
    """A dictionary of the module remembers the features of every batch under a key that never comes again."""
    import torch

    run.plant(kept_in="dict", bytes_a_step=LEAK_BYTES, library="torch")
    model, batch = mlp(1024, 3), torch.randn(512, 1024, device="cuda")

    def features(key):
        if key not in CACHE:
            CACHE[key] = model(batch)
        return CACHE[key].mean()

    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            for number in run.each(STEPS):
                features(number if run.fault else 0)
                if not run.fault:
                    CACHE.clear()
                burn(40_000)


def leak_hooks(run):
    """Every tenth step registers a hook that owns 16 MiB; only the twin removes it."""
    import torch

    run.plant(kept_in="forward hook", bytes_a_step=16 * MIB // 10, library="torch")
    model, batch = mlp(512, 2), torch.randn(64, 512, device="cuda")

    def register():
        statistics = torch.zeros(4 * MIB, device="cuda")

        def hook(_module, _inputs, output):
            statistics[: output.shape[1]] += output.mean(0)

        return model.register_forward_hook(hook)

    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            handle = None
            for number in run.each(STEPS):
                if number % 10 == 0:
                    if handle is not None and not run.fault:
                        handle.remove()
                    handle = register()
                model(batch)
                burn(40_000)


def leak_workers(run):
    """Each epoch makes a loader with persistent workers; the fault keeps all of them, with the batches that they hold on the GPU."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    run.plant(kept_in="persistent workers", workers_an_epoch=2, bytes_an_epoch=40 * MIB, library="torch")
    model = mlp(512, 2)
    data, kept = TensorDataset(torch.randn(640, 512)), []
    with torch.no_grad(), run.loop():
        for _ in run.each(6):
            loader = DataLoader(data, batch_size=64, num_workers=2, pin_memory=True, persistent_workers=True)
            staging = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
            for (batch,) in loader:
                model(batch.cuda(non_blocking=True))
            if run.fault:
                kept.append((loader, staging))
            del loader, staging


def leak_cupy(run):
    import cupy

    run.plant(kept_in="list", bytes_a_step=LEAK_BYTES, library="cupy")
    kept = []
    for _ in range(5):
        cupy.zeros(LEAK_BYTES, dtype=cupy.uint8)
    cupy.cuda.Device().synchronize()
    with run.loop():
        for _ in run.each(STEPS):
            array = cupy.zeros(LEAK_BYTES, dtype=cupy.uint8)
            if run.fault:
                kept.append(array)
            burn(60_000)
        cupy.cuda.Device().synchronize()
    run.figures["used_bytes"] = cupy.get_default_memory_pool().used_bytes()


def leak_jax(run):
    import jax
    import jax.numpy as jnp

    run.plant(kept_in="list", bytes_a_step=LEAK_BYTES, library="jax")
    step = jax.jit(lambda x: x * 1.5 + 1)
    kept, x = [], jnp.zeros((512, 1024), jnp.float32)
    step(x).block_until_ready()
    with run.loop():
        for _ in run.each(STEPS):
            output = step(x)
            if run.fault:
                kept.append(output)
            burn(60_000)
        output.block_until_ready()


def runtime():
    """The CUDA runtime that PyTorch has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/libcudart.so" in line}
    library = ctypes.CDLL(sorted(paths)[0])
    library.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
    library.cudaFree.argtypes = [ctypes.c_void_p]
    return library


def leak_cuda_malloc(run):
    """An extension allocates its workspace by cudaMalloc in every step; only the twin frees it."""
    import torch

    run.plant(kept_in="cudaMalloc", bytes_a_step=LEAK_BYTES, library="an extension")
    model, batch = mlp(512, 2), torch.randn(64, 512, device="cuda")
    cuda = runtime()
    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            for _ in run.each(STEPS):
                address = ctypes.c_void_p()
                status = cuda.cudaMalloc(ctypes.byref(address), LEAK_BYTES)
                assert status == 0, f"cudaMalloc returned {status}"
                model(batch)
                burn(40_000)
                if not run.fault:
                    status = cuda.cudaFree(address)
                    assert status == 0, f"cudaFree returned {status}"


def leak_cudamallocasync(run):
    """As `leak_list`, with PyTorch's backend cudaMallocAsync, which plan.py chooses."""
    import torch

    leak_list(run)
    run.figures["backend"] = torch.cuda.get_allocator_backend()
