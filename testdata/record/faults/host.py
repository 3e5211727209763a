"""Faults on the host: the loader, the GIL, the CPU, a lock, Python's garbage collector."""

import gc
import hashlib
import os
import threading
import time

import torch
from harness import MIB, burn, mlp, name_thread, trainer, warm_up
from torch.utils.data import DataLoader, Dataset


def train_from(run, dataset, workers, steps):
    """Trains on the batches of a loader. Its workers have started, and have made the first batch, when the loop begins."""
    step = trainer(mlp())
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, pin_memory=True)
    batches, read_bytes = iter(loader), 0
    warm_up(step, next(batches)[0].cuda(non_blocking=True))
    with run.loop():
        for _ in run.each(steps):
            batch, read = next(batches)
            step(batch.cuda(non_blocking=True))
            read_bytes += read
    run.figures["read_from_disk_bytes"] = read_bytes
    del batches


class Transformed(Dataset):
    """Batches, each made by a transform that takes about 10 ms of CPU."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        burn(200_000)
        return torch.full((64, 512), index / 1e5), 0


def loader_cpu(run):
    """One worker makes batches slower than the GPU takes them; four are fast enough."""
    workers = 1 if run.fault else 4
    run.plant(process="pt_data_worker", workers=workers, instead_of=4, cause="cpu")
    train_from(run, Transformed(), workers, 250)


FILES, FILE_BYTES = 16, 16 * MIB


def read_from_disk_bytes():
    """What the kernel has read from disks for the calling process."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


class Files(Dataset):
    """Batches, each read from a file of 16 MiB, out of the page cache or from the disk."""

    def __init__(self, folder, is_cold):
        self.paths, self.is_cold = [os.path.join(folder, f"{number}.bin") for number in range(FILES)], is_cold

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        before = read_from_disk_bytes()
        file = os.open(self.paths[index % FILES], os.O_RDONLY)
        try:
            if self.is_cold:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            content = os.read(file, FILE_BYTES)
        finally:
            os.close(file)
        return torch.full((64, 512), content[0] / 256), read_from_disk_bytes() - before


def write_files(folder):
    """Writes the files once for all runs, to the disk and not only to the page cache."""
    os.makedirs(folder, exist_ok=True)
    block = os.urandom(MIB)
    for number in range(FILES):
        path = os.path.join(folder, f"{number}.bin")
        if os.path.exists(path):
            continue
        with open(f"{path}.{os.getpid()}", "wb") as file:
            for _ in range(FILE_BYTES // MIB):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        os.rename(file.name, path)


def loader_io(run):
    """The worker reads each file from the disk; the twin's files are in the page cache. The two have files of their own."""
    folder = os.path.join(run.scratch, "cold" if run.fault else "warm")
    write_files(folder)
    dataset = Files(folder, run.fault)
    for number in range(FILES):
        if not run.fault:
            dataset[number]
    run.plant(process="pt_data_worker", workers=1, cause="disk", bytes_a_step=FILE_BYTES)
    train_from(run, dataset, 1, 150)


def gil_hog(run):
    """A thread that only computes, in Python; each call of PyTorch gives the GIL away and waits 5 ms to have it back."""
    stop, started = threading.Event(), threading.Event()

    def hog():
        name_thread("gil-hog")
        run.plant(thread="gil-hog", tid=threading.get_native_id())
        started.wait()
        while run.fault and not stop.is_set():
            burn(1000)
        stop.wait()

    thread = threading.Thread(target=hog, name="gil-hog", daemon=True)
    thread.start()
    model, batch = mlp(1024, 4), torch.randn(256, 1024, device="cuda")
    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            started.set()
            for _ in run.each(80):
                model(batch)
            torch.cuda.synchronize()
            stop.set()
    started.set()
    thread.join()


def cpu_hog(run):
    """The main thread runs on one core, on which the runner's hogs run, too."""
    model, batch = mlp(256, 6), torch.randn(32, 256, device="cuda")
    with torch.no_grad():
        warm_up(model, batch)
    # Now, and this thread alone: the driver's threads exist by now.
    os.sched_setaffinity(0, {run.cores[0]})
    run.plant(process="cpu-hog", core=run.cores[0], processes=3)

    with torch.no_grad(), run.loop():
        for number in run.each(200):
            model(batch)
            burn(100_000)
            if number % 20 == 19:
                torch.cuda.synchronize()
    os.sched_setaffinity(0, run.cores)


def lock_convoy(run):
    """Three threads hash 4 MiB at a time under a lock that the launching thread needs in each step; the twin's threads have their own."""
    needed, other, stop = threading.Lock(), threading.Lock(), threading.Event()
    content = bytes(4 * MIB)

    def hold(number):
        name_thread(f"lock-holder-{number}")
        lock = needed if run.fault else other
        while not stop.is_set():
            with lock:
                hashlib.sha256(content).digest()
            stop.wait(0.001)

    run.plant(threads=[f"lock-holder-{number}" for number in range(3)], lock="threading.Lock")
    model, batch = mlp(512, 3), torch.randn(64, 512, device="cuda")
    threads = [threading.Thread(target=hold, args=(number,), daemon=True) for number in range(3)]
    with torch.no_grad():
        warm_up(model, batch)
        with run.loop():
            for thread in threads:
                thread.start()
            for _ in run.each(250):
                with needed:
                    model(batch)
                burn(20_000)
            stop.set()
    for thread in threads:
        thread.join()


def gc_pauses(run):
    """Every tenth step collects garbage in a heap of 1.5 million lists that refer to themselves; the twin has frozen that heap."""
    gc.disable()
    heap = []
    for _ in range(1_500_000):
        cycle = []
        cycle.append(cycle)
        heap.append(cycle)
    if not run.fault:
        gc.freeze()
    pauses = []
    step, batch = trainer(mlp()), torch.randn(64, 512, device="cuda")
    warm_up(step, batch)
    with run.loop():
        for number in run.each(200):
            step(batch)
            if number % 10 == 9:
                start = time.perf_counter()
                gc.collect()
                pauses.append(time.perf_counter() - start)
    # The interpreter's last collection is as short in both.
    gc.freeze()
    run.plant(cause="gc.collect", objects=len(heap))
    run.figures.update(collections=len(pauses), collecting_s=sum(pauses))
