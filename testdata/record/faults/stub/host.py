"""Faults on the host, beside the stub's GPU, and runs without a fault."""

import gc
import hashlib
import mmap
import os
import subprocess
import tempfile
import threading
import time

from harness import MIB, burn, name_thread
from stub.gpu import Gpu
from stub.loader import Loader

MS = 1_000_000
# The kernel's largest: what else the machine does takes no CPU from the group.
SHARES = 262_144


def train_from(run, gpu, dataset, workers, steps, gpu_ns):
    """Trains on the batches of a loader and reads the loss in each step, as a training loop that logs it does."""
    loader = Loader(dataset, workers)
    next(loader)
    with run.loop():
        for number in run.each(steps):
            batch = next(loader)
            gpu.copy(0x1000, len(batch), pageable=False)
            gpu.step(gpu_ns)
            gpu.synchronize()
            yield number
    loader.close()


class Transformed:
    def __init__(self, rounds):
        self.rounds = rounds

    def __getitem__(self, index):
        burn(self.rounds)
        return bytes(4096)


def stub_loader_cpu(run):
    """The worker's transform of a batch takes about 18 ms of CPU, the step 10 ms; the twin's transform is quick enough."""
    run.plant(process="pt_data_worker", workers=1, cause="cpu")
    for _ in train_from(run, Gpu(), Transformed(300_000 if run.fault else 40_000), 1, 80, 10 * MS):
        pass


FILES, FILE_BYTES = 8, 12 * MIB


def files(folder):
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"{number}.bin") for number in range(FILES)]
    for path in paths:
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(os.urandom(FILE_BYTES))
                file.flush()
                os.fsync(file.fileno())
    return paths


class Files:
    """Batches from files, past the page cache or out of it."""

    def __init__(self, folder, is_cold, read_bytes=FILE_BYTES):
        self.paths, self.is_cold, self.read_bytes = files(folder), is_cold, read_bytes
        # O_DIRECT wants aligned memory.
        self.buffer = mmap.mmap(-1, read_bytes)

    def __getitem__(self, index):
        file = os.open(self.paths[index % FILES], os.O_RDONLY | (os.O_DIRECT if self.is_cold else 0))
        try:
            if self.is_cold:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.preadv(file, [self.buffer], 0)
        finally:
            os.close(file)
        return bytes(4096)


def warm(run, read_bytes=FILE_BYTES):
    dataset = Files(os.path.join(run.scratch, "cold" if run.fault else "warm"), run.fault, read_bytes)
    for number in range(FILES):
        if not run.fault:
            dataset[number]
    return dataset


def stub_loader_io(run):
    """The worker reads each batch from the disk; the twin's files are in the page cache."""
    dataset = warm(run)
    run.plant(process="pt_data_worker", workers=1, cause="disk", bytes_a_step=FILE_BYTES)
    for _ in train_from(run, Gpu(), dataset, 1, 60, 8 * MS):
        pass


def stub_disk(run):
    """The main thread itself reads 4 MiB from the disk in each step; the twin's files are in the page cache."""
    dataset, gpu = warm(run, 4 * MIB), Gpu()
    run.plant(call="preadv", bytes_a_step=4 * MIB)
    with run.loop():
        for number in run.each(120):
            dataset[number]
            burn(40_000)
            gpu.step(1 * MS)
            if number % 20 == 19:
                gpu.synchronize()


def stub_gil_hog(run):
    """A thread that only computes, in Python; each CUDA call gives the GIL away and waits 5 ms to have it back."""
    gpu, stop, started = Gpu(), threading.Event(), threading.Event()

    def hog():
        name_thread("gil-hog")
        started.wait()
        while run.fault and not stop.is_set():
            burn(1000)
        stop.wait()

    thread = threading.Thread(target=hog, name="gil-hog", daemon=True)
    thread.start()
    run.plant(thread="gil-hog", tid=thread.native_id)
    with run.loop():
        started.set()
        for _ in run.each(100):
            gpu.step(4 * MS)
            burn(20_000)
            gpu.synchronize()
        stop.set()
    thread.join()


def stub_cpu_hog(run):
    """The process runs on one core, on which the runner's three hogs run, too."""
    gpu = Gpu()
    os.sched_setaffinity(0, {run.cores[0]})
    run.plant(process="cpu-hog", core=run.cores[0], processes=3)
    with run.loop():
        for number in run.each(60):
            gpu.step(1 * MS)
            burn(80_000)
            if number % 20 == 19:
                gpu.synchronize()


def stub_cpu_quota(run):
    """The process is in a control group that may use 30 ms of CPU in 100 ms; the twin's has no limit."""
    group = os.path.join("/sys/fs/cgroup/cpu", "job-limited" if run.fault else "job-unlimited")
    os.makedirs(group, exist_ok=True)
    for name, value in (("cpu.shares", SHARES), ("cpu.cfs_period_us", 100_000), ("cpu.cfs_quota_us", 30_000 if run.fault else -1)):
        with open(os.path.join(group, name), "w") as file:
            file.write(str(value))
    with open(os.path.join(group, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
    gpu = Gpu()
    run.plant(quota_us=30_000, period_us=100_000)
    with run.loop():
        for _ in run.each(50):
            gpu.step(4 * MS)
            burn(100_000)
            gpu.synchronize()


def stub_lock_convoy(run):
    """Three threads hash 1 MiB at a time under a lock that the launching thread needs in each step; the twin's threads have their own."""
    gpu, needed, other, stop = Gpu(), threading.Lock(), threading.Lock(), threading.Event()
    content = bytes(MIB)

    def hold(number):
        name_thread(f"lock-holder-{number}")
        lock = needed if run.fault else other
        while not stop.is_set():
            with lock:
                for _ in range(2):
                    hashlib.sha256(content).digest()
            time.sleep(0.0002)

    run.plant(threads=[f"lock-holder-{number}" for number in range(3)], lock="threading.Lock")
    threads = [threading.Thread(target=hold, args=(number,), daemon=True) for number in range(3)]
    with run.loop():
        for thread in threads:
            thread.start()
        for _ in run.each(100):
            with needed:
                gpu.step(3 * MS)
            burn(20_000)
            gpu.synchronize()
        stop.set()
    for thread in threads:
        thread.join()


def stub_sleep(run):
    """Each step ends with a sleep of 8 ms."""
    gpu = Gpu()
    run.plant(call="time.sleep", sleep_ns=8 * MS)
    with run.loop():
        for _ in run.each(100):
            gpu.step(6 * MS)
            gpu.synchronize()
            if run.fault:
                time.sleep(0.008)


def stub_gc_pauses(run):
    """Every tenth step collects garbage in a heap of a million lists that refer to themselves; the twin has frozen that heap."""
    gpu = Gpu()
    gc.disable()
    heap = []
    for _ in range(1_000_000):
        cycle = []
        cycle.append(cycle)
        heap.append(cycle)
    if not run.fault:
        gc.freeze()
    run.plant(cause="gc.collect", objects=len(heap))
    with run.loop():
        for number in run.each(100):
            burn(60_000)
            gpu.step(1 * MS)
            if number % 10 == 9:
                gc.collect()
    # The interpreter's last collection is as short in both.
    gc.freeze()


SOURCE = "".join(f"int f{number}(int x) {{ return x * {number} + f{number - 1}(x - 1); }}\n" for number in range(1, 150))


def stub_recompilation(run):
    """Every fifth step has a shape for which code is compiled anew; the twin compiled it before the loop."""
    gpu = Gpu()
    with tempfile.TemporaryDirectory(dir=run.scratch) as folder:
        source = os.path.join(folder, "kernel.c")
        with open(source, "w") as file:
            file.write("int f0(int x) { return x; }\n" + SOURCE)

        def compile_code():
            subprocess.run(["gcc", "-O0", "-c", source, "-o", os.path.join(folder, "kernel.o")], check=True)

        # The first shape is compiled when the weights are on the GPU.
        gpu.step(1 * MS)
        compile_code()
        run.plant(process="cc1", compiled_in_loop=10)
        with run.loop():
            for number in run.each(50):
                if run.fault and number % 5 == 4:
                    compile_code()
                gpu.step(8 * MS)
                burn(40_000)
                gpu.synchronize()


def stub_healthy_compute(run):
    """Bound by the GPU: long kernels, one after another."""
    gpu = Gpu()
    with run.loop():
        for number in run.each(300):
            gpu.launch(5 * MS)
            if number % 20 == 19:
                gpu.synchronize()


def stub_healthy_launch_loop(run):
    """Bound by the host, which launches kernels as fast as it can."""
    gpu = Gpu()
    with run.loop():
        for number in run.each(150):
            gpu.step(2 * MS, 40)
            burn(100_000)
            if number % 50 == 49:
                gpu.synchronize()


def stub_healthy_training(run):
    """Four workers keep up, and every fortieth step writes a checkpoint."""
    gpu, content = Gpu(), bytes(4 * MIB)
    path = os.path.join(run.scratch, f"checkpoint-{os.getpid()}.pt")
    try:
        for number in train_from(run, gpu, Transformed(40_000), 4, 140, 12 * MS):
            if number % 40 == 39:
                with open(path, "wb") as file:
                    file.write(content)
    finally:
        if os.path.exists(path):
            os.remove(path)
