"""Marks what a loop of Accelerate logs: ``Accelerator(log_with=InquestTracker())``, then ``accelerator.init_trackers("project")``.

A loop that logs nothing marks its steps itself: ``for batch in inquest_gpu.steps(loader)``.
"""

from __future__ import annotations

from typing import Any

from .errors import MissingLibrary
from .marks import mark

try:
    from accelerate.tracking import GeneralTracker  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise MissingLibrary('this needs accelerate, which is not installed: pip install "inquest-gpu[accelerate]"') from error


class InquestTracker(GeneralTracker):  # type: ignore[misc, unused-ignore]
    """A tracker that marks the point of each ``accelerator.log(values, step=N)`` as ``log N``, in every process."""

    name = "inquest"
    requires_logging_directory = False
    main_process_only = False

    @property
    def tracker(self) -> None:
        """There is no run of another tool behind this tracker."""
        return None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Stores nothing: settings may hold secrets."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Marks the point; the values are not recorded."""
        mark("log" if step is None else f"log {step}")
