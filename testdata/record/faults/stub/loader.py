"""A data loader built as PyTorch's (torch/utils/data/dataloader.py): worker processes, their pipes, a thread that pins memory, the main thread."""

import ctypes
import multiprocessing
import queue
import threading

from harness import name_thread

# How often PyTorch's threads look whether the others live, in seconds.
CHECK_S = 5.0
PREFETCH = 2
PR_SET_NAME = 15


def work(dataset, indexes, results):
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_data_worker", 0, 0, 0)
    while True:
        try:
            task = indexes.get(timeout=CHECK_S)
        except queue.Empty:
            continue
        if task is None:
            break
        number, index = task
        results.put((number, dataset[index]))
    results.close()


def pin(results, pinned, done):
    name_thread("pt_data_pin")
    while not done.is_set():
        try:
            number, batch = results.get(timeout=CHECK_S)
        except queue.Empty:
            continue
        if done.is_set() or number is None:
            break
        pinned.put((number, bytearray(batch)))


class Loader:
    def __init__(self, dataset, workers):
        context = multiprocessing.get_context("fork")
        self.results, self.indexes, self.workers = context.Queue(), [], []
        for _ in range(workers):
            indexes = context.Queue()
            indexes.cancel_join_thread()
            worker = context.Process(target=work, args=(dataset, indexes, self.results), daemon=True)
            worker.start()
            self.indexes.append(indexes)
            self.workers.append(worker)
        self.pinned, self.done = queue.Queue(), threading.Event()
        self.thread = threading.Thread(target=pin, args=(self.results, self.pinned, self.done), daemon=True)
        self.thread.start()
        self.sent, self.taken, self.early = 0, 0, {}
        for _ in range(PREFETCH * workers):
            self.send()

    def send(self):
        self.indexes[self.sent % len(self.workers)].put((self.sent, self.sent))
        self.sent += 1

    def __next__(self):
        while self.taken not in self.early:
            try:
                number, batch = self.pinned.get(timeout=CHECK_S)
            except queue.Empty:
                continue
            self.early[number] = batch
        batch = self.early.pop(self.taken)
        self.taken += 1
        self.send()
        return batch

    def close(self):
        self.done.set()
        self.results.put((None, None))
        self.thread.join()
        self.results.cancel_join_thread()
        self.results.close()
        for indexes in self.indexes:
            indexes.put(None)
        for worker in self.workers:
            worker.join(CHECK_S)
        for indexes in self.indexes:
            indexes.close()
