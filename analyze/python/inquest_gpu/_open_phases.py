"""Phases that a framework begins in one call and ends in another."""

from __future__ import annotations

from .marks import phase


class OpenPhases:
    """The phases that have begun and not ended, by what they are about, such as ``step``."""

    def __init__(self) -> None:
        self._open: dict[str, phase] = {}
        self._counts: dict[str, int] = {}

    def begin(self, what: str, number: int | None = None) -> None:
        """Begins a phase with a number, or with the next one. One about the same that is open ends."""
        self.end(what)
        count = self._counts.get(what, 0) if number is None else number
        self._counts[what] = count + 1
        self._open[what] = phase(f"{what} {count}").__enter__()

    def end(self, what: str) -> bool:
        """Ends a phase, and returns whether it was open."""
        opened = self._open.pop(what, None)
        if opened is None:
            return False
        opened.__exit__(None, None, None)
        return True

    def end_all(self) -> None:
        """Ends every phase, the last begun first."""
        for what in reversed(list(self._open)):
            self.end(what)
