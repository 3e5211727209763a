#!/usr/bin/env python3
"""The replay of PyTorch's allocator, on millions of its own events, against Python's reading of the same snapshot.

    cargo build --release --workspace --bin analyze
    python3 testdata/bench/memory/bench.py ORACLE VIZ --dir /tmp/memory-bench > testdata/bench/memory/results.md

ORACLE is a program that runs `libc10_cuda.so` without a device (testdata/oracle/run.py says how it is called), VIZ is
`torch/cuda/_memory_viz.py` of a wheel. The real allocator runs a random workload with some 2,000 blocks in use on four
streams; its events become a snapshot's pickle, as PyTorch's pickler writes it, whole or with its first half cut off as by a
full ring, and `analyze import torch-snapshot` makes runs of that. All programs run in turn.
"""
import argparse, importlib.util, os, pathlib, random, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
ANALYZE = ROOT / "target/release/analyze"
spec = importlib.util.spec_from_file_location("snapshot_bench", ROOT / "testdata/bench/snapshot/bench.py")
snapshot_bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(snapshot_bench)

MIB = 1 << 20
SIZES = [512, 4096, 100_000, 900_000, MIB, 3 * MIB, 9 * MIB, 11 * MIB, 25 * MIB]
IN_USE = 2000
STACKS = 200


def workload(events):
    """Operations of about so many events: an allocation is one, a free two."""
    chance = random.Random(1)
    live, lines, number = [], [], 0
    while 3 * number < events:
        if len(live) < IN_USE or chance.random() < 0.5:
            number += 1
            size = chance.choice(SIZES) if chance.random() < 0.5 else chance.randint(1, chance.choice(SIZES))
            lines.append(f"a {number} {size} {chance.choice([0, 0, 0, 1, 2, 3])}")
            live.append(number)
        if len(live) >= IN_USE:
            index = chance.randrange(len(live))
            live[index], live[-1] = live[-1], live[index]
            lines.append(f"f {live.pop()}")
    return lines + ["s"]


def emit(path, events, segments):
    with open(path, "wb") as file:
        emitter = snapshot_bench.Emitter(file)
        frames = snapshot_bench.Frames(emitter)
        stacks = [[{"name": f"function_{i}", "filename": "/job/train.py", "line": i},
                   {"name": "step", "filename": "/job/train.py", "line": 7}] for i in range(STACKS)]
        lists = {}
        emitter.memoized(b"}")
        emitter.parts.append(b"(")
        emitter.word("segments")
        emitter.memoized(b"]")
        emitter.parts.append(b"(")
        for segment in segments:
            snapshot_bench.emit_located(emitter, frames, lists, segment, 0)
        emitter.parts.append(b"e")
        emitter.word("device_traces")
        emitter.memoized(b"]")
        emitter.memoized(b"]")
        for start in range(0, len(events), 1000):
            emitter.parts.append(b"(")
            for number, line in enumerate(events[start:start + 1000], start):
                action, addr, size, stream = line.split()
                snapshot_bench.emit_event(emitter, frames, lists, {
                    "action": action, "addr": int(addr, 16), "size": int(size), "stream": int(stream),
                    "time_us": 1_700_000_000_000_000 + number, "compile_context": "N/A", "user_metadata": "",
                    "frames": stacks[number % STACKS]}, 0)
            emitter.parts.append(b"e")
            emitter.end_frame()
        emitter.parts.append(b"a")
        emitter.word("allocator_settings")
        emitter.memoized(b"}")
        emitter.word("PYTORCH_CUDA_ALLOC_CONF"), emitter.word("expandable_segments:False")
        emitter.parts.append(b"s")
        emitter.parts.append(b"u.")
        emitter.end_frame()


def state(lines):
    """The segments that the allocator had in the end."""
    segments = []
    for line in lines:
        words = line.split()
        if words[0] != "S":
            continue
        address, at, blocks = int(words[1], 16), int(words[1], 16), []
        for block in words[6:]:
            size, requested, letter = block.split(":")
            names = {"A": "active_allocated", "P": "active_pending_free", "i": "inactive"}
            blocks.append({"address": at, "size": int(size), "requested_size": int(requested), "state": names[letter], "frames": []})
            at += int(size)
        segments.append({"device": 0, "address": address, "total_size": int(words[2]), "allocated_size": 0, "active_size": 0,
                         "requested_size": 0, "stream": int(words[3]), "segment_type": "large" if words[4] == "1" else "small",
                         "segment_pool_id": (0, 0), "is_expandable": words[5] == "1", "frames": [], "blocks": blocks})
    return segments


def make(folder, oracle, count, parts, reuse):
    """Pickles and runs, whole and late, and how many events they have."""
    folder.mkdir(parents=True, exist_ok=True)
    ops, out = folder / "ops", folder / "out"
    if not (reuse and out.exists()):
        ops.write_text("\n".join(workload(count)) + "\n")
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False", "FAKE_LOG": os.devnull}
        subprocess.run([oracle, ops, out], env=environment, check=True)
    segments = state([line for line in open(out) if line.startswith("S ")])
    events = [line[2:] for line in open(out) if line.startswith("E ")]
    made = {}
    for name in parts:
        part = events if name == "whole" else events[len(events) // 2:]
        path, run = folder / f"{name}.pickle", folder / f"{name}.parquet"
        made[name] = (path, run, len(part))
        if reuse and run.exists():
            continue
        emit(path, part, segments)
        subprocess.run([ANALYZE, "import", "torch-snapshot", path, "--out", run, "--force"], check=True, stdout=subprocess.DEVNULL)
        problems = subprocess.run([ANALYZE, "sql", run, "SELECT * FROM data_quality"], check=True, stdout=subprocess.PIPE)
        assert problems.stdout.decode() == "run,problem,rows_count\n", problems.stdout.decode()
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oracle", type=pathlib.Path)
    parser.add_argument("viz", type=pathlib.Path)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/tmp/memory-bench"))
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--peer-events", type=int, default=10_000_000, help="the most that Python is asked to read")
    parser.add_argument("--late-events", type=int, default=10_000_000, help="the longest history that is also cut")
    parser.add_argument("--reuse", action="store_true", help="what has been made before")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    load = "import gc, os, pickle, sys; gc.disable(); s = pickle.load(open(sys.argv[1], 'rb'))"
    viz = ("import importlib.util as u; p = u.spec_from_file_location('viz', sys.argv[2]); v = u.module_from_spec(p); "
           "p.loader.exec_module(v); n = len(v.trace(s))")
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    print("# Replaying the allocator\n")
    print(f"`python3 testdata/bench/memory/bench.py`: events of the real allocator in a random workload with {IN_USE:,} blocks in use, "
          f"{os.cpu_count()} CPUs ({model}), Python {sys.version.split()[0]} with its garbage collector off. "
          f"Medians of {arguments.rounds} rounds, in turn.\n")
    for count in arguments.events:
        parts = ["whole", "late"] if count <= arguments.late_events else ["whole"]
        made = make(arguments.dir / str(count), arguments.oracle.resolve(), count, parts, arguments.reuse)
        pickle_path, run, events = made["whole"]
        count_query = "SELECT count(*) FROM memory_blocks"
        commands = {
            "analyze memory RUN --at peak": [ANALYZE, "memory", run, "--at", "peak"],
            "analyze memory RUN --at end": [ANALYZE, "memory", run, "--at", "end"],
            f'analyze sql RUN "{count_query}"': [ANALYZE, "sql", run, count_query],
        }
        late = made.get("late")
        if late:
            commands[f"the same, of the later half of it ({late[2]:,} events)"] = [ANALYZE, "sql", late[1], count_query]
        if events <= arguments.peer_events * 1.1:
            commands["Python: pickle.load"] = [sys.executable, "-c", f"{load}; os._exit(0)", pickle_path]
            commands["Python: pickle.load, _memory_viz.trace"] = [
                sys.executable, "-c", f"{load}; {viz}; print(n, flush=True); os._exit(0)", pickle_path, arguments.viz]
        results = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                results[name].append(snapshot_bench.measure([str(word) for word in command]))
                print(count, name, results[name][-1][:3], file=sys.stderr)
        median = {name: [statistics.median(one[i] for one in ofs) for i in range(3)] for name, ofs in results.items()}
        whole = median[f'analyze sql RUN "{count_query}"']
        print(f"## {events:,} events\n\n| | wall | CPU | peak memory | events a second | wall ÷ that of `memory_blocks` |\n|---|---|---|---|---|---|")
        for name, (wall, cpu, memory) in median.items():
            of = late[2] if "half" in name else events
            print(f"| `{name}` | {wall:.2f} s | {cpu:.2f} s | {memory / MIB:.0f} MiB | {of / wall / 1e6:.2f} M | {wall / whole[0]:.2f} |")
        print()


if __name__ == "__main__":
    main()
