"""Cell magics, in a shell of IPython."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import run
from IPython.core.interactiveshell import InteractiveShell

import inquest_gpu


@pytest.fixture
def shell() -> Any:
    made = InteractiveShell()
    inquest_gpu.load_ipython_extension(made)
    return made


def test_a_cell_of_sql_is_an_answer(shell: Any) -> None:
    shell.user_ns["opened"] = inquest_gpu.open(run("memory/leak"))
    query = "SELECT count(*) FROM ops WHERE op = 'cudaMalloc'\n"
    for name in ("opened", f'"{run("memory/leak")}"'):
        assert shell.run_cell_magic("inquest_sql", name, query).fetchall() == [(20,)]
    assert shell.run_cell_magic("inquest_sql", "opened found", query) is None
    assert shell.user_ns["found"].fetchall() == [(20,)]
    with pytest.raises(inquest_gpu.UsageError, match="name a run"):
        shell.run_cell_magic("inquest_sql", "", query)


def test_a_cell_is_recorded(recorder: str, shell: Any, tmp_path: Path) -> None:
    shell.run_cell_magic("inquest_record", str(tmp_path / "cell.parquet"), "import inquest_gpu\nwith inquest_gpu.phase('cell'): pass\n")
    assert shell.user_ns["run"].sql("SELECT name FROM marks").fetchall() == [("cell",)]
    with pytest.raises(inquest_gpu.UsageError, match="the cell failed"):
        shell.run_cell_magic("inquest_record", f"{tmp_path / 'cell.parquet'} again", "1 / 0\n")
    assert "again" in shell.user_ns
