"""Faults in how a program uses the stub's GPU, and runs that end badly."""

import ctypes
import os
import signal
import sys
import threading

from harness import MIB, burn
from stub.gpu import Gpu

MS = 1_000_000


def stub_item_each_step(run):
    """The host prepares a step while the GPU computes the one before, unless it reads the loss in each step."""
    run.plant(call="cudaStreamSynchronize", calls_a_step=1)
    gpu = Gpu()
    with run.loop():
        for _ in run.each(100):
            burn(80_000)
            gpu.step(8 * MS)
            if run.fault:
                gpu.synchronize()
        gpu.synchronize()


def stub_tiny_kernels(run):
    """A tensor is updated row by row, each row by a kernel of its own; the twin updates all of it by one."""
    run.plant(call="cudaLaunchKernel", kernels_a_step=200, instead_of=1)
    gpu, rows = Gpu(), 200
    with run.loop():
        for _ in run.each(50):
            burn(60_000)
            if run.fault:
                for _ in range(rows):
                    gpu.launch(2_000, blocks=1, host_ns=60_000)
            else:
                gpu.launch(rows * 2_000, blocks=rows, host_ns=60_000)
        gpu.synchronize()


def stub_pageable_copies(run):
    """Each step copies 32 MiB to the GPU: from pageable memory, or from pinned memory."""
    run.plant(call="cudaMemcpyAsync", direction="HtoD", memory="pageable", bytes_a_step=32 * MIB)
    gpu = Gpu()
    with run.loop():
        for _ in run.each(120):
            gpu.copy(0x7F00_0000_1000, 32 * MIB, pageable=run.fault)
            gpu.step(6 * MS)
            burn(20_000)
        gpu.synchronize()


def train(run, gpu, steps):
    for _ in run.each(steps):
        gpu.step(4 * MS)
        burn(20_000)
        gpu.synchronize()


def stub_leak_cuda_malloc(run):
    """An extension allocates its workspace by cudaMalloc in every step; only the twin frees it."""
    run.plant(kept_in="cudaMalloc", bytes_a_step=2 * MIB)
    gpu = Gpu()
    with run.loop():
        for _ in run.each(200):
            address = gpu.malloc(2 * MIB)
            gpu.step(4 * MS)
            burn(20_000)
            gpu.synchronize()
            if not run.fault:
                gpu.free(address)


def stub_segfault(run):
    """The process reads memory that is not mapped."""
    run.plant(signal="SIGSEGV")
    gpu = Gpu()
    with run.loop():
        train(run, gpu, 150)
        if run.fault:
            run.say(ended_by="SIGSEGV")
            ctypes.string_at(8)
        train(run, gpu, 50)


def stub_exit_status(run):
    """The process ends with status 3 before its work is done."""
    run.plant(status=3)
    gpu = Gpu()
    with run.loop():
        train(run, gpu, 150)
        if run.fault:
            run.say(ended_by="status 3")
            sys.exit(3)
        train(run, gpu, 50)


def stub_killed(run):
    """The process is killed as the kernel does it that has no memory left."""
    run.plant(signal="SIGKILL")
    gpu = Gpu()
    with run.loop():
        train(run, gpu, 150)
        if run.fault:
            run.say(ended_by="SIGKILL")
            os.kill(os.getpid(), signal.SIGKILL)
        train(run, gpu, 50)


def stub_device_assert(run):
    """A kernel's assertion fails: the next synchronisation returns 710, and the program ends with its exception."""
    run.plant(call="cudaStreamSynchronize", code=710, status="cudaErrorAssert")
    gpu = Gpu(errors=run.scratch)
    with run.loop():
        train(run, gpu, 150)
        gpu.fail(710 if run.fault else 0)
        train(run, gpu, 50)


def stub_failed_call(run):
    """A kernel reads beyond its memory: the next synchronisation returns 700, and the program ends as if all were well."""
    run.plant(call="cudaStreamSynchronize", code=700, status="cudaErrorIllegalAddress")
    gpu = Gpu(errors=run.scratch)
    with run.loop():
        train(run, gpu, 150)
        gpu.fail(700 if run.fault else 0)
        try:
            train(run, gpu, 50)
        except RuntimeError as error:
            run.figures["caught"] = str(error)


def stub_hang(run):
    """A synchronisation that does not return; after 3 s of it the process is killed."""

    def kill():
        run.say(ended_by="SIGKILL")
        os.kill(os.getpid(), signal.SIGKILL)

    run.plant(call="cudaStreamSynchronize", killed_after_s=3)
    gpu = Gpu()
    with run.loop():
        train(run, gpu, 100)
        if run.fault:
            threading.Timer(3, kill).start()
        gpu.synchronize(60_000 * MS if run.fault else 0)
        train(run, gpu, 50)
