"""What the tests share: the programs of this checkout, its bundled runs, and whether this machine can record."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILT = Path(os.environ.get("INQUEST_BUILT", ROOT / "target/debug"))
TESTDATA = ROOT / "testdata"

for program in ("analyze", "capture"):
    os.environ.setdefault(f"INQUEST_{program.upper()}", str(BUILT / program))
# The package of this checkout, in this process and in those that it starts.
sys.path.insert(0, str(ROOT / "analyze/python"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "analyze/python"), os.environ.get("PYTHONPATH")]))

pytest_plugins = ["pytester"]


def run(name: str) -> str:
    """The path of a bundled run."""
    return str(TESTDATA / f"{name}.parquet")


def command_line(*arguments: str) -> str:
    """What `analyze` prints."""
    done = subprocess.run([os.environ["INQUEST_ANALYZE"], *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a script in the place of `analyze` or `capture`."""

    def place(name: str, lines: str, version: str = "0.1.0") -> Path:
        path = tmp_path / f"fake-{name}"
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{name} {version}" && exit 0\n{lines}\n')
        path.chmod(0o755)
        monkeypatch.setenv(f"INQUEST_{name.upper()}", str(path))
        return path

    return place


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """Listens in the place of a recorder; returns the lines of the marks that were sent."""
    from inquest_gpu import marks

    path, found, is_read = tmp_path / "marks", [], threading.Event()

    def read(receiver: socket.socket) -> None:
        # A queue holds ten datagrams with the kernel's usual limit.
        while (text := receiver.recv(8192)) != b"stop":
            if text == b"read":
                is_read.set()
            else:
                found.append(text.decode())

    def lines() -> list[str]:
        is_read.clear()
        sender.sendto(b"read", str(path))
        assert is_read.wait(10)
        some, found[:] = list(found), []
        return some

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        receiver.bind(str(path))
        reader = threading.Thread(target=read, args=(receiver,))
        reader.start()
        before = marks._path
        marks.connect(path)
        try:
            yield lines
        finally:
            marks.connect(before)
            sender.sendto(b"stop", str(path))
            reader.join()


@pytest.fixture(scope="session")
def recorder() -> str:
    """The path of `capture` where it can record; else the test is skipped, or fails if INQUEST_EBPF is `required`."""
    path = os.environ["INQUEST_CAPTURE"]
    check = subprocess.run([path, "check"], capture_output=True, text=True, check=False)
    if check.returncode != 0:
        if os.environ.get("INQUEST_EBPF") == "required":
            pytest.fail(f"this machine cannot record: {check.stdout}")
        pytest.skip(f"this machine cannot record: {check.stdout}")
    return path
