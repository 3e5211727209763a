"""Answers of the verbs of ``analyze``: the data of its JSON, and the text that it prints for people."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


class Answer:
    """What a verb of ``analyze`` answers.

    ``data`` is its JSON: times in nanoseconds (``…_ns``), sizes in bytes (``…_bytes``), shares from 0 to 1 (``…_ratio``), and ``None`` for
    what is not on record. ``answer[key]``, ``len(answer)`` and iteration are those of ``data``. Shown in a notebook or printed, the answer
    is the text that the command line has for it.
    """

    def __init__(self, data: Any, text: Callable[[], str]) -> None:
        self.data = data
        self._make_text = text
        self._text: str | None = None

    @property
    def text(self) -> str:
        """What the command line prints as the answer; it is asked for once."""
        if self._text is None:
            self._text = self._make_text()
        return self._text

    @property
    def warnings(self) -> list[str]:
        """What weakens the answer, such as events that were lost."""
        return list(self.data.get("warnings", [])) if isinstance(self.data, dict) else []

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return self.text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a run, or that bounds it."""

    #: Stable name, such as ``waiting-for-cpu``; VERDICTS.md lists all.
    kind: str
    #: What it is about: ``failure``, ``out-of-memory``, ``leak``, ``cost`` or ``note``.
    rank: str
    #: The process; ``None`` if it is about several or none.
    pid: int | None
    #: What happened, in one sentence.
    title: str
    #: Wall time that it costs, in nanoseconds; ``None`` if it costs none, or if that is not known.
    cost_ns: int | None
    #: Least and largest wall time that it costs, in nanoseconds, if the record only bounds it.
    cost_range_ns: tuple[int, int] | None
    #: Memory that it costs, in bytes.
    cost_bytes: int | None
    #: Share of the process's wall time, from 0 to 1.
    share_ratio: float | None
    #: How sure the cost is: ``measured``, ``bounded`` or ``inconclusive``.
    confidence: str
    #: What the record lacks; empty if it lacks nothing.
    open: str
    #: What to do.
    to_do: str
    #: What doing it saves; empty if that is not known.
    saves: str
    #: What shows it: ``text``, the query ``sql`` that returns it, and the ``section`` of the report.
    evidence: tuple[dict[str, str], ...]

    @classmethod
    def of(cls, data: dict[str, Any]) -> Finding:
        """Creates a finding from its JSON."""
        plain = {name: data[name] for name in cls.__dataclass_fields__ if name not in ("cost_range_ns", "evidence")}
        span = data["cost_range_ns"]
        return cls(**plain, cost_range_ns=None if span is None else (span[0], span[1]), evidence=tuple(data["evidence"]))


class Findings(Answer):
    """What is wrong with a run, ranked. Iteration, ``len`` and an index are those of the findings."""

    @property
    def findings(self) -> list[Finding]:
        """The findings: what ended the run first, then by cost."""
        return [Finding.of(finding) for finding in self.data["findings"]]

    @property
    def wall_ns(self) -> int | None:
        """Wall time of the process with the longest one, in nanoseconds; ``None`` if no process made calls."""
        wall_ns: int | None = self.data["wall_ns"]
        return wall_ns

    @property
    def bound(self) -> str:
        """What bounds the run, in one sentence."""
        return str(self.data["bound"])

    @property
    def is_open(self) -> bool:
        """True if most of the wall time is not on record, so that finding nothing proves nothing."""
        return bool(self.data["is_open"])

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, key: Any) -> Any:
        return self.data[key] if isinstance(key, str) else self.findings[key]

    def __len__(self) -> int:
        return len(self.data["findings"])
