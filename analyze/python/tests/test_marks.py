"""Marks: what is sent, that nothing is when nobody records, and what a recorder makes of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import command_line

import inquest_gpu
from inquest_gpu import InquestWarning, marks

Lines = Callable[[], list[str]]


def test_phases_and_points_are_lines(listener: Lines) -> None:
    with inquest_gpu.phase("epoch 1"), inquest_gpu.phase("step\n 2"):
        inquest_gpu.mark("saved")
    assert listener() == ["begin epoch 1", "begin step 2", "saved", "end step 2", "end epoch 1"]
    with pytest.raises(ZeroDivisionError), inquest_gpu.phase("fails"):
        raise ZeroDivisionError
    assert listener() == ["begin fails", "end fails"]
    inquest_gpu.mark("é" * 150)
    assert listener() == ["é" * 100]
    for name in ("begin x", "end x"):
        with pytest.raises(ValueError, match="phase"):
            inquest_gpu.mark(name)


def test_a_function_and_the_items_of_a_loader_are_phases(listener: Lines) -> None:
    @inquest_gpu.phase("validation")
    def validate(factor: int) -> int:
        """Documented."""
        return factor * 2

    assert validate(21) == 42 and validate.__doc__ == "Documented."
    assert listener() == ["begin validation", "end validation"]
    assert [item for item in inquest_gpu.steps("ab", "batch")] == ["a", "b"]
    assert listener() == ["begin batch 0", "end batch 0", "begin batch 1", "end batch 1"]


def test_nothing_is_sent_when_nobody_records(tmp_path: Path) -> None:
    before = marks._path
    try:
        marks.connect(None)
        inquest_gpu.mark("unheard")
        # A recorder that is gone, and one that was never there.
        gone = tmp_path / "gone"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(gone))
        for path in (gone, tmp_path / "none"):
            marks.connect(path)
            with inquest_gpu.phase("unheard"):
                pass
        assert marks.lost_count() == 0
    finally:
        marks.connect(before)


def test_a_phase_without_a_recorder_costs_next_to_nothing() -> None:
    before = marks._path
    marks.connect(None)
    try:
        code = "with phase('step'): pass"
        ours = min(timeit.repeat(code, globals={"phase": inquest_gpu.phase}, number=10_000, repeat=5))
        # Compared with a context manager of the standard library, because machines differ.
        peer = min(timeit.repeat("with null(): pass", setup="from contextlib import nullcontext as null", number=10_000, repeat=5))
        assert ours < 5 * peer, f"{ours / 1e4 * 1e9:.0f} ns a phase, {peer / 1e4 * 1e9:.0f} ns a nullcontext"
    finally:
        marks.connect(before)


def test_a_full_queue_is_waited_for_shortly_and_counted(tmp_path: Path) -> None:
    before, path = marks._path, tmp_path / "marks"
    assert marks.lost_count() == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    sender.sendto(b"x", str(path))
        try:
            marks.connect(path)
            with pytest.warns(InquestWarning, match="was not recorded"):
                inquest_gpu.mark("lost")
            assert marks.lost_count() == 1
        finally:
            marks.connect(before)
            marks._lost_count = 0


def test_a_recorder_records_the_marks_of_its_command(recorder: str, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    code = "import inquest_gpu\nfor item in inquest_gpu.steps(range(3)): inquest_gpu.mark('point')"
    subprocess.run([recorder, "--quiet", "--out", out, "--", sys.executable, "-c", code], check=True, capture_output=True)
    wanted = ["step 0,range", "step 1,range", "step 2,range", "point,point", "point,point", "point,point"]
    assert sorted(command_line("sql", str(out), "SELECT name, op FROM marks").splitlines()[1:]) == sorted(wanted)


def test_this_process_is_recorded_while_a_block_runs(recorder: str, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    with pytest.raises(ZeroDivisionError), inquest_gpu.record(out) as run, inquest_gpu.phase("within"):
        raise ZeroDivisionError
    assert run.sql("SELECT name, pid FROM marks").fetchall() == [("within", os.getpid())]
    assert run.info()[0]["provenance"]["joined_running"] is True
    with pytest.raises(inquest_gpu.UsageError, match="--force"), inquest_gpu.record(out):
        pytest.fail("the block runs")
    assert marks._path is None or not marks._path.startswith(str(tmp_path))


def test_who_cannot_record_is_told_why(program: Callable[..., Path], tmp_path: Path) -> None:
    program("capture", "echo 'capture: no BTF' >&2; exit 4")
    with pytest.raises(inquest_gpu.CannotRecord, match="no BTF"), inquest_gpu.record(tmp_path / "run.parquet"):
        pytest.fail("the block runs")
