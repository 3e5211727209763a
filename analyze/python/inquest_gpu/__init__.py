"""Ask recorded GPU runs from Python: why was a job slow, where was its memory, what changed?

``run = inquest_gpu.open("run.parquet")`` opens a recording of ``capture`` (or a trace of another tool), ``run.findings()`` says what is
wrong with it, and ``run.sql("SELECT …")`` returns rows for polars, pandas or whatever reads Arrow. ``with inquest_gpu.phase("step 12"):``
names a phase of a program that is being recorded. The package is a thin layer over the program ``analyze``: every figure is that of the
command line.
"""

from __future__ import annotations

from typing import Any

from ._version import __version__
from .answers import Answer, Finding, Findings
from .comparison import compare
from .errors import (
    CannotRecord,
    CheckFailed,
    Inconclusive,
    InquestError,
    InquestWarning,
    InternalError,
    MissingLibrary,
    ProgramNotFound,
    ReadWriteError,
    RegressionError,
    UsageError,
    VersionMismatch,
)
from .marks import mark, phase, steps
from .recording import record
from .relation import Relation
from .run import Run, open

__all__ = [
    "Answer",
    "CannotRecord",
    "CheckFailed",
    "Finding",
    "Findings",
    "Inconclusive",
    "InquestError",
    "InquestWarning",
    "InternalError",
    "MissingLibrary",
    "ProgramNotFound",
    "ReadWriteError",
    "RegressionError",
    "Relation",
    "Run",
    "UsageError",
    "VersionMismatch",
    "__version__",
    "compare",
    "mark",
    "open",
    "phase",
    "record",
    "steps",
]


def load_ipython_extension(shell: Any) -> None:
    """Registers the cell magics: ``%load_ext inquest_gpu``."""
    from .magics import register

    register(shell)
