#!/usr/bin/env python3
"""Runs the notebooks and compares every number that they show with what `analyze` says of the same run.

    pip install -r notebooks/requirements.txt
    notebooks/check.py            # what .ci/test runs
    notebooks/check.py --bless    # writes the table in README.md

Integers, texts and nulls are the same to the last digit, and so are floats but one kind: DataFusion takes quantiles in steps of a
millionth, DuckDB does not. They may differ by a millionth of the longest time in their row; medians may not.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import nbclient
import nbformat
import polars as pl

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ANALYZE = Path(os.environ.get("INQUEST_ANALYZE", ROOT / "target/debug/analyze"))
RUN = ROOT / "testdata/memory/generate.parquet"
# Each is asked what those before it had no rows for.
RUNS = [
    "memory/plain",
    "h200/nccl",
    "align/aligned.kineto.json.gz",
    "memory/leak",
    "h200/graphs",
    "memory/pause",
    "memory/lent",
    "memory/generate",
]
BEGIN, END = "<!-- made by check.py --bless -->\n", "<!-- end -->\n"


def analyze(*arguments):
    done = subprocess.run([ANALYZE, *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"analyze {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def answer(folder, *arguments):
    """Rows of `analyze`."""
    path = Path(tempfile.mkstemp(".parquet", dir=folder)[1])
    analyze(*arguments, "--out", path, "--force")
    return pl.read_parquet(path).with_columns(pl.col(pl.Categorical).cast(pl.String))


def compare(what, found, wanted):
    """Cell by cell, in the order of the rows as they are."""
    assert found.columns == wanted.columns, f"{what}: columns {found.columns}, not {wanted.columns}"
    assert found.height == wanted.height, f"{what}: {found.height} rows, not {wanted.height}"
    if found.equals(wanted):
        return
    for number, (ours, theirs) in enumerate(zip(found.iter_rows(named=True), wanted.iter_rows(named=True))):
        longest = max((value or 0 for name, value in theirs.items() if name.endswith("_ns") and name[0] != "p"), default=0)
        for name, value in ours.items():
            other = theirs[name]
            is_quantile = re.fullmatch(r"p\d+\w*_ns", name) and not name.startswith("p50") and None not in (value, other)
            same = abs(value - other) <= longest / 1e6 if is_quantile else value == other
            assert same, f"{what}, row {number}: {name} is {value!r}, `analyze` says {other!r}"


def ordered(frame):
    """The rows of a view, which come in no order; by what is exact."""
    exact = [name for name in frame.columns if not re.match(r"p\d", name)]
    return frame.sort(exact or frame.columns, nulls_last=True)


def check_source(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, f"{path.name}: cell {cell.id} has outputs: clear them"
    return notebook


def code(cell):
    return "\n".join(line for line in cell.source.split("\n") if not line.startswith("%"))


def queries_of(notebook):
    """The names that cells give to answers of `query`, and their SQL."""
    found = {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for node in ast.walk(ast.parse(code(cell))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "query":
                assert isinstance(node.args[0], ast.Constant), f"cell {cell.id}: SQL that is put together cannot be checked"
        for node in ast.parse(code(cell)).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "query":
                [target] = node.targets
                assert target.id not in found, f"cell {cell.id}: {target.id} is assigned twice"
                found[target.id] = node.value.args[0].value
    calls = sum(len(re.findall(r"\bquery\(", code(cell))) for cell in notebook.cells if cell.cell_type == "code") - 1
    assert calls == len(found), f"{calls} queries, of which {len(found)} have a name"
    return found


def check_numbers(path, notebook, folder):
    """Executes a notebook and compares its frames, as they are after its last cell."""
    queries = queries_of(notebook)
    frames = ", ".join(f"{name!r}: {name}" for name in [*queries, "rows"])
    keep = f"for _name, _frame in {{{frames}}}.items():\n    _frame.write_parquet(Path({str(folder)!r}) / f'{{_name}}.frame')\n"
    keep += f"Path({str(folder)!r}, 'about.json').write_text(json.dumps(about))"
    notebook.cells.append(nbformat.v4.new_code_cell(keep))
    os.environ |= {"INQUEST_RUN": str(RUN), "INQUEST_ANALYZE": str(ANALYZE)}
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(HERE)}}).execute()
    figures = sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    queries["rows"] = "SELECT kind, count(*) AS rows_count FROM events GROUP BY kind ORDER BY kind"
    for name, sql in queries.items():
        compare(f"{path.name}: {name}", pl.read_parquet(folder / f"{name}.frame"), answer(folder, "sql", RUN, sql))
    [info] = json.loads(analyze("info", RUN, "--json"))
    about = json.loads((folder / "about.json").read_text())
    for key, value in about.items():
        assert info["provenance"].get(key) == value, f"{path.name}: {key} of the metadata is not what `analyze info` says"
    print(f"{path.name}: {figures} figures; {len(queries)} tables as `analyze` has them")


def helper(notebook, run):
    """What the notebook's own cells define, for a run."""
    space = {}
    os.environ |= {"INQUEST_RUN": str(run), "INQUEST_ANALYZE": str(ANALYZE)}
    os.chdir(HERE)
    for cell in notebook.cells:
        if "setup" in cell.metadata.get("tags", []):
            exec(code(cell), space)  # noqa: S102 -- the notebook is what is tested
    return space


def parameters(text):
    """Those of a query, each with its default as SQL takes it."""
    part = re.search(r"^-- params:\n((?:--   .*\n)+)", text, re.MULTILINE)
    found = [line.split()[1:4] for line in part[1].splitlines()] if part else []
    return {name: default if ty == "string" else float(re.match(r"[\d.]+", default)[0]) for name, ty, default in found}


def on_duckdb(space, name):
    """A query's rows by its file, and the tables of `analyze` that it needed; `None`: it is not DuckDB's SQL."""
    text = space["files"][name]
    needs, tables = [name], set()
    while needs:
        need = needs.pop()
        if need in space["files"]:
            needs += re.search("^-- needs: (.+)$", space["files"][need], re.MULTILINE)[1].split(", ")
        elif need != "events":
            tables.add(need)
    space["FOREIGN"] -= {name}
    try:
        if params := parameters(text):
            for need in re.search("^-- needs: (.+)$", text, re.MULTILINE)[1].split(", "):
                space["make"](need)
            return pl.DataFrame(space["db"].sql(text, params=params)), tables
        return space["query"](f"SELECT * FROM {name}"), tables
    except duckdb.BinderException as error:
        assert "Window functions" in str(error), error
        return None, tables


def check_queries(notebook, folder):
    """Every query, by DuckDB and by `analyze`, on runs until one has rows for it; the table that says what came of it."""
    lines, empty = {}, None
    for name in RUNS:
        run = ROOT / "testdata" / f"{name}.parquet"
        if name.endswith(".gz"):
            run = folder / "imported.parquet"
            analyze("import", ROOT / "testdata" / name, "--out", run)
        space = helper(notebook, run)
        foreign = set(space["FOREIGN"])
        queries = sorted(space["files"]) if empty is None else empty
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = {query: pool.submit(answer, folder, "queries", query, run) for query in queries}
        empty = [query for query in queries if jobs[query].result().height == 0]
        for query in queries:
            found, tables = on_duckdb(space, query)
            assert (found is None) == (query in foreign), f"{query}: FOREIGN in the notebook is not what DuckDB says"
            if found is None:
                lines[query] = f"| `{query}` | no: `last_value(… ORDER BY …)` | all of it |\n"
                continue
            wanted = jobs[query].result()
            types = dict(zip(wanted.columns, wanted.dtypes))
            found = found.with_columns(pl.col(column).cast(types[column]) for column in found.columns)
            compare(f"{query} of {name}", ordered(found), ordered(wanted))
            lines[query] = f"| `{query}` | yes | {', '.join(f'`{table}`' for table in sorted(tables)) or 'nothing'} |\n"
    # No run among the test data contradicts itself.
    assert empty == ["data_quality"], f"no run has rows of {', '.join(empty)}"
    works = sum("| yes" in line for line in lines.values())
    print(f"{len(lines)} queries on {len(RUNS)} runs: {works} are DuckDB's SQL, with the same rows")
    return "| query | runs on DuckDB | computed by `analyze` for it |\n|---|---|---|\n" + "".join(lines[query] for query in sorted(lines))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--bless", action="store_true")
    bless = arguments.parse_args().bless
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["format", "--check", "--quiet"], ["check", "--quiet"]):
        subprocess.run([*ruff, *command, HERE], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(HERE.glob("*.ipynb")):
            check_numbers(path, check_source(path), Path(folder))
        table = check_queries(check_source(HERE / "first_look.ipynb"), Path(folder))
    readme = HERE / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    text = before + BEGIN + table + END + rest.split(END)[1]
    if bless:
        readme.write_text(text)
    elif text != readme.read_text():
        sys.exit("notebooks/README.md: the table of queries is not what was found: notebooks/check.py --bless, and read the diff")


if __name__ == "__main__":
    main()
