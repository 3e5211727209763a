#!/usr/bin/env python3
"""Every verb of `analyze` that takes a run, on generated runs of 1, 10 and 100 million events, with 2 GiB of memory.

    cargo build --release --workspace --bins --examples
    python3 testdata/bench/verbs/bench.py --folder target/bench-verbs --out testdata/bench/verbs/results.md

Needs nothing but Python. Generates what is not there yet: the runs of testdata/bench/chains (100,000,000 events: 1 GB, four
minutes), a second one of each size for verbs that take two, two halves of it for `merge`, and a recording that was killed for
`recover`. Then runs one process after the other and prints, and with --out writes, a Markdown table: wall and CPU time of the
whole process and its peak memory. What ends with another exit code than the verb's own is named, as is what was stopped after
--timeout seconds.

Each result is kept in FOLDER/results.jsonl as soon as it is there, and measured again only with --again: a bench that was
interrupted goes on where it was. The results of other binaries than these are not used.
"""

import argparse
import hashlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

SQL = "SELECT count(*) AS n FROM events"
OPS = "SELECT op, p50_ns, p90_ns, p99_ns FROM op_summary ORDER BY op, p50_ns"

# Name, arguments, and the exit codes of an answer: 1 is an alert or a regression, 3 is inconclusive. {run}, {other}, {first} and
# {second} (halves of a run), {recording}, {lines} (its rows as JSON lines), {baseline} and {out} stand for paths.
VERBS = [
    ("info", ["info", "{run}"], {0}),
    ("summary", ["summary", "{run}"], {0}),
    ("chains", ["chains", "{run}"], {0, 3}),
    ("memory", ["memory", "{run}"], {0, 3}),
    ("memory --advice", ["memory", "--advice", "{run}"], {0, 3}),
    ("leaks", ["leaks", "{run}"], {0, 1, 3}),
    ("oom", ["oom", "{run}"], {0, 3}),
    ("releases", ["releases", "{run}"], {0, 3}),
    ("alerts", ["alerts", "{run}", "--over", "1GiB", "--for", "10ms"], {0, 1, 3}),
    ("what-if", ["what-if", "{run}"], {0, 3}),
    ("sql: count", ["sql", "{run}", SQL], {0}),
    ("sql: op_summary", ["sql", "{run}", OPS], {0}),
    ("queries op_time", ["queries", "op_time", "{run}", "--format", "csv"], {0}),
    ("head", ["head", "{run}"], {0}),
    ("verify", ["verify", "{run}"], {0}),
    ("report --html", ["report", "{run}", "--html", "{out}.html"], {0, 3}),
    ("baseline save", ["baseline", "save", "{out}.baseline", "{run}"], {0}),
    ("compare, two runs", ["compare", "{run}", "{other}"], {0, 1, 3}),
    ("trend, two runs", ["trend", "{run}", "{other}"], {0, 1, 3}),
    ("export perfetto", ["export", "perfetto", "{run}", "--out", "{out}.perfetto"], {0}),
    ("export chrome", ["export", "chrome", "{run}", "--out", "{out}.json.gz"], {0}),
    ("export folded", ["export", "folded", "{run}", "--what", "{what}", "--out", "{out}.folded"], {0, 3}),
    ("export pprof", ["export", "pprof", "{run}", "--what", "{what}", "--out", "{out}.pb.gz"], {0, 3}),
    ("export events, Arrow", ["export", "events", "{run}", "--out", "{out}.arrow"], {0}),
    ("export events, CSV", ["export", "events", "{run}", "--out", "{out}.csv"], {0}),
    ("export events, JSON lines", ["export", "events", "{run}", "--out", "{out}.ndjson"], {0}),
    ("import events, JSON lines", ["import", "events", "{lines}", "--out", "{out}.parquet"], {0}),
    ("slice", ["slice", "{run}", "--from", "100ms", "--out", "{out}.parquet"], {0}),
    ("merge, two halves", ["merge", "{first}", "{second}", "--out", "{out}.parquet"], {0}),
    ("recover", ["recover", "{recording}", "--out", "{out}.parquet"], {0}),
]


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run_once(command, timeout_s, log):
    """Exit code (None: stopped), wall and CPU seconds and peak bytes of a process and of those that it started."""
    start = time.perf_counter()
    with open(log, "wb") as said:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)
        is_late = False
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if not is_late and time.perf_counter() - start > timeout_s:
                    is_late = True
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(0.005)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            os.wait4(process.pid, 0)
            process.returncode = -signal.SIGKILL
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    return None if is_late else process.returncode, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def done(path, make):
    """Makes a file under another name first, so that one that is there is whole."""
    if not path.exists():
        print(f"making {path.name}", file=sys.stderr, flush=True)
        unfinished = path.with_name(f"unfinished-{path.name}")
        unfinished.unlink(missing_ok=True)
        make(unfinished)
        unfinished.rename(path)
    return path


def killed_recording(binary, folder, path, rows_count):
    """Records rows, of which each takes a millisecond of made-up time, and kills the recorder when all are flushed."""
    run = folder / "killed.parquet"
    recording = folder / "killed.parquet.recording"
    recording.unlink(missing_ok=True)
    command = [binary, "--out", run, "--rows", str(rows_count + rows_count // 10 + 10_000)]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE)
    for line in process.stdout:
        if line.startswith(b"flushed ") and int(line.split()[1]) >= rows_count * 1_000_000:
            break
    process.kill()
    process.stdout.close()
    process.wait()
    if not recording.exists():
        sys.exit(f"{binary} has finished instead of being killed")
    recording.rename(path)


def inputs(binaries, folder, size):
    """Paths by the names that VERBS uses; what is missing is made when it is asked for."""
    analyze, examples = binaries / "analyze", binaries / "examples"

    def call(*command):
        subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr)

    def generated(name, seed):
        return done(folder / name, lambda path: call(examples / "chains_trace", path, size, seed))

    def half(name, *span):
        run = generated(f"{size}.parquet", 1)
        return done(folder / name, lambda path: call(analyze, "slice", run, *span, "--out", path))

    def middle():
        run = generated(f"{size}.parquet", 1)
        query = "SELECT (max(ts) - min(ts)) / 2 AS half FROM events"
        rows = subprocess.run([analyze, "sql", run, query, "--format", "json"], check=True, capture_output=True)
        return f"{json.loads(rows.stdout)[0]['half']}ns"

    return {
        "run": lambda: generated(f"{size}.parquet", 1),
        "other": lambda: generated(f"{size}-other.parquet", 2),
        "first": lambda: half(f"{size}-first.parquet", "--to", middle()),
        "second": lambda: half(f"{size}-second.parquet", "--from", middle()),
        "recording": lambda: done(
            folder / f"{size}.recording",
            lambda path: killed_recording(binaries / "record-rows", folder, path, size),
        ),
        "lines": lambda: done(
            folder / f"{size}.ndjson",
            lambda path: call(analyze, "export", "events", generated(f"{size}.parquet", 1), "--out", path),
        ),
    }


def table(results, sizes, args, load):
    lines = [
        "# What bench.py measured",
        "",
        f"{os.cpu_count()} CPUs ({platform.machine()}), `--memory-limit {args.memory_limit}`, load average before the run "
        f"{load:.1f}; one process after the other, stopped after {args.timeout:.0f} s.",
        "",
        "| verb | events | wall s | CPU s | peak RSS MiB | exit code |",
        "|---|---|---|---|---|---|",
    ]
    for name, _, expected in VERBS:
        for size in sizes:
            found = results.get((name, size))
            if found is None:
                continue
            code = found["code"]
            said = f"**{code}**: {found['said']}" if code is not None and code not in expected else code
            wall = f"> {found['wall_s']:.0f}" if code is None else f"{found['wall_s']:.2f}"
            row = [name, f"{size:,}", wall, f"{found['cpu_s']:.2f}", f"{found['peak_bytes'] / 2**20:.0f}"]
            lines.append(f"| {' | '.join(row)} | {'**stopped**' if code is None else said} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path("target/release"))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("target/bench-verbs"), help="where runs and results are kept")
    parser.add_argument("--sizes", default="1000000,10000000,100000000")
    parser.add_argument("--verbs", help="only those whose names contain one of these, divided by commas")
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a process is stopped")
    parser.add_argument("--memory-limit", default="2GiB")
    parser.add_argument("--what", default="off-cpu", help="what the exports of sums by stack sum up")
    parser.add_argument("--again", action="store_true", help="measure what has been measured, too")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    # Links keep the places of binaries and of what they make apart from the working directory.
    binaries, folder = args.binaries.resolve(), args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [int(size) for size in args.sizes.split(",")]
    program, load = sha256(binaries / "analyze"), os.getloadavg()[0]
    kept, results = folder / "results.jsonl", {}
    condition = {"program": program, "memory_limit": args.memory_limit, "what": args.what}
    for line in kept.read_text().splitlines() if kept.exists() else []:
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off by a kill
        if all(found.get(key) == value for key, value in condition.items()):
            results[found["verb"], found["size"]] = found
    wanted = args.verbs.split(",") if args.verbs else [""]
    chosen = [verb for verb in VERBS if any(part in verb[0] for part in wanted)]
    for size in sizes:
        paths = inputs(binaries, folder, size)
        for name, arguments, _ in chosen:
            found = results.get((name, size))
            if found is not None and not args.again and (found["code"] is not None or found["wall_s"] >= args.timeout):
                continue
            out = folder / "output"
            values = {"out": out, "what": args.what}
            for key, make in paths.items():
                if any(f"{{{key}}}" in argument for argument in arguments):
                    values[key] = make()
            command = [argument.format(**values) for argument in arguments]
            command = [binaries / "analyze", "--quiet", "--memory-limit", args.memory_limit, *command]
            code, wall, cpu, peak = run_once(command, args.timeout, folder / "said")
            said = (folder / "said").read_text(errors="replace").strip().splitlines()
            for left in folder.glob("output.*"):
                left.unlink()
            found = condition | {
                "verb": name,
                "size": size,
                "code": code,
                "wall_s": wall,
                "cpu_s": cpu,
                "peak_bytes": peak,
                "said": said[-1][:160].replace("|", "/").replace(str(folder) + "/", "") if said else "",
            }
            results[name, size] = found
            with open(kept, "a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{name}, {size:,}: {wall:.2f} s, {cpu:.2f} s CPU, {peak / 2**20:.0f} MiB, exit {code}", file=sys.stderr, flush=True)
    text = table(results, sizes, args, load)
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
