"""Figures: that they are those of the command line, and what each library of metrics gets."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import command_line, run
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import inquest_gpu
from inquest_gpu import figures as module
from inquest_gpu.figures import Figure

SOME = [
    Figure("wall", "ns", 1_500_000_000, {}, "Wall time."),
    Figure("run_time", "ns", 500_000_000, {"part": "host"}, "Part."),
    Figure("run_time", "ns", 1_000_000_000, {"part": "sync"}, "Part."),
    Figure("reserved_peak", "bytes", 2048, {}, "Peak."),
    Figure("findings", "count", 2, {}, "Findings."),
]
FLAT = {
    "inquest/wall_ns": 1_500_000_000,
    "inquest/run_time_ns/host": 500_000_000,
    "inquest/run_time_ns/sync": 1_000_000_000,
    "inquest/reserved_peak_bytes": 2048,
    "inquest/findings_count": 2,
}


def test_figures_are_those_of_the_command_line() -> None:
    path = run("memory/leak")
    flat = module.flat(module.figures(inquest_gpu.open(path)))
    wall, reserved = (
        int(command_line("sql", path, f"SELECT {column} FROM {view} WHERE {column} IS NOT NULL").splitlines()[1])
        for column, view in (("process_wall_ns", "metrics_run_time"), ("reserved_peak_bytes", "metrics_memory"))
    )
    assert flat["inquest/wall_ns"] == wall and flat["inquest/reserved_peak_bytes"] == reserved
    assert sum(value for name, value in flat.items() if name.startswith("inquest/run_time_ns/")) == wall
    assert flat["inquest/finding_memory_bytes/leak"] == 9694208


def test_what_is_not_on_record_has_no_figure() -> None:
    with pytest.warns(inquest_gpu.InquestWarning):
        flat = module.flat(module.figures(inquest_gpu.open(run("courtroom/vm/nothing"))))
    assert "inquest/reserved_peak_bytes" not in flat and flat["inquest/wall_ns"] > 0


def test_prometheus_reads_its_text() -> None:
    families = {family.name: family for family in text_string_to_metric_families(module.prometheus(SOME, job='a "b"\\\n'))}
    samples = {(sample.name, sample.labels.get("part")): sample.value for family in families.values() for sample in family.samples}
    assert samples == {
        ("inquest_wall_seconds", None): 1.5,
        ("inquest_run_time_seconds", "host"): 0.5,
        ("inquest_run_time_seconds", "sync"): 1.0,
        ("inquest_reserved_peak_bytes", None): 2048,
        ("inquest_findings_count", None): 2,
    }
    assert all(sample.labels["job"] == 'a "b"\\\n' for family in families.values() for sample in family.samples)
    assert families["inquest_wall_seconds"].documentation == "Wall time." and families["inquest_wall_seconds"].type == "gauge"


def test_opentelemetry_has_gauges() -> None:
    reader = InMemoryMetricReader()
    module.to_opentelemetry(SOME, MeterProvider([reader]).get_meter("test"), run="a")
    data: Any = reader.get_metrics_data()
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    points = {(name, point.attributes.get("part")): point.value for name, metric in metrics.items() for point in metric.data.data_points}
    assert points[("inquest.run_time", "sync")] == 1.0 and points[("inquest.reserved_peak", None)] == 2048
    assert (metrics["inquest.wall"].unit, metrics["inquest.reserved_peak"].unit) == ("s", "By")


def test_wandb_mlflow_and_tensorboard_get_names_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their interfaces are imitated: each of these libraries is far larger than this package."""
    summary: dict[str, float] = {}
    module.to_wandb(SOME, SimpleNamespace(summary=summary))
    assert summary == FLAT
    wandb = ModuleType("wandb")
    wandb.run = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(ValueError, match=r"wandb\.init"):
        module.to_wandb(SOME)
    logged: list[Any] = []
    mlflow = ModuleType("mlflow")
    mlflow.log_metrics = lambda metrics, step=None: logged.append((metrics, step))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    module.to_mlflow(SOME, step=3)
    assert logged == [(FLAT, 3)]
    scalars: dict[str, float] = {}
    module.to_tensorboard(SOME, SimpleNamespace(add_scalar=lambda key, value, step: scalars.update({key: value})), step=1)
    assert scalars == FLAT
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(inquest_gpu.MissingLibrary, match=r"inquest-gpu\[mlflow\]"):
        module.to_mlflow(SOME)
