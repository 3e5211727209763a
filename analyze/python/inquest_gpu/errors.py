"""Every error of the package. Each exit code of the programs is an exception of its own, with the program's message."""

from __future__ import annotations

import json
from typing import Any


class InquestError(Exception):
    """The base of every error of this package.

    ``exit_code`` is the exit code of the program, or ``None`` if no program was at fault. ``output`` is what the program printed before it
    ended, and ``answer`` the same as data if it is JSON, or ``None``: a check that fails and a comparison that finds a regression have
    their whole answer there.
    """

    def __init__(self, message: str, exit_code: int | None = None, output: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.output = output

    @property
    def answer(self) -> Any:
        """The output as data, or ``None`` if it is not JSON."""
        try:
            return json.loads(self.output)
        except ValueError:
            return None


class UsageError(InquestError, ValueError):
    """The call is wrong or its input is bad (exit code 2): a missing or damaged file, a query that does not parse, an unknown option."""


class CheckFailed(InquestError):
    """A check found what is over its limits (exit code 1); ``answer`` has the findings."""


class RegressionError(CheckFailed):
    """A comparison found a regression (exit code 1); ``answer`` has the comparison."""


class Inconclusive(InquestError):
    """The record does not suffice to answer (exit code 3); the message has the reason."""


class ReadWriteError(InquestError, OSError):
    """Reading or writing failed (exit code 5), as on a full disk."""

    def __str__(self) -> str:
        return str(self.args[0])


class InternalError(InquestError):
    """The program failed by a fault of its own (exit code 70), or a signal ended it."""


class ProgramNotFound(InquestError):
    """A program of Inquest is not installed, or what has its name is another program."""


class VersionMismatch(InquestError):
    """The program and this package are of different versions."""


class CannotRecord(InquestError):
    """This machine or this user cannot record (exit code 4 of ``capture``); the message says what is missing."""


class MissingLibrary(InquestError, ImportError):
    """A method needs a library that is not installed; the message has the command that installs it."""


class InquestWarning(UserWarning):
    """What weakens an answer, as the program says it: what is not on record, what was lost."""
