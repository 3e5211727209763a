"""The examples of the page that PyPI shows use what there is, and the first of them runs."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from conftest import ROOT, run

import inquest_gpu

PAGE = (ROOT / "analyze/python/README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_name_what_there_is() -> None:
    assert len(BLOCKS) >= 5
    for block in BLOCKS:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("inquest_gpu", "run"):
                assert hasattr(inquest_gpu if node.value.id == "inquest_gpu" else inquest_gpu.Run, node.attr), node.attr
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("inquest_gpu"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names)
    for name in re.findall(r"`run\.(\w+)\(", PAGE):
        assert hasattr(inquest_gpu.Run, name), name
    for error in re.findall(r"`(\w+(?:Error|Failed|Mismatch|NotFound|Inconclusive|Library|Record))`", PAGE):
        assert hasattr(inquest_gpu, error), error


def test_the_first_look_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.parquet").symlink_to(run("memory/leak"))
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("leak None ")
    assert (tmp_path / "run.html").exists()
