#!/usr/bin/env python3
"""Compares the rows of every view of two builds of `analyze`, so that a change of names keeps the answers.

    testdata/bench/views/compare_views.py BASE NEW [RUN ...]     # without runs: all runs in testdata

For every query of BASE, both programs select the columns that BASE documents, by the names that BASE gives them. Rows have no
order in a view, so that the rows of each run are compared as a multiset, byte by byte. One line per view says how many runs
were compared, how many rows they have, and in which runs the rows differ. The exit code is 1 if any differ.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTDATA = Path(__file__).resolve().parents[2]
BYTES = 16
csv.field_size_limit(1 << 30)


def ask(program, *arguments):
    """Starts a program and returns its output, or what it says of its failure."""
    done = subprocess.run(["nice", "-n", "10", program, *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def is_run(program, path):
    return ask(program, "info", path, "--json")[0] == 0


def command(query, runs):
    """The arguments that select the documented columns of a query."""
    columns = [column["name"] for column in query["columns"]]
    if query["params"]:
        return columns, ["queries", query["name"], *runs, "--format", "csv"]
    names = ", ".join(f'"{name}"' for name in columns)
    return columns, ["sql", *runs, f"SELECT {names} FROM {query['name']}", "--format", "csv"]


def rows(program, query, runs):
    """Returns, by the name of the run, the number of rows and the sum of their hashes; or the text of an error."""
    columns, arguments = command(query, runs)
    code, text, error = ask(program, *arguments)
    if code != 0:
        return error.strip().replace(str(program), "analyze")
    reader = csv.reader(io.StringIO(text))
    header = next(reader, None)
    missing = [name for name in columns if header is None or name not in header]
    if missing:
        return f"columns are missing: {', '.join(missing)}"
    places = [header.index(name) for name in columns]
    run = places[columns.index("run")]
    found = defaultdict(lambda: (0, 0))
    for row in reader:
        key = "\x1f".join(row[place] for place in places).encode()
        count, total = found[row[run]]
        value = int.from_bytes(hashlib.blake2b(key, digest_size=BYTES).digest(), "little")
        found[row[run]] = count + 1, (total + value) % (1 << 8 * BYTES)
    return dict(found)


def compare(base, new, query, runs):
    """Returns how many rows there are, in how many runs, and what differs."""
    ours, theirs = rows(new, query, runs), rows(base, query, runs)
    if isinstance(ours, str) or isinstance(theirs, str):
        # A query that neither program answers, with the same words, is no difference of names, but no comparison either.
        return 0, 0, [f"not compared: base: {str(theirs)[:150]} | new: {str(ours)[:150]}"]
    wrong = [run for run in sorted(ours.keys() | theirs.keys()) if ours.get(run) != theirs.get(run)]
    return sum(count for count, _ in theirs.values()), len(theirs), wrong


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("base", type=Path)
    arguments.add_argument("new", type=Path)
    arguments.add_argument("runs", nargs="*", type=Path)
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--only", nargs="*", default=[], help="names of views; without it all")
    options = arguments.parse_args()
    files = options.runs or sorted(TESTDATA.rglob("*.parquet"))
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [path for path, yes in zip(files, pool.map(lambda path: is_run(options.base, path), files)) if yes]
        code, text, error = ask(options.base, "queries", "--json")
        if code != 0:
            sys.exit(error)
        queries = [query for query in json.loads(text) if not options.only or query["name"] in options.only]
        print(f"{len(queries)} views, {len(runs)} runs of {len(files)} files")
        jobs = [pool.submit(compare, options.base, options.new, query, runs) for query in queries]
        differences = 0
        for query, job in zip(queries, jobs):
            count, filled, wrong = job.result()
            differences += len(wrong)
            result = "; ".join(wrong) if wrong else "no difference"
            print(f"{query['name']}: {len(runs)} runs compared, {count} rows in {filled} of them: {result}", flush=True)
    print(f"{differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
