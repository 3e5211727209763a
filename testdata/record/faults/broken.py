"""Runs that end badly: out of memory, a hang, a device assertion."""

import os
import signal
import threading

import torch
from device import limit_memory
from harness import MIB, burn, mlp, trainer, warm_up


def train(run, step, batch, steps):
    for _ in run.each(steps):
        step(batch)
        burn(40_000)


def fragmentation_oom(run):
    """Of 900 blocks of 4 MiB under a limit of 4 GiB, one of five stays: one in each segment, or all of them side by side. Then 1 GiB is asked for."""
    limit_memory(4 << 30)
    step, batch = trainer(mlp()), torch.randn(64, 512, device="cuda")
    warm_up(step, batch)
    with run.loop():
        train(run, step, batch, 200)
        blocks = [torch.empty(4 * MIB, dtype=torch.uint8, device="cuda") for _ in range(900)]
        kept = blocks[::5] if run.fault else blocks[:180]
        del blocks
        run.plant(cause="fragmentation", asked_bytes=1 << 30, limit_bytes=4 << 30, kept_bytes=180 * 4 * MIB)
        run.figures["reserved_bytes"] = torch.cuda.memory_reserved()
        asked = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        train(run, step, batch, 50)
        del kept, asked


def neighbour_oom(run):
    """Asks for 50 GiB, of which the device has enough unless another process, which the runner starts, holds 100 GiB."""
    step, batch = trainer(mlp()), torch.randn(64, 512, device="cuda")
    warm_up(step, batch)
    free, total = torch.cuda.mem_get_info()
    run.figures.update(free_bytes=free, total_bytes=total)
    run.plant(cause="neighbour", process="neighbour", neighbour_bytes=100 << 30)
    kept = []
    with run.loop():
        train(run, step, batch, 100)
        for _ in range(5):
            kept.append(torch.empty(10 << 30, dtype=torch.uint8, device="cuda"))
            train(run, step, batch, 20)


def hang(run):
    """A kernel that spins for about 20 s; after 5 s of it the process is killed, in its synchronisation. The twin's spins for a millisecond."""
    step, batch = trainer(mlp()), torch.randn(64, 512, device="cuda")
    warm_up(step, batch)

    def kill():
        run.say(ended_by="SIGKILL")
        os.kill(os.getpid(), signal.SIGKILL)

    run.plant(call="torch.cuda.synchronize", killed_after_s=5)
    with run.loop():
        train(run, step, batch, 200)
        if run.fault:
            threading.Timer(5, kill).start()
        torch.cuda._sleep(40_000_000_000 if run.fault else 2_000_000)
        torch.cuda.synchronize()
        train(run, step, batch, 50)


def device_assert(run):
    """An index beyond the end of an embedding, in one of the steps; the error comes with the next synchronisation."""
    run.plant(cause="index out of bounds", code=710, status="cudaErrorAssert")
    table = torch.nn.Embedding(1000, 64, device="cuda")
    model = mlp(64, 2)
    good = torch.arange(64, device="cuda")
    bad = good.clone()
    bad[3] = 1_000_000
    with torch.no_grad():
        warm_up(lambda: model(table(good)))
        with run.loop():
            for number in run.each(300):
                model(table(bad if run.fault and number == run.count(300) * 9 // 10 else good))
                burn(40_000)
                if number % 10 == 9:
                    torch.cuda.synchronize()
