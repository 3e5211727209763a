#!/usr/bin/env python3
"""Ten queries on a generated run, and the start of the program: `analyze sql` beside DuckDB and polars on the same Parquet.

    python -m venv .venv && .venv/bin/pip install duckdb polars
    cargo build --release --workspace --bins --examples
    .venv/bin/python testdata/bench/queries/bench.py --out testdata/bench/queries/results.md

Each in a process of its own. Of `analyze` the wall time is that of the whole process; of the others that of the query
alone, without starting Python and importing them. Peak memory is the process'. Answers must be equal, or the script fails;
what takes longer than --limit seconds is stopped, and what an engine's SQL does not know is named.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

# Name, SQL for all, or for `analyze` and DuckDB, and for polars where it differs (None: it has no such thing).
QUERIES = {
    "count by kind": "SELECT kind, count(*) AS n FROM events GROUP BY kind ORDER BY kind",
    "sum by function": "SELECT op, count(*) AS n, sum(dur) AS ns, max(dur) AS most FROM events WHERE kind = 'call' GROUP BY op ORDER BY op",
    "by thread": "SELECT pid, tid, count(*) AS n, sum(dur) AS ns FROM events WHERE kind = 'off_cpu' GROUP BY pid, tid ORDER BY pid, tid",
    "one function's longest": "SELECT ts, dur, tid FROM events WHERE op = 'cudaLaunchKernel' ORDER BY dur DESC, ts LIMIT 10",
    "a second of it": "SELECT count(*) AS n, sum(dur) AS ns FROM events WHERE ts >= {middle} AND ts < {end}",
    "copies by size": "SELECT direction, count(*) AS n, sum(size_bytes) AS bytes FROM events WHERE op IN ('cudaMemcpy', 'cudaMemcpyAsync') GROUP BY direction ORDER BY direction",
    "rate over time": "SELECT ts // 1000000000 AS s, count(*) AS n FROM events GROUP BY s ORDER BY s",
    "who woke whom": "SELECT waker_tid, tid, count(*) AS n FROM events WHERE kind = 'off_cpu' AND waker_tid IS NOT NULL GROUP BY waker_tid, tid ORDER BY n DESC, waker_tid, tid LIMIT 20",
    "medians": "SELECT op, {median} AS p50 FROM events WHERE kind = 'call' GROUP BY op ORDER BY op",
    "calls and what interrupted them": "SELECT c.op, count(*) AS n, sum(least(c.ts + c.dur, o.ts + o.dur) - greatest(c.ts, o.ts)) AS ns "
    "FROM events c JOIN events o ON c.tid = o.tid AND c.ts < o.ts + o.dur AND o.ts < c.ts + c.dur "
    "WHERE c.kind = 'call' AND o.kind = 'off_cpu' GROUP BY c.op ORDER BY c.op",
}
ENGINES = ["analyze", "duckdb", "polars"]


def sql(name, engine, middle):
    medians = {"analyze": "percentile_cont(0.5) WITHIN GROUP (ORDER BY dur)", "duckdb": "quantile_cont(dur, 0.5)", "polars": "median(dur)"}
    text = QUERIES[name].format(middle=middle, end=middle + 10**9, median=medians[engine])
    return text.replace("//", "/") if engine == "analyze" else text


def run_here(engine, run, query):
    """In this process: rows and seconds."""
    start = time.perf_counter()
    if engine == "duckdb":
        import duckdb

        start = time.perf_counter()
        connection = duckdb.connect()
        if " JOIN " in query:
            connection.execute("SET prefer_range_joins=true")
        connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{run}')")
        rows = connection.execute(query).fetchall()
    else:
        import polars as pl

        start = time.perf_counter()
        context = pl.SQLContext(events=pl.scan_parquet(run))
        rows = context.execute(query).collect(engine="streaming").rows()
    return rows, time.perf_counter() - start


def plain(rows):
    """Comparable: numbers as floats with nine digits, no difference between texts of numbers and numbers."""

    def cell(value):
        try:
            number = float(value)
            return None if math.isnan(number) else float(f"{number:.9g}")
        except (TypeError, ValueError):
            return value or None

    return [tuple(cell(value) for value in row) for row in rows]


def run_once(engine, binary, run, query, limit_s):
    if engine == "analyze":
        command = [binary, "sql", run, query, "--format", "json"]
    else:
        command = [sys.executable, __file__, "--child", engine, run, query]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=err)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() - start > limit_s:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                return None, f"> {limit_s} s"
            time.sleep(0.002)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode:
            return None, err.read().decode().strip().splitlines()[-1][:70].replace("|", "/")
        answer = json.loads(out.read())
    if engine == "analyze":
        rows = [list(row.values()) for row in answer]
    else:
        rows, wall = answer["rows"], answer["wall_s"]
    cpu = usage.ru_utime + usage.ru_stime
    return (plain(rows), wall, cpu, usage.ru_maxrss * 1024), None


def measure(name, binary, run, limit_s, repeats, middle, engines):
    done, missing = {}, {}
    for engine in engines:
        query, runs = sql(name, engine, middle), []
        for _ in range(repeats):
            result, reason = run_once(engine, binary, run, query, limit_s)
            if reason:
                missing[engine] = reason
                break
            runs.append(result)
            if result[1] > limit_s / 10:
                break
        if engine not in missing:
            rows, walls, cpus, peaks = zip(*runs)
            done[engine] = (rows[0], statistics.median(walls), statistics.median(cpus), max(peaks))
        print(f"  {engine}: {done[engine][1:] if engine in done else missing[engine]}", file=sys.stderr, flush=True)
    answers = [answer for answer, *_ in done.values()]
    if any(len(answer) != len(answers[0]) or answer != answers[0] for answer in answers):
        sys.exit(f"{name}: the engines disagree: { {engine: of[0][:3] for engine, of in done.items()} }")
    return done, missing


def start(binary, run, repeats):
    """Milliseconds to start, open the run and answer `SELECT 1`; of DuckDB's own command, if it is there, the same."""
    commands = {"analyze sql": [binary, "sql", run, "SELECT 1"]}
    shell = pathlib.Path(sys.executable).with_name("duckdb")
    if shell.exists():
        commands["duckdb CLI"] = [shell, "-c", f"CREATE VIEW events AS SELECT * FROM read_parquet('{run}'); SELECT 1"]
    found = {}
    for name, command in commands.items():
        times = []
        for _ in range(repeats * 7):
            begin = time.perf_counter()
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times.append(1000 * (time.perf_counter() - begin))
        found[name] = statistics.median(times)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path("target/release"))
    parser.add_argument("--folder", type=pathlib.Path, help="where the run is kept [default: a temporary one]")
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--limit", type=int, default=120, help="seconds that one query may take")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        rows, wall = run_here(*args.child)
        print(json.dumps({"rows": rows, "wall_s": wall}, default=float))
        return
    temporary = None if args.folder else tempfile.TemporaryDirectory()
    folder = args.folder or pathlib.Path(temporary.name)
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / f"{args.events}.parquet"
    if not run.exists():
        subprocess.run([args.binaries / "examples/chains_trace", run, str(args.events)], check=True, stdout=sys.stderr)
    binary = args.binaries / "analyze"
    bounds, reason = run_once("analyze", binary, run, "SELECT CAST(min(ts) AS VARCHAR) AS a, CAST(max(ts) AS VARCHAR) AS b FROM events", args.limit)
    if reason:
        sys.exit(reason)
    middle = int(sum(bounds[0][0]) / 2)
    cpus = len(os.sched_getaffinity(0))
    lines = [
        f"{cpus} CPUs ({platform.machine()}), {args.events:,} events, load average before the run {os.getloadavg()[0]:.1f}.",
        "",
        "| query | engine | wall s | times analyze | CPU s | peak RSS MiB |",
        "|---|---|---|---|---|---|",
    ]
    engines = args.engines.split(",")
    for name in QUERIES:
        print(name, file=sys.stderr, flush=True)
        done, missing = measure(name, binary, run, args.limit, args.repeats, middle, engines)
        ours = done.get("analyze")
        for engine in engines:
            if engine in done:
                _, wall, cpu, peak = done[engine]
                ratio = f"{wall / ours[1]:.2f}" if ours else "-"
                lines.append(f"| {name} | {engine} | {wall:.2f} | {ratio} | {cpu:.2f} | {peak / 2**20:.0f} |")
            else:
                lines.append(f"| {name} | {engine} | {missing[engine]} | - | - | - |")
    small = folder / "small.parquet"
    if not small.exists():
        subprocess.run([args.binaries / "examples/chains_trace", small, "10000"], check=True, stdout=sys.stderr)
    lines += ["", "| start, open a run, `SELECT 1` | ms |", "|---|---|"]
    lines += [f"| {name} | {ms:.1f} |" for name, ms in start(binary, small, args.repeats).items()]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text("# What bench.py measured\n\n" + text)


if __name__ == "__main__":
    main()
