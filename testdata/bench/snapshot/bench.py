#!/usr/bin/env python3
"""`analyze import torch-snapshot` against Python's own `pickle.load` of the same file.

    cargo build --release -p analyze
    python3 testdata/bench/snapshot/bench.py --dir /tmp/snapshot-bench > testdata/bench/snapshot/results.md

Makes a pickle of a gigabyte from a real snapshot of an H200 (testdata/snapshots/mixed-7gb.pickle.gz): its history again
and again, each time at other addresses and a later time, with as many call stacks; its final state at all those addresses.
The bytes are what Python's pickler writes (protocol 4, frames, every object memoized). Both programs read it in turn,
after one round that only warms the page cache.
"""
import argparse, gzip, os, pathlib, pickle, resource, statistics, struct, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SNAPSHOT = ROOT / "testdata/snapshots/mixed-7gb.pickle.gz"
SHIFT = 8 << 30      # bytes between two copies
LATER_US = 61_000    # between two copies
VARIANTS = 64        # sets of frames


def integer(value):
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


class Emitter:
    """Writes opcodes in frames and counts what the pickler would memoize."""

    def __init__(self, file):
        self.file, self.parts, self.memo, self.words = file, [], 0, {}
        file.write(b"\x80\x04")

    def end_frame(self):
        data = b"".join(self.parts)
        self.parts = []
        self.file.write(b"\x95" + struct.pack("<Q", len(data)) + data)

    def memoized(self, data):
        self.parts.append(data + b"\x94")
        self.memo += 1
        return self.memo - 1

    def reference(self, index):
        self.parts.append(b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index))

    def word(self, text):
        if text in self.words:
            self.reference(self.words[text])
        else:
            data = text.encode()
            self.words[text] = self.memoized(b"\x8c" + bytes([len(data)]) + data)

    def value(self, value):
        if isinstance(value, bool):
            self.parts.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.parts.append(integer(value))
        elif isinstance(value, str):
            self.word(value)
        elif isinstance(value, tuple):
            for part in value:
                self.value(part)
            self.memoized(b"\x86")
        else:
            raise TypeError(value)


class Frames:
    """Lists of frames: a list is one object wherever it is one object in the snapshot."""

    def __init__(self, emitter):
        self.emitter, self.frames = emitter, {}

    def emit(self, frames, lists, variant):
        emitter = self.emitter
        if id(frames) in lists:
            emitter.reference(lists[id(frames)])
            return
        lists[id(frames)] = emitter.memoized(b"]")
        if len(frames) > 1:
            emitter.parts.append(b"(")
        for frame in frames:
            key = (variant, id(frame))
            if key in self.frames:
                emitter.reference(self.frames[key])
                continue
            self.frames[key] = emitter.memoized(b"}")
            emitter.parts.append(b"(")
            emitter.word("name"), emitter.word(frame["name"])
            emitter.word("filename"), emitter.word(frame["filename"])
            emitter.word("line"), emitter.value(frame["line"] + 1000 * variant)
            emitter.parts.append(b"u")
        if frames:
            emitter.parts.append(b"e" if len(frames) > 1 else b"a")


def emit_event(emitter, frames, lists, event, copy):
    emitter.memoized(b"}")
    emitter.parts.append(b"(")
    for key, value in event.items():
        emitter.word(key)
        if key == "frames":
            frames.emit(value, lists, copy % VARIANTS)
        elif key == "addr":
            emitter.value(value - SHIFT * copy)
        elif key == "time_us":
            emitter.value(value + LATER_US * copy)
        elif key == "compile_context":
            # A new string object every time, as PyTorch makes it.
            emitter.memoized(b"\x8c\x03N/A")
        else:
            emitter.value(value)
    emitter.parts.append(b"u")


def emit_located(emitter, frames, lists, what, copy):
    """A segment or a block."""
    emitter.memoized(b"}")
    emitter.parts.append(b"(")
    for key, value in what.items():
        emitter.word(key)
        if key == "frames":
            frames.emit(value, lists, copy % VARIANTS)
        elif key == "address":
            emitter.value(value - SHIFT * copy)
        elif key == "blocks":
            emitter.memoized(b"]")
            emitter.parts.append(b"(")
            for block in value:
                emit_located(emitter, frames, lists, block, copy)
            emitter.parts.append(b"e")
        else:
            emitter.value(value)
    emitter.parts.append(b"u")


def make(path, size):
    snapshot = pickle.load(gzip.open(SNAPSHOT))
    events, segments = snapshot["device_traces"][0], snapshot["segments"]
    copies = 1 + size // len(gzip.open(SNAPSHOT).read())
    with open(path, "wb") as file:
        emitter = Emitter(file)
        frames = Frames(emitter)
        emitter.memoized(b"}")
        emitter.parts.append(b"(")
        emitter.word("segments")
        emitter.memoized(b"]")
        for copy in range(copies):
            lists = {}
            emitter.parts.append(b"(")
            for segment in segments:
                emit_located(emitter, frames, lists, segment, copy)
            emitter.parts.append(b"e")
            emitter.end_frame()
        emitter.word("device_traces")
        emitter.memoized(b"]")
        emitter.memoized(b"]")
        for copy in range(copies):
            lists = {}
            for start in range(0, len(events), 1000):
                emitter.parts.append(b"(")
                for event in events[start:start + 1000]:
                    emit_event(emitter, frames, lists, event, copy)
                emitter.parts.append(b"e")
                emitter.end_frame()
        emitter.parts.append(b"a")
        emitter.word("allocator_settings")
        emitter.memoized(b"}")
        emitter.word("PYTORCH_CUDA_ALLOC_CONF"), emitter.word("expandable_segments:False")
        emitter.parts.append(b"s")
        emitter.word("external_annotations")
        emitter.memoized(b"]")
        emitter.parts.append(b"u.")
        emitter.end_frame()
    blocks = sum(len(segment["blocks"]) for segment in segments)
    return copies * len(events), copies * (len(segments) + blocks)


def measure(command):
    """Wall and CPU seconds, peak memory in bytes, output."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = child.stdout.read().decode().strip()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - start
    if status != 0:
        sys.exit(f"{command}: status {status}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/tmp/snapshot-bench"))
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the pickle, at least")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    file, run = arguments.dir / "large.pickle", arguments.dir / "large.parquet"
    events, located = make(file, arguments.size)
    count = "sum(map(len, s['device_traces'])), len(s['segments']) + sum(len(g['blocks']) for g in s['segments'])"
    load = f"s = pickle.load(open({str(file)!r}, 'rb')); print({count}, flush=True); os._exit(0)"
    commands = {
        "pickle.load": [sys.executable, "-c", f"import pickle,os; {load}"],
        "pickle.load, gc off": [sys.executable, "-c", f"import gc,pickle,os; gc.disable(); {load}"],
        "analyze import": [str(ROOT / "target/release/analyze"), "import", "torch-snapshot", str(file), "--out", str(run), "--force"],
    }
    subprocess.run(["cat", str(file)], stdout=subprocess.DEVNULL, check=True)
    results = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            results[name].append(measure(command))
            print(name, results[name][-1], file=sys.stderr)
    expected = f"({events}, {located})".strip("()").replace(",", "")
    assert all(result[3] == expected for name in results if "load" in name for result in results[name]), expected
    stacks = subprocess.run([str(ROOT / "target/release/analyze"), "sql", str(run),
                             "SELECT op, count(*) FROM events WHERE kind = 'name' OR op LIKE 'state%' GROUP BY op ORDER BY op"],
                            stdout=subprocess.PIPE, check=True).stdout.decode().split()
    median = {name: [statistics.median(result[i] for result in runs) for i in range(3)] for name, runs in results.items()}
    ours = median["analyze import"]
    gib = 1 << 30
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    print("# Importing a large snapshot\n")
    print(f"`python3 testdata/bench/snapshot/bench.py`: a pickle of {file.stat().st_size / gib:.2f} GiB with {events:,} events and "
          f"{located:,} segments and blocks, made from a real one; {os.cpu_count()} CPUs ({model}), Python {sys.version.split()[0]}. "
          f"Medians of {arguments.rounds} rounds, in turn.\n")
    print("| | wall | CPU | peak memory |\n|---|---|---|---|")
    for name, (wall, cpu, memory) in median.items():
        print(f"| `{name}` | {wall:.1f} s | {cpu:.1f} s | {memory / gib:.2f} GiB |")
    for name, theirs in median.items():
        if name != "analyze import":
            print(f"| `analyze import` ÷ `{name}` | {ours[0] / theirs[0]:.2f} | {ours[1] / theirs[1]:.2f} | {ours[2] / theirs[2]:.3f} |")
    print()
    walls = [sorted(o[0] / t[0] for o, t in zip(results["analyze import"], results["pickle.load"]))]
    print(f"Wall ratio to `pickle.load` by round: {', '.join(f'{ratio:.2f}' for ratio in walls[0])}. "
          f"`pickle.load` only builds the objects and its process then exits without freeing them; `analyze import` writes "
          f"the whole run ({run.stat().st_size / (1 << 20):.0f} MiB; {'; '.join(stacks[1:])}).")


if __name__ == "__main__":
    main()
