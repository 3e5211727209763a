"""Compares two sets of runs by the statistics of ``analyze compare``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from . import _programs
from .answers import Answer
from .errors import Inconclusive, RegressionError
from .run import Run, Source, _paths


def compare(
    base: Run | Source | Iterable[Source],
    new: Run | Source | Iterable[Source],
    *,
    gates: Sequence[str] = (),
    allow: Sequence[str] = (),
    raises: bool = True,
) -> Answer:
    """Compares two sides, each one or more runs, folders, patterns or baselines, and returns the comparison.

    The unit of comparison is a run: give five or more a side, recorded in turn. ``gates`` are such as ``"wall_ns < +2%"``, or TOML files of
    gates; without one, wall time, time between launches and time in calls may grow by 5 %, and memory by 2 %. ``allow`` names
    circumstances that may differ between the sides. ``answer["outcome"]`` is ``pass``, ``regression``, ``suspect`` or ``inconclusive``.

    Raises:
        RegressionError: A gate fails; ``answer`` of the exception is the comparison's data. With ``raises=False`` it is returned.
        Inconclusive: No gate fails, and one cannot be judged. With ``raises=False`` the comparison is returned.
        UsageError: A run cannot be read, or a gate is wrong.
    """
    sides = [side.paths if isinstance(side, Run) else _paths(side) for side in (base, new)]
    options = [*(f"--gate={gate}" for gate in gates), *(f"--allow={one}" for one in allow)]
    # A path that begins with a dash would be an option.
    words = [["./" + path if path.startswith("-") else path for path in side] for side in sides]
    arguments: list[str | os.PathLike[str]] = ["compare", *options, "--base", *words[0], "--new", *words[1]]

    def text() -> str:
        try:
            return _programs.analyze(arguments).text
        except (RegressionError, Inconclusive) as error:
            return error.output

    try:
        return Answer(_programs.analyze([*arguments, "--format=json"]).json, text)
    except (RegressionError, Inconclusive) as error:
        if raises or error.answer is None:
            raise
        return Answer(error.answer, text)
