#!/usr/bin/env python3
"""`analyze import kineto` of a trace of gigabytes, against Python's readers of the same file.

    pip install ijson
    cargo build --release -p analyze
    python3 testdata/bench/kineto/bench.py --dir /tmp/kineto-bench > testdata/bench/kineto/results.md
    python3 testdata/bench/kineto/bench.py --dir /tmp/kineto-bench --make-only --gigabytes 5

A real profile of an H200 (testdata/align/aligned-full.kineto.json.gz) again and again, byte for byte as PyTorch's profiler
wrote it but for what tells one moment from another: times go on, correlation and external ids and the numbers of ranges are
new, and eight threads take turns. As in a profile of that length, what the host did comes first, for the whole time, then what
CUPTI saw, then the ranges on the GPU: the events are in no order of time. The same arguments make the same bytes.

`json.load` needs several times the file in memory, so it reads a smaller trace; `ijson` (its C backend) reads both, event by event.
"""
import argparse, gzip, json, os, pathlib, re, statistics, subprocess, sys, time
from decimal import Decimal

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACE = ROOT / "testdata/align/aligned-full.kineto.json.gz"
ANALYZE = ROOT / "target/release/analyze"
PERIOD_US = 100_000  # between two copies; the trace has 94,000
THREADS = 8          # that take turns
GB = 10**9
NUMBERS = re.compile(r'("ts": |"correlation": |"External id": |"Ev Idx": |"id": |"name": "profiled )(\d+)|("tid": )(\d+)')


class Section:
    """Events as a template, and what is put into it: a number and what a copy adds to it."""

    def __init__(self, events, pid, strides):
        self.events, self.numbers, self.threads = events, [], []
        text = NUMBERS.sub(lambda match: self.hole(match, pid, strides), ",\n".join(events).replace("%", "%%"))
        self.template = text + ",\n"

    def hole(self, match, pid, strides):
        key, number, tid_key, tid = match.groups()
        self.numbers.append((int(number or tid), 0 if tid_key else strides[key], 0))
        # Streams have the same field; they are small numbers.
        if tid_key and int(tid) >= pid:
            self.numbers[-1] = (int(tid), 0, 1000)
        return (key or tid_key) + "%d"

    def copy(self, index):
        thread = index % THREADS
        return self.template % tuple([base + index * step + thread * by for base, step, by in self.numbers])


def sections():
    """The text before the events, their sections, and the text from the metadata on."""
    text = gzip.open(TRACE, "rt").read()
    head, rest = re.split(r'(?<="traceEvents": \[\n)', text, maxsplit=1)
    last = re.search(r'  \{\n    "name": "process_name"', rest).start()
    events = rest[:last].removesuffix(",\n").split(",\n  {\n")
    events = [events[0], *("  {\n" + event for event in events[1:])]
    is_host = [any(f'"cat": "{name}"' in event for name in ("cpu_op", "user_annotation", "fwdbwd")) for event in events]
    pid = int(re.search(r'"pid": (\d+)', events[0])[1])
    first = is_host.index(False)
    ranges = next(index for index, event in enumerate(events) if '"gpu_user_annotation"' in event)
    largest = lambda key: 1 + max((int(number) for number in re.findall(re.escape(key) + r"(\d+)", text)), default=0)
    strides = {key: PERIOD_US if key == '"ts": ' else largest(key)
               for key in ('"ts": ', '"correlation": ', '"External id": ', '"Ev Idx": ', '"id": ', '"name": "profiled ')}
    parts = [events[:first], events[first:ranges], events[ranges:]]
    return head, [Section(part, pid, strides) for part in parts], rest[last:]


def make(path, size):
    """Writes a trace of at least that many bytes; how many copies it has."""
    head, parts, tail = sections()
    copies = -(-(size - len(head) - len(tail)) // sum(len(part.copy(0)) for part in parts))
    with open(path, "w") as file:
        file.write(head)
        for part in parts:
            for index in range(copies):
                file.write(part.copy(index))
        file.write(tail)
    return copies


def expected(copies):
    """Per kind of row: how many, and the sums of what they have; from Python's reading of the small trace."""
    trace = json.load(gzip.open(TRACE, "rt"), parse_float=Decimal)
    found = {}
    for event in trace["traceEvents"]:
        category = event.get("cat", "")
        if event["ph"] not in "Xi":
            continue
        kind = {"cuda_runtime": "call", "cuda_driver": "call", "user_annotation": "mark"}.get(category, "host")
        if category in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation"):
            kind = "device"
        repeats = 1 if category in ("", "Trace") else copies
        sums = found.setdefault(kind, [0, 0, 0])
        sums[0] += repeats
        sums[1] += repeats * int(Decimal(event.get("dur", 0)) * 1000)
        sums[2] += repeats * event.get("args", {}).get("bytes", 0)
    return {kind: tuple(sums) for kind, sums in found.items()}


def imported(run):
    query = "SELECT kind, count(*), sum(dur), coalesce(sum(size_bytes), 0) FROM events GROUP BY kind"
    lines = subprocess.run([ANALYZE, "sql", run, query, "--format", "csv"], stdout=subprocess.PIPE, check=True).stdout.decode().split()[1:]
    return {kind: tuple(int(number) for number in numbers) for kind, *numbers in (line.split(",") for line in lines)}


def measure(command):
    """Wall and CPU seconds, peak memory in bytes, output."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = child.stdout.read().decode().strip()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command}: status {status}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output


def commands(file, run, with_load):
    load = f"import json,os; n = len(json.load(open({str(file)!r}))['traceEvents']); print(n, flush=True); os._exit(0)"
    stream = f"import ijson.backends.yajl2_c as j; print(sum(1 for _ in j.items(open({str(file)!r}, 'rb'), 'traceEvents.item')))"
    found = {"json.load": [sys.executable, "-c", load]} if with_load else {}
    return found | {
        "ijson.items": [sys.executable, "-c", stream],
        "analyze import": [str(ANALYZE), "import", "kineto", str(file), "--out", str(run), "--force"],
    }


def compare(directory, size, rounds, with_load):
    file, run = directory / "large.json", directory / "large.parquet"
    copies = make(file, size)
    results = {}
    for _ in range(rounds):
        for name, command in commands(file, run, with_load).items():
            results.setdefault(name, []).append(measure(command))
            print(name, results[name][-1], file=sys.stderr)
    found, wanted = imported(run), expected(copies)
    assert found == wanted, (found, wanted)
    events = {result[3] for name, runs in results.items() if name != "analyze import" for result in runs}
    assert len(events) == 1, events
    size = file.stat().st_size
    print(f"\n## {size / GB:.2f} GB, {int(events.pop()):,} events\n")
    print("| | wall | CPU | peak memory | bytes a second of CPU |\n|---|---|---|---|---|")
    median = {name: [statistics.median(result[i] for result in runs) for i in range(3)] for name, runs in results.items()}
    for name, (wall, cpu, memory) in median.items():
        print(f"| `{name}` | {wall:.1f} s | {cpu:.1f} s | {memory / (1 << 20):,.0f} MiB | {size / cpu / 1e6:.0f} MB |")
    ours = median["analyze import"]
    for name, theirs in median.items():
        if name != "analyze import":
            print(f"| `analyze import` ÷ `{name}` | {ours[0] / theirs[0]:.2f} | {ours[1] / theirs[1]:.2f} | {ours[2] / theirs[2]:.3f} | |")
    rows = sum(sums[0] for sums in found.values())
    print(f"\nThe run has {rows:,} rows in {run.stat().st_size / 1e6:.0f} MB; per kind their number and the sums of `dur` and `size_bytes` are "
          "those of the small trace, times its copies.", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/tmp/kineto-bench"))
    parser.add_argument("--gigabytes", type=float, default=5, help="of the large trace")
    parser.add_argument("--small-gigabytes", type=float, default=1, help="of the one that json.load reads, too")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--make-only", action="store_true", help="write large.json and measure nothing")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    if arguments.make_only:
        print(make(arguments.dir / "large.json", int(arguments.gigabytes * GB)), "copies")
        return
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    print("# Importing a large profile\n")
    print(f"`python3 testdata/bench/kineto/bench.py`, {os.cpu_count()} CPUs ({model}), Python {sys.version.split()[0]}, {arguments.rounds} "
          "round(s) in turn, medians. Python's programs only read the events and count them (`json.load`'s exits without freeing them); "
          "`analyze import` writes the whole run, in the order of time.", flush=True)
    compare(arguments.dir, int(arguments.small_gigabytes * GB), arguments.rounds, True)
    compare(arguments.dir, int(arguments.gigabytes * GB), arguments.rounds, False)


if __name__ == "__main__":
    main()
