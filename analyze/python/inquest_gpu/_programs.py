"""Finds the programs ``analyze`` and ``capture``, and runs them.

A program is looked for in three places: the environment variable (``INQUEST_ANALYZE``, ``INQUEST_CAPTURE``), beside this package
(``inquest_gpu/_bin``), and on the path, where packages put the command ``inquest``, which becomes either. Its version has to be that of
this package.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._version import __version__
from .errors import (
    CheckFailed,
    Inconclusive,
    InquestError,
    InternalError,
    ProgramNotFound,
    ReadWriteError,
    RegressionError,
    UsageError,
    VersionMismatch,
)

#: The environment variable that names each program.
_VARIABLES = {"analyze": "INQUEST_ANALYZE", "capture": "INQUEST_CAPTURE"}
#: The command that becomes either program.
_LAUNCHER = "inquest"


def find(program: str) -> list[str]:
    """Returns the beginning of a command line that starts ``analyze`` or ``capture``, of this package's version.

    Raises:
        ProgramNotFound: There is no such program, or what has its name is another one.
        VersionMismatch: The program is of another version than this package.
    """
    variable = _VARIABLES[program]
    beside = Path(__file__).parent / "_bin" / program
    if named := os.environ.get(variable):
        path = named
    elif beside.exists():
        path = str(beside)
    else:
        path = shutil.which(_LAUNCHER) or shutil.which(program) or ""
        if not path:
            raise ProgramNotFound(f"the program {program} is neither in {variable}, nor beside this package, nor on the path")
    command = [path, program] if Path(path).name == _LAUNCHER else [path]
    _check_version(program, tuple(command))
    return command


@functools.cache
def _check_version(program: str, command: tuple[str, ...]) -> None:
    path, variable = " ".join(command), _VARIABLES[program]
    try:
        done = subprocess.run([*command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramNotFound(f"{path} cannot be run: {error}") from error
    said = done.stdout.decode("utf-8", "replace").strip()
    found = re.fullmatch(rf"{program} (\S+)", said)
    if done.returncode != 0 or not found:
        raise ProgramNotFound(f"{path} is not Inquest's {program}: name the right one in {variable}")
    if found[1] != __version__:
        raise VersionMismatch(
            f"{path} is version {found[1]}, and this package is version {__version__}: "
            f"install the package of that version, or name another program in {variable}"
        )


@dataclass(frozen=True)
class Done:
    """What a program did that ended with exit code 0."""

    stdout: bytes
    #: The lines of standard error that say what weakens the answer, each without its ``note:``.
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The output as text."""
        return self.stdout.decode("utf-8")

    @property
    def json(self) -> Any:
        """The output as JSON."""
        return json.loads(self.stdout)


def analyze(arguments: Sequence[str | os.PathLike[str]], stdin: bytes = b"") -> Done:
    """Runs ``analyze`` to its end and returns what it printed. An interrupt (Ctrl-C) ends the program, too; it leaves no file then.

    Raises:
        InquestError: The program ended with another exit code than 0; each has its own subclass.
    """
    # Progress would be shown on a terminal only, and standard error is none here.
    command = [*find("analyze"), *(os.fspath(argument) for argument in arguments)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        stdout, stderr = child.communicate(stdin)
    except BaseException:
        child.kill()
        child.communicate()
        raise
    lines = stderr.decode("utf-8", "replace").splitlines()
    if child.returncode != 0:
        raise _error(child.returncode, lines, stdout)
    return Done(stdout, tuple(line.removeprefix("note: ") for line in lines if line.strip()))


def _error(code: int, lines: list[str], stdout: bytes) -> InquestError:
    message = "\n".join(line.removeprefix("analyze: ") for line in lines).strip() or f"analyze ended with exit code {code}"
    output = stdout.decode("utf-8", "replace")
    if code < 0:
        return InternalError(f"signal {-code} ended analyze: {message}", code, output)
    if code == 1:
        return (RegressionError if message.startswith("regression: ") else CheckFailed)(message, code, output)
    kinds: dict[int, type[InquestError]] = {2: UsageError, 3: Inconclusive, 5: ReadWriteError}
    return kinds.get(code, InternalError)(message, code, output)
