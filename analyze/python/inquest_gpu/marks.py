"""Marks: a program names its phases, and a recorder that listens records them.

A program that `capture` starts finds the recorder's socket in ``$INQUEST_MARKS``. Without it nothing is sent, and a mark costs less than a
microsecond. The kernel stamps each mark with the time and the process that sent it.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from .errors import InquestWarning

#: The environment variable in which `capture` puts the path of its socket.
VARIABLE = "INQUEST_MARKS"
#: Longest time for which a mark waits for a recorder whose queue is full, in seconds.
_PATIENCE_S = 0.05
#: Longest name, in bytes: the recorder cuts what follows.
_NAME_BYTES = 200

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_path: str | None = os.environ.get(VARIABLE)
_socket: socket.socket | None = None
_lost_count = 0
_lock = threading.Lock()


def connect(path: str | os.PathLike[str] | None) -> None:
    """Sends marks to the socket at ``path`` from now on, as that of ``capture --pid PID --marks PATH``; ``None`` sends none."""
    global _path
    _path = None if path is None else os.fspath(path)


def lost_count() -> int:
    """The number of marks that this process could not send, because the recorder's queue stayed full."""
    return _lost_count


def _send(word: str, name: str) -> None:
    global _socket, _lost_count
    path = _path
    if path is None:
        return
    text = " ".join(name.split()).encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    if _socket is None:
        with _lock:
            if _socket is None:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                made.settimeout(_PATIENCE_S)
                atexit.register(made.close)
                _socket = made
    try:
        _socket.sendto(f"{word}{text}".encode(), path)
    except (FileNotFoundError, ConnectionError):
        # Nobody records, or nobody does any more.
        return
    except OSError as error:
        _lost_count += 1
        if _lost_count == 1:
            warnings.warn(f"a mark was not recorded: {path}: {error}", InquestWarning, stacklevel=4)


def mark(name: str) -> None:
    """Marks a point in time.

    Raises:
        ValueError: The name begins with ``begin`` or ``end`` and a space, which is the beginning or the end of a phase.
    """
    if name.startswith(("begin ", "end ")):
        raise ValueError(f"{name!r} would begin or end a phase: use inquest_gpu.phase")
    _send("", name)


class phase:
    """A phase of the program: ``with inquest_gpu.phase("step 12"):``, or a decorator, ``@inquest_gpu.phase("validation")``.

    Phases may lie within each other. A phase ends when its block does, by an exception, too. Names are cut after 200 bytes.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> phase:
        if _path is not None:
            _send("begin ", self.name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _path is not None:
            _send("end ", self.name)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Returns the function with each of its calls as a phase."""

        @wraps(function)
        def marked(*args: P.args, **kwargs: P.kwargs) -> R:
            with phase(self.name):
                return function(*args, **kwargs)

        return marked


def steps(items: Iterable[T], name: str = "step") -> Iterator[T]:
    """Yields the items, as of a data loader, and marks the time from each to the next as ``step 0``, ``step 1``, …

    What the loader takes to make an item is not in the phase. A phase that a ``break`` leaves open ends when the iterator is dropped.
    """
    for number, item in enumerate(items):
        with phase(f"{name} {number}"):
            yield item
