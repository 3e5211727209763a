"""The list of workloads, and what the runner has to know of each. This file needs no package."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Spec:
    module: str
    # How many cores the workload needs: its lane has at least as many.
    cores: int = 2
    # The fault costs time: it is repeated in pairs with its twin, and the difference of the two is measured.
    timed: bool = False
    # Other work on the GPU would disturb it: it runs while no other loop does.
    alone: bool = False
    # It disturbs others, or needs all of the device's memory: nothing runs beside it, not even a start-up.
    exclusive: bool = False
    # Processes that the runner starts beside the fault, and that the recorder does not follow: "hogs" or "neighbour".
    helper: str = ""
    # What the exception of the planted fault says; none is expected where this is empty.
    expect: str = ""
    env: tuple = ()
    # Allocations are recorded with their call stacks, in which Python's functions have names.
    stacks: bool = False
    # What `analyze` is to find first, and what the title of it says.
    finding: str = ""
    names: tuple = ()


LIMIT = "out of memory"
PLAN = {
    "loader-cpu": Spec("host", cores=4, timed=True, finding="starved-loader", names=("pt_data_worker",)),
    "loader-io": Spec("host", cores=3, timed=True, finding="starved-loader", names=("pt_data_worker", "waited for files")),
    "gil-hog": Spec("host", timed=True, finding="gil-contention", names=("gil-hog",)),
    "cpu-hog": Spec("host", timed=True, helper="hogs", finding="waiting-for-cpu", names=("cpu-hog",)),
    "lock-convoy": Spec("host", timed=True, finding="lock-contention", names=("lock-holder",)),
    "gc-pauses": Spec("host", timed=True, finding="host-pauses"),
    "recompilation": Spec("device", cores=4, timed=True, finding="recompilation"),
    "alloc-retries": Spec("device", timed=True, finding="allocation-in-loop"),
    "empty-cache": Spec("device", timed=True, finding="allocation-in-loop"),
    "item-each-step": Spec("device", timed=True, alone=True, finding="needless-sync", names=("cudaStreamSynchronize",)),
    "pageable-copies": Spec("device", timed=True, alone=True, finding="pageable-copies"),
    "copies-back": Spec("device", timed=True, alone=True, finding="copies"),
    "tiny-kernels": Spec("device", timed=True, alone=True, finding="tiny-kernels"),
    "leak-list": Spec("leaks", stacks=True, finding="leak"),
    "leak-graph": Spec("leaks", stacks=True, finding="leak"),
    "leak-cache": Spec("leaks", stacks=True, finding="leak"),
    "leak-hooks": Spec("leaks", stacks=True, finding="leak"),
    "leak-workers": Spec("leaks", stacks=True, cores=3, finding="leak"),
    "leak-cupy": Spec("leaks", stacks=True, finding="driver-leak", names=("runtime.cpython",)),
    "leak-jax": Spec("leaks", stacks=True, env=(("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),), finding="driver-leak", names=("XLA",)),
    "leak-cuda-malloc": Spec("leaks", stacks=True, finding="driver-leak", names=("ctypes",)),
    "leak-cudamallocasync": Spec("leaks", stacks=True, env=(("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),), finding="driver-leak", names=("libc10_cuda.so",)),
    "fragmentation-oom": Spec("broken", expect=LIMIT, finding="out-of-memory", names=("in pieces of at most",)),
    "neighbour-oom": Spec("broken", alone=True, exclusive=True, helper="neighbour", expect=LIMIT, finding="out-of-memory", names=("other processes had",)),
    "hang": Spec("broken", alone=True, exclusive=True, finding="hang", names=("cudaDeviceSynchronize",)),
    "device-assert": Spec("broken", alone=True, exclusive=True, expect="device-side assert", finding="crash", names=("710",)),
    "healthy-compute": Spec("healthy", alone=True),
    "healthy-launch-bound": Spec("healthy"),
    "healthy-training": Spec("healthy", cores=4),
    "healthy-decode": Spec("healthy"),
}
# Workloads on the libraries of capture/stub, which need no GPU. They run with `--stub`.
STUB = {
    "stub-loader-cpu": Spec("stub.host", timed=True, finding="starved-loader", names=("pt_data_worker",)),
    "stub-loader-io": Spec("stub.host", timed=True, finding="starved-loader", names=("pt_data_worker",)),
    "stub-disk": Spec("stub.host", timed=True, finding="disk", names=("preadv",)),
    "stub-gil-hog": Spec("stub.host", timed=True, finding="gil-contention", names=("gil-hog",)),
    "stub-cpu-hog": Spec("stub.host", timed=True, helper="hogs", finding="waiting-for-cpu", names=("cpu-hog",)),
    "stub-cpu-quota": Spec("stub.host", timed=True, finding="cpu-quota"),
    "stub-lock-convoy": Spec("stub.host", timed=True, finding="lock-contention", names=("lock-holder",)),
    "stub-sleep": Spec("stub.host", timed=True, finding="sleep", names=("python",)),
    "stub-gc-pauses": Spec("stub.host", timed=True, finding="host-bound"),
    "stub-recompilation": Spec("stub.host", timed=True, finding="recompilation"),
    "stub-item-each-step": Spec("stub.device", timed=True, finding="needless-sync", names=("cudaStreamSynchronize",)),
    "stub-tiny-kernels": Spec("stub.device", timed=True, finding="tiny-kernels"),
    "stub-pageable-copies": Spec("stub.device", timed=True, finding="pageable-copies"),
    "stub-leak-cuda-malloc": Spec("stub.device", finding="driver-leak"),
    "stub-segfault": Spec("stub.device", finding="crash", names=("SIGSEGV",)),
    "stub-exit-status": Spec("stub.device", finding="exited-early", names=("status 3",)),
    "stub-killed": Spec("stub.device", finding="killed", names=("SIGKILL",)),
    "stub-device-assert": Spec("stub.device", finding="crash", names=("cudaStreamSynchronize", "710"), expect="returned 710"),
    "stub-failed-call": Spec("stub.device", finding="failed-call", names=("cudaStreamSynchronize", "700")),
    "stub-hang": Spec("stub.device", finding="hang", names=("cudaStreamSynchronize",)),
    "stub-healthy-compute": Spec("stub.host"),
    "stub-healthy-launch-loop": Spec("stub.host"),
    "stub-healthy-training": Spec("stub.host"),
}
# Workloads without a GPU, for tests of the runner: they run only if they are named.
DRY = {
    "dry-slow": Spec("dry", cores=1, timed=True),
    "dry-alone": Spec("dry", cores=1, timed=True, alone=True),
    "dry-fails": Spec("dry", cores=1, expect="planted"),
    "dry-broken": Spec("dry", cores=1),
    "dry-hangs": Spec("dry", cores=1, alone=True, exclusive=True),
}


def is_healthy(name):
    return name.removeprefix("stub-").startswith("healthy-")


def spec_of(name):
    return PLAN.get(name) or STUB.get(name) or DRY[name]
