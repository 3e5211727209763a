"""Rows of queries: the same in Python as on the command line, through every library."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import polars
import pyarrow
import pytest
from conftest import TESTDATA, command_line, run

import inquest_gpu
from inquest_gpu import InquestWarning, UsageError

LEAK = run("memory/leak")


def test_every_column_of_every_row_is_that_of_the_command_line() -> None:
    query = "SELECT * FROM events ORDER BY ts, tid, op, detail"
    relation = inquest_gpu.open(LEAK).sql(query)
    # JSON omits nulls.
    lines = [json.loads(line) for line in command_line("sql", LEAK, query, "--format", "ndjson").splitlines()]
    assert relation.fetchall() == [tuple(line.get(name) for name in relation.columns) for line in lines]
    assert len(lines) > 8000


def test_nulls_lists_and_structs_are_values_of_python() -> None:
    query = (
        "SELECT 1 AS whole, 0.5 AS half, 'a' AS text, NULL AS nothing, [1, NULL] AS list, "
        "named_struct('kind', 'x', 'n', [2]) AS pair, true AS yes, arrow_cast('d', 'Dictionary(Int32, Utf8)') AS word"
    )
    [row] = inquest_gpu.open(LEAK).sql(query).fetchall()
    assert row == (1, 0.5, "a", None, [1, None], {"kind": "x", "n": [2]}, True, "d")


def test_every_library_has_the_same_rows() -> None:
    relation = inquest_gpu.open(LEAK).sql("SELECT op, size_bytes, dur FROM events ORDER BY ts, tid, op, dur, size_bytes")
    rows = relation.fetchall()
    assert len(relation) == len(rows) > 8000
    assert relation.columns == ["op", "size_bytes", "dur"]
    assert relation.pl().rows() == rows
    assert polars.DataFrame(relation).rows() == rows
    table = relation.arrow()
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows
    assert pyarrow.table(relation) == table
    stream = pyarrow.RecordBatchReader.from_stream(relation)  # noqa: F841 -- DuckDB reads variables
    assert duckdb.sql("SELECT count(*), sum(dur)::BIGINT FROM stream").fetchall() == [(len(rows), sum(row[2] or 0 for row in rows))]
    frame = relation.df()
    assert list(frame["op"]) == [row[0] for row in rows]
    assert frame["dur"].sum() == sum(row[2] or 0 for row in rows)


def test_an_empty_answer_says_why() -> None:
    relation = inquest_gpu.open(run("h200/compile")).sql("SELECT * FROM device_work")
    with pytest.warns(InquestWarning, match="no events of kind device"):
        assert relation.fetchall() == []
    assert relation.columns[0] == "run"
    assert "no events of kind device" in relation.notes[0]
    assert "0 rows\nnote: no events of kind device" in repr(relation)


def test_what_is_shown_is_a_part_and_harmless() -> None:
    query = "SELECT concat('<b>', chr(27), value) AS \"a<b\" FROM generate_series(1, 30)"
    relation = inquest_gpu.open(LEAK).sql(query)
    page = relation._repr_html_()
    assert "<th>a&lt;b</th>" in page and "<td>&lt;b&gt;\\x1b1</td>" in page and "<b>" not in page
    text = repr(relation)
    assert "\x1b" not in text and "<b>\\x1b20" in text and "<b>\\x1b21" not in text
    assert text.endswith("30 rows, of which 20 are shown")


def test_parameters_and_queries_of_the_library() -> None:
    opened = inquest_gpu.open(LEAK)
    assert opened.sql("SELECT count(*) FROM ops WHERE op = $op AND dur >= $least_ns", op="cudaMalloc", least_ns=0).fetchall() == [(20,)]
    found = opened.query("op_latency", op="cudaMalloc")
    wanted = command_line("queries", "op_latency", LEAK, "--param", "op=cudaMalloc", "--format", "ndjson")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    without_nulls = [{name: value for name, value in row.items() if value is not None} for row in rows]
    lines = [json.loads(line) for line in wanted.splitlines()]
    # The rows of a view come in no order.
    assert sorted(map(repr, without_nulls)) == sorted(map(repr, lines)) and len(lines) > 1


def test_a_wrong_query_is_a_usage_error_with_the_place() -> None:
    with pytest.raises(UsageError, match="there is no column nope") as raised:
        inquest_gpu.open(LEAK).sql("SELECT nope FROM ops").fetchall()
    assert raised.value.exit_code == 2
    with pytest.raises(UsageError, match="there is no query"):
        len(inquest_gpu.open(LEAK).query("nope"))
    with pytest.raises(UsageError, match="--timeout"):
        inquest_gpu.open(LEAK, timeout="300ms").sql("SELECT sum(value) FROM generate_series(1, 1000000000000)").fetchall()


def test_one_run_many_patterns_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my runs"
    folder.mkdir()
    for name in ("a", "-b"):
        os.symlink(LEAK, folder / f"{name}.parquet")
    monkeypatch.chdir(folder)
    query = "SELECT count(DISTINCT run) FROM events"
    for sources in (["*.parquet"], [folder], ["a.parquet", "-b.parquet"], [["a.parquet", folder / "-b.parquet"]]):
        assert inquest_gpu.open(*sources).sql(query).fetchall() == [(2,)], sources
    assert inquest_gpu.open("-b.parquet").sql(query).fetchall() == [(1,)]
    assert len(inquest_gpu.open("-b.parquet").findings()) > 0
    with pytest.raises(UsageError, match="no such file"):
        inquest_gpu.open("c d.parquet")
    with pytest.raises(UsageError, match="no run"):
        inquest_gpu.open([])
    with pytest.raises(UsageError, match=r"no\*\.parquet"):
        inquest_gpu.open("no*.parquet").sql("SELECT 1").fetchall()
    with pytest.raises(UsageError, match="is about one run"):
        inquest_gpu.open("a.parquet", "-b.parquet").findings()
    (folder / "text.parquet").write_text("no run")
    with pytest.raises(UsageError, match=r"text\.parquet"):
        inquest_gpu.open("text.parquet").findings()


def test_a_large_answer_goes_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "answer.parquet"
    relation = inquest_gpu.open(LEAK).sql("SELECT * FROM events")
    assert polars.read_parquet(relation.write_parquet(out)).height == len(relation)
    with pytest.raises(UsageError, match="--force"):
        relation.write_parquet(out)
    relation.write_parquet(out, force=True)


@pytest.mark.parametrize("folder", sorted({path.parent for path in TESTDATA.rglob("*.parquet")}), ids=str)
def test_figures_of_every_bundled_run_are_those_of_the_command_line(folder: Path) -> None:
    # Of all runs of a folder at once: most of the time of a question is that of starting the program.
    query = (
        "SELECT run, kind, op, count(*) AS n, sum(dur) AS dur, avg(dur) AS mean, min(ts) AS first, max(size_bytes) AS largest, "
        "array_agg(DISTINCT pid ORDER BY pid) AS pids FROM events GROUP BY run, kind, op ORDER BY run, kind, op"
    )
    paths = sorted(str(path) for path in folder.glob("*.parquet"))
    ours = inquest_gpu.open(paths).sql(query)
    theirs = [json.loads(line) for line in command_line("sql", *paths, query, "--format", "ndjson").splitlines()]
    rows = [dict(zip(ours.columns, row, strict=True)) for row in ours.fetchall()]
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == theirs
    assert {row["run"] for row in rows} == {Path(path).stem for path in paths}
