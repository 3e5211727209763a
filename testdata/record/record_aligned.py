"""Trains a small network in two threads, a part of it inside PyTorch's profiler: for `analyze align`.

Usage: record_aligned.py KINETO.json TRUTH.json [STEPS]

KINETO.json is the profiler's trace. TRUTH.json is what the program itself read off its clocks:
  clocks   [before, wall, after] around each reading of the wall's clock: CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_MONOTONIC, in ns
  ranges   name, start_ns, end_ns on CLOCK_MONOTONIC, read inside of the profiler's range of that name: it must enclose them
  waits    start_ns, end_ns around a synchronisation, and whether the device had work (is_busy)
"""

import json
import sys
import threading
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function

truth = {"clocks": [], "ranges": [], "waits": []}


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def read_clocks():
    truth["clocks"].append([now_ns(), time.clock_gettime_ns(time.CLOCK_REALTIME), now_ns()])


def wait(is_busy):
    start = now_ns()
    torch.cuda.synchronize()
    truth["waits"].append({"start_ns": start, "end_ns": now_ns(), "is_busy": is_busy})


def train(model, optimizer, steps, name):
    data = torch.randn(64, 256, device="cuda")
    big = torch.randn(4096, 4096, device="cuda")
    for step in range(steps):
        with record_function(f"{name} {step}"):
            start = now_ns()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            truth["ranges"].append({"name": f"{name} {step}", "start_ns": start, "end_ns": now_ns()})
        if step % 4 == 1:
            torch.cuda.synchronize()
            big @ big
            wait(True)
            wait(False)
        if step % 4 == 3:
            loss.item()
        # Gaps of all lengths, as real input has them.
        time.sleep(0.0002 * (step % 7))


def copy(stop):
    """A thread of its own, on a stream of its own."""
    with torch.cuda.stream(torch.cuda.Stream()):
        host = torch.empty(1 << 16, pin_memory=True)
        device = torch.empty(1 << 16, device="cuda")
        while not stop.is_set():
            device.copy_(host, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            time.sleep(0.003)


def main():
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    stop = threading.Event()
    copier = threading.Thread(target=copy, args=(stop,))
    copier.start()
    train(model, optimizer, steps, "before")
    read_clocks()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        read_clocks()
        train(model, optimizer, steps, "profiled")
        read_clocks()
    read_clocks()
    train(model, optimizer, steps, "after")
    stop.set()
    copier.join()
    torch.cuda.synchronize()
    profiler.export_chrome_trace(sys.argv[1])
    with open(sys.argv[2], "w") as file:
        json.dump(truth, file)


main()
