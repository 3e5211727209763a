"""Limits that a recorded test must keep, and whether its runs keep them.

A limit is judged by the program: `analyze alerts` for reserved memory, `analyze leaks` for leaks, `analyze compare` for the wall time. What
the record does not tell is neither kept nor broken, but open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _programs
from .comparison import compare
from .errors import CheckFailed, Inconclusive, UsageError
from .run import Run


@dataclass(frozen=True)
class Limits:
    """The arguments of ``@pytest.mark.inquest``."""

    #: Most memory that PyTorch's allocator may reserve on a GPU, such as ``"20GiB"``.
    max_reserved: str | None = None
    #: Whether memory must not leak.
    no_leak: bool = False
    #: Largest increase of the wall time over the baseline, such as ``"5%"``.
    max_wall_regression: str | None = None
    #: How often the test is run and recorded.
    repeat: int = 1

    @classmethod
    def of(cls, marker: Any) -> Limits:
        """Reads the limits from a marker.

        Raises:
            UsageError: An argument is unknown or wrong.
        """
        unknown = set(marker.kwargs) - set(cls.__dataclass_fields__)
        if marker.args or unknown:
            what = ", ".join(sorted(unknown)) or "a positional argument"
            raise UsageError(f"@pytest.mark.inquest does not take {what}: it takes {', '.join(cls.__dataclass_fields__)}")
        limits = cls(**marker.kwargs)
        if not isinstance(limits.repeat, int) or limits.repeat < 1:
            raise UsageError("repeat of @pytest.mark.inquest must be a number of at least 1")
        return limits


@dataclass
class Judgement:
    """Which limits are broken, and which are open."""

    broken: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def judge(limits: Limits, paths: Sequence[Path], baseline: Sequence[Path]) -> Judgement:
    """Judges the runs of a test; ``baseline`` are earlier runs of it."""
    found = Judgement()
    for path in paths:
        if limits.max_reserved is not None:
            _reserved(limits.max_reserved, path, found)
        if limits.no_leak:
            _leaks(path, found)
    if limits.max_wall_regression is not None:
        _wall(limits.max_wall_regression, paths, baseline, found)
    return found


def _reserved(limit: str, path: Path, found: Judgement) -> None:
    try:
        alerts = _programs.analyze(["alerts", f"--over={limit}", "--for=0s", "--json", "--", path]).json
    except (CheckFailed, Inconclusive) as error:
        if error.answer is None:
            found.open.append(f"max_reserved={limit}: {error}")
            return
        alerts = error.answer
    allocators = [alert for alert in alerts["alerts"] if alert["subject"]["of"] == "allocator"]
    if not allocators:
        found.open.append(f"max_reserved={limit}: no memory of PyTorch's allocator is on record")
    for alert in allocators:
        where = f"process {alert['subject']['pid']}, GPU {alert['subject']['device']}"
        if alert["verdict"] == "alert":
            found.broken.append(f"max_reserved={limit}: {where} reserved {alert['peak_bytes']} bytes")
        elif alert["verdict"] != "none":
            found.open.append(f"max_reserved={limit}: {where}: {alert['reason']}")


def _leaks(path: Path, found: Judgement) -> None:
    answer = Run(path).leaks()
    subjects = answer["allocators"] + answer["drivers"]
    if not subjects:
        found.open.append("no_leak: no allocation is on record")
    for subject in subjects:
        said = f"no_leak: process {subject['pid']}: {subject['verdict']}: {'; '.join(subject['reasons'])}"
        if subject["verdict"] == "leak":
            found.broken.append(said)
        elif subject["verdict"] == "inconclusive":
            found.open.append(said)


def _wall(limit: str, paths: Sequence[Path], baseline: Sequence[Path], found: Judgement) -> None:
    gate = f"wall_ns < +{limit}"
    if not baseline:
        found.open.append(f"{gate}: no earlier runs: record some with --inquest-save DIR, and name DIR with --inquest-baseline")
        return
    answer = compare(baseline, paths, gates=[gate], raises=False)
    if answer["outcome"] == "pass":
        return
    reasons = "; ".join(f"{judged['outcome']}: {judged['reason']}" for judged in answer["gates"]) or "the runs have no wall time"
    (found.broken if answer["outcome"] == "regression" else found.open).append(f"{gate}: {reasons}")
