#!/usr/bin/env python3
"""`analyze chains` on generated runs, beside DataFusion's scan of the columns that it reads.

    cargo build --release -p analyze --bins --examples
    python testdata/bench/chains/bench.py --out testdata/bench/chains/results.md

Needs nothing but Python. Generates what is not there yet (100,000,000 events: 1 GB, four minutes), then runs both programs
on each size, one process after the other, and prints, and with --out writes, one table: wall and CPU time of the whole
process (which a busy machine disturbs less) and its peak memory; medians of --repeats runs, the largest of the peaks. The
files stay in the page cache where it is large enough, for both.
"""

import argparse
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time


def run_once(command):
    """Wall and CPU seconds and peak bytes of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} failed ({process.returncode}): {error.decode()[-500:]}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure(command, repeats):
    walls, cpus, peaks = zip(*(run_once(command) for _ in range(repeats)))
    return statistics.median(walls), statistics.median(cpus), max(peaks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path("target/release"))
    parser.add_argument("--folder", type=pathlib.Path, help="where the runs are kept [default: a temporary one]")
    parser.add_argument("--sizes", default="1000000,10000000,100000000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    temporary = None if args.folder else tempfile.TemporaryDirectory()
    folder = args.folder or pathlib.Path(temporary.name)
    folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    lines = [
        "# What bench.py measured",
        "",
        f"{os.cpu_count()} CPUs ({platform.machine()}), load average before the run {load:.1f}, medians of {args.repeats} runs.",
        "",
        "| events | file MiB | program | wall s | times the scan | CPU s | times the scan | peak RSS MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in map(int, args.sizes.split(",")):
        run = folder / f"{size}.parquet"
        if not run.exists():
            print(f"generating {size} events", file=sys.stderr, flush=True)
            subprocess.run([args.binaries / "examples/chains_trace", run, str(size)], check=True, stdout=sys.stderr)
        scan = measure([args.binaries / "examples/chains_scan", run], args.repeats)
        chains = measure([args.binaries / "analyze", "chains", run], args.repeats)
        for name, (wall, cpu, peak) in (("DataFusion's scan", scan), ("analyze chains", chains)):
            row = [f"{size:,}", f"{run.stat().st_size / 2**20:.0f}", name, f"{wall:.2f}", f"{wall / scan[0]:.2f}"]
            row += [f"{cpu:.2f}", f"{cpu / scan[1]:.2f}", f"{peak / 2**20:.0f}"]
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
