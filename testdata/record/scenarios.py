"""Small programs, each around one way to use the GPU, that count what they did by a source of their own.

Usage: scenarios.py graphs|compile|malloc_async|pluggable|shared|nccl COUNTS.json

COUNTS.json receives, per process, the CLOCK_MONOTONIC span and the calls inside it: as PyTorch's profiler saw them
(`profiler`), as the program made them (`made`), or as the library it called them through counted (`library`).
"""

import collections
import contextlib
import ctypes
import json
import os
import random
import socket
import sys
import tempfile
import time

import torch
from torch.profiler import ProfilerActivity, profile

HERE = os.path.dirname(os.path.abspath(__file__))


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def mark(text):
    """Names a phase for the recorder, if there is one."""
    path = os.environ.get("INQUEST_MARKS")
    if path:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as marks:
            marks.sendto(text.encode(), path)


def counted(work, made, warm_up=True):
    """Runs `work` under the profiler; what happened inside."""
    if warm_up:
        work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        torch.cuda.synchronize()
        mark("begin counted")
        start = now_ns()
        work()
        end = now_ns()
        mark("end counted")
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            trace = json.load(file)
    # The profiler's clock is the wall's; its own synchronisations stand outside the span of `work`.
    calls = [e for e in trace["traceEvents"] if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    calls.sort(key=lambda e: e["ts"])
    names = [e["name"] for e in calls]
    first = names.index("cudaDeviceSynchronize")
    last = len(names) - 1 - names[::-1].index("cudaDeviceSynchronize")
    inside = names[first + 1 : last]
    return {
        "pid": os.getpid(),
        "start_ns": start,
        "end_ns": end,
        "profiler": dict(sorted(collections.Counter(inside).items())),
        "made": made,
    }


def mlp(width=512):
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)]
    return torch.nn.Sequential(*layers).cuda().half()


def graphs():
    model, inputs = mlp(), torch.randn(64, 512, device="cuda").half()
    with torch.no_grad():
        model(inputs)
        torch.cuda.synchronize()

        def work():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(inputs)
            for _ in range(50):
                graph.replay()
            torch.cuda.synchronize()

        return [counted(work, {"cuGraphLaunch": 50, "cuStreamBeginCapture": 1, "cuStreamEndCapture": 1})]


def compile_():
    model, inputs = mlp(), torch.randn(64, 512, device="cuda").half()

    def forward(x):
        return torch.nn.functional.gelu(model(x) * 2 + 1).softmax(-1).sum()

    compiled = torch.compile(forward)

    def work():
        for _ in range(20):
            compiled(inputs).item()

    with torch.no_grad():
        return [counted(work, {})]


def malloc_async():
    chance = random.Random(7)
    sizes = [chance.randint(1 << 10, 1 << 24) for _ in range(300)]

    def work():
        kept = []
        for size in sizes:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if len(kept) > 8:
                kept.pop(chance.randrange(len(kept)))

    return [counted(work, {"cuMemAllocAsync": len(sizes), "cuMemFreeAsync": len(sizes)})]


def pluggable():
    library = os.path.join(HERE, "pluggable.so")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "pausable_malloc", "pausable_free")
    torch.cuda.memory.change_current_allocator(allocator)
    calls = ctypes.CDLL(library)
    names = ["cuMemCreate", "cuMemRelease", "cuMemAddressReserve", "cuMemAddressFree", "cuMemMap", "cuMemUnmap", "cuMemSetAccess"]
    torch.zeros(1, device="cuda")
    before = [calls.pausable_count(i) for i in range(len(names))]
    mark("begin counted")
    start = now_ns()
    tensors = [torch.ones(1 << 20, device="cuda") * i for i in range(1, 13)]
    torch.cuda.synchronize()
    addresses = [tensor.data_ptr() for tensor in tensors]
    for _ in range(2):
        mark("begin pause")
        assert calls.pausable_pause() == 0
        mark("end pause")
        mark("begin resume")
        assert calls.pausable_resume() == 0
        mark("end resume")
    assert addresses == [tensor.data_ptr() for tensor in tensors]
    del tensors
    end = now_ns()
    mark("end counted")
    after = [calls.pausable_count(i) for i in range(len(names))]
    counts = {name: b - a for name, a, b in zip(names, before, after)}
    return [{"pid": os.getpid(), "start_ns": start, "end_ns": end, "library": counts, "made": {}}]


def one_of_two(number, queue):
    torch.cuda.set_device(0)
    a = torch.randn(2048, 2048, device="cuda")

    def work():
        for _ in range(100 + 50 * number):
            b = a @ a
            b.cpu()

    queue.put(counted(work, {"cuMemcpyDtoHAsync": 100 + 50 * number}))


def shared():
    return spawned(one_of_two, 2)


def rank(number, queue):
    import torch.distributed as dist

    torch.cuda.set_device(number)
    store = dist.TCPStore("127.0.0.1", 29511, 2, is_master=number == 0)
    dist.init_process_group("nccl", store=store, rank=number, world_size=2)
    data = torch.ones(1 << 20, device="cuda", dtype=torch.bfloat16)
    parts = [torch.empty_like(data) for _ in range(2)]
    dist.all_reduce(data)
    torch.cuda.synchronize()
    mark("begin counted")
    start = now_ns()
    for _ in range(30):
        dist.all_reduce(data)
    for _ in range(10):
        dist.broadcast(data, src=0)
        dist.all_gather(parts, data)
    for _ in range(5):
        if number == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
    torch.cuda.synchronize()
    end = now_ns()
    mark("end counted")
    made = {
        "ncclAllReduce": 30,
        "ncclBroadcast": 10,
        "ncclAllGather": 10,
        "ncclSend" if number == 0 else "ncclRecv": 5,
    }
    sizes = {"ncclAllReduce": 30 << 21, "ncclAllGather": 10 << 21}
    queue.put({"pid": os.getpid(), "start_ns": start, "end_ns": end, "made": made, "made_bytes": sizes})
    dist.barrier()
    dist.destroy_process_group()


def spawned(target, count):
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=target, args=(i, queue)) for i in range(count)]
    for process in processes:
        process.start()
    results = [queue.get() for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return sorted(results, key=lambda result: result["pid"])


def nccl():
    return spawned(rank, 2)


def main():
    name, path = sys.argv[1:3]
    scenarios = {
        "graphs": graphs,
        "compile": compile_,
        "malloc_async": malloc_async,
        "pluggable": pluggable,
        "shared": shared,
        "nccl": nccl,
    }
    results = scenarios[name]()
    with open(path, "w") as file:
        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
