#!/usr/bin/env python3
"""The interval join against other engines: the same SQL on the same Parquet, each engine in a process of its own.

    python -m venv .venv && .venv/bin/pip install duckdb polars numpy
    cargo build --release --example interval_join
    .venv/bin/python testdata/bench/interval_join/bench.py --out results.md

Prints, and with --out writes, one table a size: wall time of reading and joining (process start and imports are not
in it), CPU time of the whole process (which a busy machine disturbs less), both as multiples of ours, and peak memory
of the process. Every answer must equal the others, or the script fails. What takes
longer than --limit seconds is stopped and named; it is not tried at a larger size.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

QUERY = """
SELECT count(*) AS pairs, sum(least(a.ts + a.dur, b.ts + b.dur) - greatest(a.ts, b.ts)) AS overlap_ns
FROM a JOIN b ON a.tid = b.tid AND a.ts < b.ts + b.dur AND b.ts < a.ts + a.dur
"""
THREADS = 16
REPEATS = 3
ENGINES = ["ours", "duckdb range", "duckdb", "polars", "datafusion"]
LABELS = {
    "ours": "IntervalJoinExec",
    "duckdb range": "DuckDB, prefer_range_joins",
    "duckdb": "DuckDB as it comes",
    "polars": "polars join_where",
    "datafusion": "DataFusion's own plan",
}


def write_table(path, rows, mean_gap_ns, seed):
    """Intervals of 16 threads in order of start over all threads, as a recording has them; one in 500 is long."""
    import numpy as np
    import polars as pl

    random = np.random.default_rng(seed)
    now = 0
    parts = []
    for start in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - start)
        ts = now + np.cumsum(random.exponential(mean_gap_ns / THREADS, count).astype(np.int64))
        now = int(ts[-1])
        dur = random.exponential(mean_gap_ns * 0.8, count).astype(np.int64)
        dur = np.where(random.random(count) < 0.002, dur * 200, dur)
        tid = random.integers(0, THREADS, count).astype(np.int32)
        parts.append(pl.DataFrame({"tid": tid, "ts": ts, "dur": dur}))
    pl.concat(parts).write_parquet(path, compression="zstd", row_group_size=1_000_000)


def run_here(engine, a, b):
    """One query in this process: (pairs, overlap, wall seconds)."""
    if engine.startswith("duckdb"):
        import duckdb

        connection = duckdb.connect()
        if engine == "duckdb range":
            connection.execute("SET prefer_range_joins=true")
        start = time.perf_counter()
        for name, path in (("a", a), ("b", b)):
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        pairs, overlap = connection.execute(QUERY).fetchone()
    else:
        import polars as pl

        start = time.perf_counter()
        left, right = (pl.scan_parquet(p).with_columns(end=pl.col("ts") + pl.col("dur")) for p in (a, b))
        right = right.rename({column: "b_" + column for column in ("tid", "ts", "dur", "end")})
        joined = left.join_where(
            right, pl.col("tid") == pl.col("b_tid"), pl.col("ts") < pl.col("b_end"), pl.col("b_ts") < pl.col("end")
        )
        overlap = pl.min_horizontal("end", "b_end") - pl.max_horizontal("ts", "b_ts")
        row = joined.select(pairs=pl.len(), overlap_ns=overlap.sum()).collect(engine="streaming").row(0)
        pairs, overlap = row
    return int(pairs), int(overlap), time.perf_counter() - start


def run_once(engine, binary, a, b, limit_s):
    """One engine in a process of its own: its answer, wall and CPU seconds, peak bytes; or why there is none."""
    if engine in ("ours", "datafusion"):
        command = [binary, engine, QUERY, f"a={a}", f"b={b}"]
    else:
        command = [sys.executable, __file__, "--child", engine, str(a), str(b)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        deadline = time.monotonic() + limit_s
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                process.returncode = -9
                return None, f"> {limit_s} s"
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode:
            return None, f"failed ({process.returncode}): {err.read().decode()[-200:].strip()}"
        answer = json.loads(out.read())
    pairs, overlap = answer["rows"][0]
    cpu_s = usage.ru_utime + usage.ru_stime
    return ((int(pairs), int(overlap)), answer["wall_s"], cpu_s, usage.ru_maxrss * 1024), None


def measure(size, binary, folder, limit_s, engines):
    """All engines on one size: what each answered, and the table."""
    left, right = size
    a, b = folder / f"a-{left}.parquet", folder / f"b-{right}-{left}.parquet"
    if not a.exists():
        write_table(a, left, 10_000, 1)
    if not b.exists():
        write_table(b, right, 10_000 * left // right, 2)
    done, missing = {}, {}
    for engine in engines:
        runs = []
        for _ in range(REPEATS):
            result, reason = run_once(engine, binary, a, b, limit_s)
            if reason:
                missing[engine] = reason
                break
            runs.append(result)
            if result[1] > limit_s / 10:
                break
        if runs and engine not in missing:
            _, walls, cpus, peaks = zip(*runs)
            done[engine] = (runs[0][0], statistics.median(walls), statistics.median(cpus), max(peaks), len(runs))
        print(f"  {engine}: {done.get(engine, missing.get(engine))}", file=sys.stderr, flush=True)
    answers = {answer for answer, *_ in done.values()}
    if len(answers) > 1:
        sys.exit(f"the engines disagree: {done}")
    return done, missing


def render(size, done, missing, skipped):
    ours = done.get("ours")
    answer = next(iter(done.values()))[0] if done else ("?", "?")
    lines = [
        f"## {size[0]:,} x {size[1]:,} rows: {answer[0]:,} pairs, {answer[1]:,} ns of overlap",
        "",
        "| engine | wall s | times ours | CPU s | times ours | peak RSS MiB | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for engine in ENGINES:
        if engine in done:
            _, wall, cpu, peak, runs = done[engine]
            ratio, cpu_ratio = (f"{wall / ours[1]:.2f}", f"{cpu / ours[2]:.2f}") if ours else ("-", "-")
            row = [LABELS[engine], f"{wall:.3f}", ratio, f"{cpu:.3f}", cpu_ratio, f"{peak / 2**20:.0f}", str(runs)]
            lines.append(f"| {' | '.join(row)} |")
        else:
            reason = missing.get(engine) or skipped.get(engine, "-")
            lines.append(f"| {LABELS[engine]} | {reason} | - | - | - | - | - |")
    others = [wall for engine, (_, wall, *_) in done.items() if engine != "ours"]
    if ours and others:
        lines += ["", f"Best of the others / ours: {min(others) / ours[1]:.2f}"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/examples/interval_join")
    parser.add_argument("--folder", type=pathlib.Path, help="where the tables are kept [default: a temporary one]")
    parser.add_argument("--sizes", default="1000000x1000000,10000000x10000000,50000000x5000000")
    parser.add_argument("--limit", type=int, default=180, help="seconds that one run may take")
    parser.add_argument("--engines", default=",".join(ENGINES), help="which ones [default: all]")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        pairs, overlap, wall = run_here(*args.child)
        print(json.dumps({"rows": [[pairs, overlap]], "wall_s": wall}))
        return
    temporary = None if args.folder else tempfile.TemporaryDirectory()
    folder = args.folder or pathlib.Path(temporary.name)
    folder.mkdir(parents=True, exist_ok=True)
    import duckdb
    import polars

    load = os.getloadavg()[0]
    text = f"{os.cpu_count()} CPUs ({platform.machine()}), DuckDB {duckdb.__version__}, polars {polars.__version__}; "
    text += f"load average before the run {load:.1f}\n\n"
    skipped, ours = {}, {}
    for size in (tuple(map(int, size.split("x"))) for size in args.sizes.split(",")):
        engines = [engine for engine in args.engines.split(",") if engine not in skipped]
        print(f"{size[0]} x {size[1]}", file=sys.stderr, flush=True)
        done, missing = measure(size, args.binary, folder, args.limit, engines)
        text += render(size, done, missing, skipped) + "\n"
        skipped |= {engine: "not tried: too slow at a smaller size" for engine in missing}
        if "ours" in done:
            ours[size] = done["ours"][1:3]
    sizes = sorted(ours)
    for small, large in zip(sizes, sizes[1:]):
        rows = sum(large) / sum(small)
        wall, cpu = (after / before for before, after in zip(ours[small], ours[large]))
        text += f"Ours, {sum(small):,} to {sum(large):,} rows ({rows:.1f}x): wall {wall:.1f}x, CPU {cpu:.1f}x\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
