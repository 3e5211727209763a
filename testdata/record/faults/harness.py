"""What every workload shares: the clock of its loop, what it says at its end, and small models made by hand."""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time

MIB = 1 << 20


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def process_age_s():
    """Seconds since this process was forked, to 10 ms."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Run:
    """One run of a workload: with the fault, or as its twin."""

    def __init__(self, workload, fault, scale, cores, scratch, marks):
        self.workload, self.fault, self.scale = workload, fault, scale
        self.cores, self.scratch = cores, scratch
        self.marks = os.environ.get("INQUEST_MARKS") if marks else None
        self.steps, self.begin_ns, self.end_ns = 0, None, None
        self.planted, self.figures = {}, {}
        self.said = threading.Lock()

    def count(self, steps):
        return max(2, round(steps * self.scale))

    def plant(self, **what):
        """Says what the fault is; the twin has none."""
        if self.fault:
            self.planted.update(what)

    def mark(self, text):
        if self.marks:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks:
                marks.sendto(text.encode(), self.marks)

    @contextlib.contextmanager
    def loop(self):
        """The part of the run that the fault makes slower; it ends when the GPU has done its work."""
        synchronize()
        print(json.dumps({"loop": self.workload}), flush=True)
        self.begin_ns = now_ns()
        try:
            yield
            synchronize()
        finally:
            self.end_ns = now_ns()

    def each(self, steps):
        """The numbers of the steps, each counted when it has ended and marked if marks were asked for."""
        for number in range(self.count(steps)):
            self.mark(f"begin step {number}")
            yield number
            self.mark(f"end step {number}")
            self.steps += 1

    def say(self, error=None, ended_by=None):
        """Prints the line of this run, once."""
        if not self.said.acquire(blocking=False):
            return
        begin_ns = self.begin_ns
        end_ns = now_ns() if self.end_ns is None else self.end_ns
        line = {
            "workload": self.workload,
            "variant": "fault" if self.fault else "twin",
            "pid": os.getpid(),
            "loop_s": None if begin_ns is None else (end_ns - begin_ns) / 1e9,
            "whole_s": process_age_s(),
            "begin_ns": begin_ns,
            "end_ns": end_ns,
            "steps": self.steps,
            "planted": self.planted,
            "figures": self.figures,
            "cores": sorted(os.sched_getaffinity(0)),
            "error": error,
            "ended_by": ended_by,
        }
        print(json.dumps(line), flush=True)

    def on_terminate(self):
        owner = os.getpid()

        def end(number, _frame):
            # A loader's workers inherit this handler.
            if os.getpid() == owner:
                self.say(ended_by=signal.Signals(number).name)
            os._exit(128 + number)

        signal.signal(signal.SIGTERM, end)


def synchronize():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def burn(rounds):
    """A fixed amount of work for one CPU, with the GIL: about 5 ms for 100,000."""
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def name_thread(name):
    """Gives the calling thread a name that a recorder can see."""
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)


def mlp(width=512, depth=3):
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).cuda()


def trainer(model):
    """A function that trains the model by one step and returns the loss, on the GPU."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def warm_up(step, *arguments, times=5):
    for _ in range(times):
        step(*arguments)
    synchronize()
