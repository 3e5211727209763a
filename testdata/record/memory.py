"""Small programs, each around one way in which GPU memory is held, that write down what PyTorch itself says of its memory.

Usage: memory.py SCENARIO STATE.json [SEED]; what STATE.json holds: state.py.
"""

import ctypes
import gc
import gzip
import os
import pickle
import random
import subprocess
import sys
import time

import torch
from buffers import MIB, begin, buffer, churn, size_of
from changes import changed
from full import crowded, plain
from state import QUIET_S, State, now_ns

HERE = os.path.dirname(os.path.abspath(__file__))


def history(state):
    """The same with PyTorch's own history of it, as a snapshot of the last moment beside STATE.json."""
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    begin(state)
    chance, kept = random.Random(8), []
    churn(chance, kept, 60)
    state.mark("before the snapshot")
    snapshot = torch.cuda.memory._snapshot()
    state.mark("after the snapshot")
    with gzip.open(state.path.replace(".state.json", "") + ".snapshot.pickle.gz", "wb") as file:
        pickle.dump(snapshot, file)


# CUDA graphs and their private pools.


def graphs(state):
    begin(state)
    weights = [torch.randn(1024, 1024, device="cuda") for _ in range(3)]
    inputs = torch.randn(512, 1024, device="cuda")

    def net(scale):
        x = inputs * scale
        for weight in weights:
            x = torch.relu(x @ weight)
        return torch.cat([x, x * 2], dim=1)

    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                net(1)
        torch.cuda.current_stream().wait_stream(side)
        state.mark("warm")
        captured, outputs = {}, {}

        def capture(name, pool=None):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                outputs[name] = net(len(outputs) + 1)
            captured[name] = graph
            state.mark(f"captured {name}")

        capture("first")
        capture("second, in the first one's pool", captured["first"].pool())
        capture("third")
        for graph in captured.values():
            for _ in range(5):
                graph.replay()
        state.mark("replayed")
        outside = [buffer(3 * MIB), buffer(30 * MIB)]
        del outputs["first"]
        state.mark("the first one's output deleted")
        torch.cuda.empty_cache()
        state.mark("cache emptied")
        del captured["first"], graph
        state.mark("first deleted")
        torch.cuda.empty_cache()
        state.mark("cache emptied, the second one holds the pool")
        captured["third"].reset()
        del captured["third"]
        torch.cuda.empty_cache()
        state.mark("third deleted, its output is alive, cache emptied")
        outputs.clear()
        torch.cuda.empty_cache()
        state.mark("outputs deleted, cache emptied")
        captured.clear()
        state.mark("graphs deleted")
        torch.cuda.empty_cache()
        state.mark("cache emptied after the graphs")
        del outside, inputs
        weights.clear()
        torch.cuda.empty_cache()
        state.mark("end")


# Several streams: what one of them still uses is given back later.


def streams(state):
    begin(state)
    chance = random.Random(9)
    others = [torch.cuda.Stream(), torch.cuda.Stream()]
    state.data["streams"] = [stream.cuda_stream for stream in others]
    long = 400_000_000  # GPU cycles: a fifth of a second

    def use(stream, tensor, cycles):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)
            tensor.add_(1)
        tensor.record_stream(stream)

    # A kernel's first launch loads it, which waits for the GPU.
    warm = buffer(1000)
    use(others[0], warm, 1000)
    torch.cuda.synchronize()
    del warm
    busy = [buffer(8 * MIB), buffer(100_000), buffer(24 * MIB)]
    for tensor in busy:
        use(others[0], tensor, long)
    state.mark("in use", wait=False)
    del tensor
    busy.clear()
    state.mark("asked to be given back", wait=False)
    after = buffer(8 * MIB)
    state.mark("not yet: new memory", wait=False)
    state.mark("the GPU is done")
    more = buffer(100_000)
    state.mark("given back by the next allocation")
    with torch.cuda.stream(others[1]):
        elsewhere = [buffer(8 * MIB), buffer(100_000)]
    state.mark("other streams have caches of their own")
    use(others[0], elsewhere[0], long)
    elsewhere.clear()
    torch.cuda.empty_cache()
    state.mark("emptying the cache waits for the GPU")
    del after, more
    kept = []
    for step in range(150):
        with torch.cuda.stream(chance.choice([torch.cuda.default_stream(), *others])):
            kept.append(buffer(size_of(chance)))
        for _ in range(chance.randint(0, 2)):
            if chance.random() < 0.5:
                use(chance.choice(others), chance.choice(kept), chance.randint(10_000, 3_000_000))
        while sum(tensor.nbytes for tensor in kept) > 400 * MIB or kept and chance.random() < 0.4:
            kept.pop(chance.randrange(len(kept)))
        if step % 30 == 29:
            state.mark(f"step {step}, under way", wait=False)
        if step % 50 == 49:
            torch.cuda.empty_cache()
            state.mark(f"step {step}, cache emptied")
    kept.clear()
    state.mark("all asked to be given back")
    torch.cuda.empty_cache()
    state.mark("end")


# The worked examples of PyTorch's developers ("When does fragmentation occur in the CUDA caching allocator?").

# Name; with expandable segments: no, yes, both; steps: sizes to take in MiB, indices to give back, "all"; reserved MiB after each step.
EXAMPLES = [
    ("T1", "no", [32, [0], 16, 16, [0], "all"], [32, 32, 32, 32, 32, 32]),
    ("T2", "no", [*[16] * 8, "all", *[32] * 4], [16, 32, 48, 64, 80, 96, 112, 128, 128, 160, 192, 224, 256]),
    ("T3", "no", [*[32] * 4, "all", *[16] * 8], [32, 64, 96, 128, 128, *[128] * 8]),
    ("T4", "yes", [16] * 8, [20, 40, 60, 80, 80, 100, 120, 140]),
    ("T5", "yes", [*[16] * 8, "all", *[32] * 4], [20, 40, 60, 80, 80, 100, 120, 140, 140, *[140] * 4]),
    ("T6", "yes", [16, 16, 16, 16, [0, 2], 32, "all", 32], [20, 40, 60, 80, 80, 100, 100, 100]),
    ("T7", "both", [2, "all", 0.5], [20, 20, 22]),
    ("T8", "yes", [2, "all", 2], [20, 20, 20]),
]


def examples(state):
    begin(state)
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    mine = "yes" if "expandable_segments:True" in settings else "no"
    for name, which, steps, reserved in EXAMPLES:
        if which not in (mine, "both"):
            continue
        held = []
        for number, (step, expected) in enumerate(zip(steps, reserved, strict=True)):
            if step == "all":
                held.clear()
            elif isinstance(step, list):
                for index in sorted(step, reverse=True):
                    del held[index]
            else:
                held.append(buffer(int(step * MIB)))
            state.mark(f"{name} step {number}", expected_reserved_bytes=expected * MIB)
            got = state.data["marks"][-1]["stats"]["reserved_bytes.all.current"]
            if got != expected * MIB:
                print(f"{name} step {number}: {got / MIB} MiB are reserved, not {expected}")
        held.clear()
        torch.cuda.empty_cache()
        state.mark(f"{name} over")


# Text generation in rounds.


def generate(state):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    begin(state)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config)
    model = model.to(torch.bfloat16).eval()
    state.mark("model loaded")
    with torch.no_grad():
        for number in range(1, 4):
            prompt = torch.randint(0, 151936, (4, 256 + 64 * number), device="cuda")
            output = model.generate(prompt, max_new_tokens=8, min_new_tokens=8, do_sample=False)
            state.mark(f"round {number}")
            del prompt, output
            torch.cuda.empty_cache()
            state.mark(f"round {number}, cache emptied")
    del model
    state.mark("model deleted")
    gc.collect()
    state.mark("garbage collected")
    torch.cuda.empty_cache()
    state.mark("cache emptied")
    torch._C._cuda_clearCublasWorkspaces()
    state.mark("cuBLAS workspaces deleted")
    torch.cuda.empty_cache()
    state.mark("end")


# Leaks, and what only looks like one.


class Job:
    """Epochs of a made-up service. Each kind of memory that a job may hold has a function of its own."""

    def __init__(self, seed, leaks):
        self.chance = random.Random(seed)
        self.leaks = leaks
        self.leak_bytes = self.chance.choice([100_000, 500_000, 3 * MIB, 8 * MIB]) + 4 * self.chance.randint(0, 10_000)
        self.leak_probability = self.chance.choice([0.6, 1.0])
        self.entries_count = self.chance.randint(4, 12)
        self.one_off_epoch = self.chance.randint(3, 25)
        self.dropped_every = self.chance.randint(4, 9)
        self.weights = [buffer(self.chance.randint(MIB, 20 * MIB)) for _ in range(4)]
        self.cache, self.collected, self.index, self.forgotten = [], [], [], []

    def temporaries(self):
        for _ in range(self.chance.randint(5, 20)):
            held = [buffer(size_of(self.chance) // 2) for _ in range(self.chance.randint(1, 4))]
            del held

    def bounded_cache(self):
        self.cache.append(buffer(self.chance.randint(100_000, 4 * MIB)))
        del self.cache[: -self.entries_count]

    def sawtooth(self, epoch):
        self.collected.append(buffer(self.chance.randint(MIB, 5 * MIB)))
        if epoch % self.dropped_every == self.dropped_every - 1:
            self.collected.clear()

    def one_off(self, epoch):
        if epoch == self.one_off_epoch:
            self.index.append(buffer(60 * MIB))

    def remember_request(self):
        """The leak: what it keeps is never looked at again."""
        forgets, more_bytes = self.chance.random() < self.leak_probability, self.chance.randint(0, 2_000)
        if self.leaks and forgets:
            self.forgotten.append(buffer(self.leak_bytes + more_bytes))

    def epoch(self, number):
        self.temporaries()
        self.bounded_cache()
        self.sawtooth(number)
        self.remember_request()
        self.one_off(number)
        self.temporaries()


def leaking(state, leaks, seed, epochs=40):
    begin(state)
    job = Job(seed, leaks)
    for number in range(epochs):
        state.send(f"begin epoch {number}")
        job.epoch(number)
        state.send(f"end epoch {number}")
        state.mark(f"after epoch {number}", blocks=number == epochs - 1)
    leaked = [[tensor.data_ptr(), tensor.nbytes] for tensor in job.forgotten]
    state.data |= {"seed": seed, "epochs": epochs, "leak": {"function": "Job.remember_request", "blocks": leaked}}


# An allocator that gives its memory back and keeps its addresses.


def pause(state):
    library = os.path.join(HERE, "pluggable.so")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "pausable_malloc", "pausable_free")
    torch.cuda.memory.change_current_allocator(allocator)
    calls = ctypes.CDLL(library)
    calls.pausable_block.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong * 4)]

    def look(name):
        """This allocator has no statistics, but a list: address, size, whether there is memory behind it."""
        torch.cuda.synchronize()
        mark = {"name": name, "ts_ns": state.send(name), "blocks": []}
        block, index = (ctypes.c_ulonglong * 4)(), 0
        while calls.pausable_block(index, ctypes.byref(block)):
            if block[0]:
                mark["blocks"].append([block[0], block[1], bool(block[3])])
            index += 1
        mark["free_bytes"], mark["total_bytes"] = torch.cuda.mem_get_info()
        mark["end_ns"] = now_ns()
        time.sleep(QUIET_S)
        state.data["marks"].append(mark)

    def timed(name, call):
        torch.cuda.synchronize()
        start = state.send(f"begin {name}")
        assert call() == 0
        state.data.setdefault("phases", []).append([name, start, now_ns()])
        state.send(f"end {name}")
        look(f"after {name}")

    torch.cuda.init()
    torch.cuda.synchronize()
    look("start")
    tensors = [torch.full((4 * i * MIB,), i, dtype=torch.uint8, device="cuda") for i in range(1, 13)]
    look("allocated")
    for number in range(2):
        timed(f"pause {number}", calls.pausable_pause)
        timed(f"resume {number}", calls.pausable_resume)
    del tensors[3]
    look("one deleted")
    timed("pause 2", calls.pausable_pause)
    timed("resume 2, of all but two", lambda: calls.pausable_resume_but(2))
    state.data["kept_tensors"] = [[tensor.data_ptr(), tensor.nbytes] for tensor in tensors]
    state.write()
    # Not through the destructors: the run ends with two blocks that nobody has resumed.
    os._exit(0)


# Two processes on one GPU.


def touch(path):
    with open(path, "w"):
        pass


def wait_for(path):
    deadline = time.monotonic() + 120
    while not os.path.exists(path):
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def hold(state):
    """Takes 1 GiB, makes STATE.json.ready, and keeps it until there is STATE.json.stop."""
    begin(state)
    held = buffer(1 << 30)
    state.mark("holds 1 GiB")
    touch(state.path + ".ready")
    wait_for(state.path + ".stop")
    del held
    torch.cuda.empty_cache()
    state.mark("end")


def work_beside(state, other):
    begin(state)
    mine = [buffer(300 * MIB), buffer(700_000)]
    state.mark("beside the other")
    time.sleep(0.5)  # A few readings of the GPU's counters.
    other()
    time.sleep(0.5)
    state.mark("the other is gone")
    del mine
    torch.cuda.empty_cache()
    state.mark("end")


def process(state):
    """The other process is a child of this one, and recorded with it."""
    path = state.path.replace(".state.json", "") + ".child.state.json"
    command = [sys.executable, os.path.abspath(__file__), "hold", path]
    child = subprocess.Popen(command)
    wait_for(path + ".ready")

    def end():
        touch(path + ".stop")
        assert child.wait() == 0

    state.data["child_pid"] = child.pid
    work_beside(state, end)


def neighbour(state):
    """The other process is not recorded; it was there before, and its marks are in $NEIGHBOUR."""
    path = os.environ["NEIGHBOUR"]
    wait_for(path + ".ready")

    def end():
        touch(path + ".stop")
        wait_for(path + ".gone")

    work_beside(state, end)


def borrow(queue, has, may_end):
    tensor = queue.get()
    has.set()
    may_end.wait()
    del tensor
    gc.collect()


def lend(state):
    """A buffer goes to another process, is given up here, and stays until that process has given it up, too."""
    context = torch.multiprocessing.get_context("spawn")
    begin(state)
    kept, lent = buffer(64 * MIB), buffer(48 * MIB)
    queue, has, may_end = context.Queue(), context.Event(), context.Event()
    child = context.Process(target=borrow, args=(queue, has, may_end))
    child.start()
    state.data["child_pid"] = child.pid
    queue.put(lent)
    assert has.wait(60)
    state.mark("lent")
    del lent
    gc.collect()
    torch.cuda.empty_cache()
    state.mark("given up")
    may_end.set()
    child.join()
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    state.mark("given back")
    del kept
    torch.cuda.empty_cache()
    state.mark("end")


def exchange(mine, theirs, has, may_give_up, has_given_up, may_end):
    """Another process: receives two buffers and sends one, and gives up the first of the two when it is told to."""
    first, second = mine.get(), mine.get()
    theirs.put(buffer(16 * MIB))
    has.set()
    may_give_up.wait()
    del first
    gc.collect()
    torch.cuda.synchronize()
    has_given_up.set()
    may_end.wait()
    del second


def current(state, statistic):
    return state.data["marks"][-1]["stats"][f"{statistic}_bytes.all.current"]


def sleep(state):
    """Makes room as vLLM does when it sleeps. `parts`: what PyTorch itself counted around each call."""
    context = torch.multiprocessing.get_context("spawn")
    begin(state)
    kept, cached = buffer(64 * MIB), buffer(40 * MIB)
    lent = [buffer(48 * MIB), buffer(24 * MIB)]
    queues = context.Queue(), context.Queue()
    has, may_give_up, has_given_up, may_end = (context.Event() for _ in range(4))
    child = context.Process(target=exchange, args=(*queues, has, may_give_up, has_given_up, may_end))
    child.start()
    state.data["child_pid"] = child.pid
    for tensor in lent:
        queues[0].put(tensor)
    assert has.wait(60)
    gc.disable()
    # Only a garbage collection frees what is in a circle: memory of this process, and the other's, whose handle is closed.
    circle = [buffer(96 * MIB), queues[1].get(timeout=60)]
    circle.append(circle)
    del circle, cached, lent, tensor
    may_give_up.set()
    assert has_given_up.wait(60)
    state.mark("before")
    parts = {}
    for name, statistic, call in (
        ("garbage_freed_bytes", "allocated", gc.collect),
        ("released_bytes", "reserved", torch.cuda.empty_cache),
        ("ipc_freed_bytes", "allocated", torch.cuda.ipc_collect),
        ("released_later_bytes", "reserved", torch.cuda.empty_cache),
    ):
        before = current(state, statistic)
        call()
        state.mark(name)
        parts[name] = before - current(state, statistic)
    state.data["parts"] = parts | {"closed_handles_count": 1}
    print(parts)
    gc.enable()
    may_end.set()
    child.join()
    del kept
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    state.mark("end")


SCENARIOS = {
    "changed": lambda state: changed(state, sys.argv[3]),
    "plain": plain,
    "crowded": crowded,
    "history": history,
    "graphs": graphs,
    "streams": streams,
    "examples": examples,
    "generate": generate,
    "leak": lambda state: leaking(state, True, int(sys.argv[3])),
    "no_leak": lambda state: leaking(state, False, int(sys.argv[3])),
    "pause": pause,
    "hold": hold,
    "process": process,
    "lend": lend,
    "sleep": sleep,
    "neighbour": neighbour,
}


def main():
    name, path = sys.argv[1:3]
    state = State(name, path)
    try:
        SCENARIOS[name](state)
    finally:
        state.write()


if __name__ == "__main__":
    main()
