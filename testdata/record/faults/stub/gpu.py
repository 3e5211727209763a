"""The stub's CUDA libraries (capture/stub), with a GPU that takes time: launches return, and a synchronisation sleeps until the GPU would be done."""

import ctypes
import os
import subprocess

from harness import now_ns

# The folder with the libraries.
LIBRARIES = os.environ.get("INQUEST_STUB", "")
STREAM = 0x53
HOST_TO_DEVICE = 1
# CUDA's pinned copies over PCIe 5.0, and its copies from pageable memory, in bytes per nanosecond.
PINNED_RATE, PAGEABLE_RATE = 50, 6


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class CudaError(RuntimeError):
    pass


def with_errors(folder):
    """A driver library whose synchronisations can fail, loaded before the stub's own, which has the other functions."""
    path = os.path.join(folder, "errors", "libcuda.so")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "errors.c")
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", path], check=True)
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


class Gpu:
    def __init__(self, errors=None):
        self.errors = with_errors(errors) if errors else None
        driver = os.path.join(LIBRARIES, "libcuda.so")
        ctypes.CDLL(driver, mode=ctypes.RTLD_GLOBAL)
        # This call keeps the GIL: it is no CUDA function.
        self.delay = ctypes.PyDLL(driver).stub_delay
        self.delay.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        cuda = ctypes.CDLL(os.path.join(LIBRARIES, "libcudart.so"), mode=ctypes.RTLD_GLOBAL)
        cuda.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        cuda.cudaStreamSynchronize.argtypes = [ctypes.c_void_p]
        cuda.cudaMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        cuda.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
        cuda.cudaFree.argtypes = [ctypes.c_void_p]
        self.cuda, self.done_ns = cuda, 0

    def check(self, status, call):
        if status:
            raise CudaError(f"{call} returned {status}")

    def queue(self, gpu_ns):
        self.done_ns = max(self.done_ns, now_ns()) + gpu_ns

    def left_ns(self):
        return max(0, self.done_ns - now_ns())

    def launch(self, gpu_ns, kernel=0x4001, blocks=264, host_ns=5_000):
        self.delay(host_ns, 0)
        self.check(self.cuda.cudaLaunchKernel(kernel, Dim3(blocks, 1, 1), Dim3(256, 1, 1), None, 0, STREAM), "cudaLaunchKernel")
        self.queue(gpu_ns)

    def step(self, gpu_ns, kernels=4):
        """A step of a model: kernels of several kinds."""
        for number in range(kernels):
            self.launch(gpu_ns // kernels, 0x4001 + number)

    def synchronize(self, extra_ns=0):
        self.delay(0, self.left_ns() + extra_ns)
        self.check(self.cuda.cudaStreamSynchronize(STREAM), "cudaStreamSynchronize")

    def copy(self, host, size, pageable):
        """Copies to the GPU: from pageable memory the calling thread spins until its turn comes and copies, from pinned memory the GPU does so later."""
        self.delay(self.left_ns() + size // PAGEABLE_RATE if pageable else 3_000, 0)
        self.check(self.cuda.cudaMemcpyAsync(0x7000_0000, host, size, HOST_TO_DEVICE, STREAM), "cudaMemcpyAsync")
        if not pageable:
            self.queue(size // PINNED_RATE)

    def malloc(self, size):
        address = ctypes.c_void_p()
        self.delay(20_000, 0)
        self.check(self.cuda.cudaMalloc(ctypes.byref(address), size), "cudaMalloc")
        return address

    def free(self, address):
        self.delay(20_000, 0)
        self.check(self.cuda.cudaFree(address), "cudaFree")

    def fail(self, code):
        """All synchronisations fail from now on."""
        self.errors.stub_fail(code)
