"""Holds memory of the GPU until it is killed, under a name that a trace can show. Usage: neighbour.py GIB. Prints a line when it has it."""

import ctypes
import signal
import sys


def main():
    with open("/proc/self/comm", "w") as comm:
        comm.write("neighbour")
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
    calls = [
        lambda: cuda.cuInit(0),
        lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        lambda: cuda.cuCtxSetCurrent(context),
        lambda: cuda.cuMemAlloc_v2(ctypes.byref(address), int(sys.argv[1]) << 30),
    ]
    for number, call in enumerate(calls):
        status = call()
        if status != 0:
            sys.exit(f"call {number} returned {status}")
    print("ready", flush=True)
    signal.pause()


main()
