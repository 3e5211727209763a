"""The figures of a run, and where they can be sent: wandb, MLflow, TensorBoard, Prometheus, OpenTelemetry.

A figure is what the command line says: the account of the wall time (the view ``metrics_run_time``), PyTorch's memory
(``metrics_memory``), and what findings cost. What is not on record has no figure, rather than one that is zero.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import MissingLibrary
from .run import Run

#: What a figure of each unit is divided by, and the unit in which it is sent then.
_BASE = {"ns": (1e9, "seconds", "s"), "bytes": (1, "bytes", "By"), "count": (1, "count", "1")}


@dataclass(frozen=True)
class Figure:
    """One figure of a run."""

    #: What is measured, such as ``run_time`` or ``reserved_peak``.
    name: str
    #: ``ns``, ``bytes`` or ``count``.
    unit: str
    #: The figure, in its unit.
    value: float
    #: What it is measured of, such as ``{"part": "host"}``; empty for the run as a whole.
    labels: Mapping[str, str]
    #: What it means, in a sentence.
    about: str

    @property
    def key(self) -> str:
        """Name for a library of metrics that knows no labels, such as ``inquest/run_time_ns/host``."""
        return "/".join(["inquest", f"{self.name}_{self.unit}", *self.labels.values()])


def figures(run: Run) -> list[Figure]:
    """Returns the figures of one run, each with its unit.

    Raises:
        UsageError: The run cannot be read, or several are open.
    """
    found: list[Figure] = []

    def add(name: str, unit: str, value: float | None, about: str, **labels: str) -> None:
        if value is not None:
            found.append(Figure(name, unit, value, labels, about))

    findings = run.findings()
    wall = "Wall time of the process with the longest one."
    part = "Part of that wall time: the parts follow one process, without overlap."
    query = (
        "SELECT subject, process_wall_ns, coalesce(running_ns, 0) + coalesce(start_up_ns, 0) AS time_ns, running_ns IS NOT NULL AS is_known"
    )
    rows = run.sql(f"{query} FROM metrics_run_time WHERE stratum IS NULL ORDER BY subject").fetchall()
    for subject, wall_ns, time_ns, is_known in rows:
        if subject is None:
            add("wall", "ns", wall_ns, wall)
        elif is_known:
            add("run_time", "ns", time_ns, part, part=subject)
    for reserved, allocated in run.sql("SELECT reserved_peak_bytes, allocated_peak_bytes FROM metrics_memory").fetchall():
        add("reserved_peak", "bytes", reserved, "Peak of the memory that PyTorch's allocators reserved.")
        add("allocated_peak", "bytes", allocated, "Peak of the memory that was allocated from PyTorch's allocators.")
    if not findings.is_open:
        add("findings", "count", len(findings), "Number of findings.")
    costs_ns: dict[str, int] = {}
    costs_bytes: dict[str, int] = {}
    for finding in findings:
        if finding.cost_ns is not None:
            costs_ns[finding.kind] = costs_ns.get(finding.kind, 0) + finding.cost_ns
        if finding.cost_bytes is not None:
            costs_bytes[finding.kind] = costs_bytes.get(finding.kind, 0) + finding.cost_bytes
    for kind, cost in costs_ns.items():
        add("finding_time", "ns", cost, "Wall time that findings of a kind cost, at most.", kind=kind)
    for kind, cost in costs_bytes.items():
        add("finding_memory", "bytes", cost, "Memory that findings of a kind hold.", kind=kind)
    return found


def flat(found: Iterable[Figure]) -> dict[str, float]:
    """Returns the figures by name, such as ``inquest/run_time_ns/host``."""
    return {figure.key: figure.value for figure in found}


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = name.split(".")[0]
        raise MissingLibrary(f'this needs {name}, which is not installed: pip install "inquest-gpu[{extra}]"') from error


def to_wandb(found: Iterable[Figure], run: Any = None) -> None:
    """Writes the figures into the summary of a run of wandb: of the one that is given, or of the active one.

    Raises:
        MissingLibrary: wandb is not installed.
        ValueError: No run of wandb is active, and none is given.
    """
    active = run if run is not None else _library("wandb").run
    if active is None:
        raise ValueError("no run of wandb is active: call wandb.init() before")
    active.summary.update(flat(found))


def to_mlflow(found: Iterable[Figure], step: int | None = None) -> None:
    """Logs the figures as metrics of the active run of MLflow."""
    _library("mlflow").log_metrics(flat(found), step=step)


def to_tensorboard(found: Iterable[Figure], writer: Any, step: int = 0) -> None:
    """Adds the figures as scalars to a ``SummaryWriter`` of TensorBoard."""
    for key, value in flat(found).items():
        writer.add_scalar(key, value, step)


def to_opentelemetry(found: Iterable[Figure], meter: Any = None, **attributes: str) -> None:
    """Sets a gauge for each figure, in seconds, bytes or a count, on a meter of OpenTelemetry.

    The meter is the one that is given, or that of the global provider. The exporter of the meter's provider sends them, as by OTLP.
    ``attributes`` are set on each figure besides its own labels.
    """
    meter = meter if meter is not None else _library("opentelemetry.metrics").get_meter("inquest_gpu")
    gauges: dict[str, Any] = {}
    for figure in found:
        divisor, _, unit = _BASE[figure.unit]
        name = f"inquest.{figure.name}"
        if name not in gauges:
            gauges[name] = meter.create_gauge(name, unit=unit, description=figure.about)
        gauges[name].set(figure.value / divisor, {**figure.labels, **attributes})


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def prometheus(found: Iterable[Figure], **labels: str) -> str:
    """Returns the figures as text for Prometheus, in seconds, bytes or a count: for a textfile collector, or a push gateway.

    ``labels`` are set on each figure besides its own.
    """
    lines: list[str] = []
    families: dict[str, list[Figure]] = {}
    for figure in found:
        families.setdefault(f"inquest_{figure.name}_{_BASE[figure.unit][1]}", []).append(figure)
    for name, members in families.items():
        lines += [f"# HELP {name} {members[0].about}", f"# TYPE {name} gauge"]
        for figure in members:
            both = {**figure.labels, **labels}
            inside = ",".join(f"{key}={_quoted(value)}" for key, value in both.items())
            lines.append(
                f"{name}{{{inside}}} {figure.value / _BASE[figure.unit][0]!r}"
                if inside
                else f"{name} {figure.value / _BASE[figure.unit][0]!r}"
            )
    return "".join(line + "\n" for line in lines)
