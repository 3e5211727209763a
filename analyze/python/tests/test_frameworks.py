"""Callbacks of training frameworks, which are too large to be installed here: their classes and the order of their calls are imitated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import inquest_gpu

Lines = Callable[[], list[str]]


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a module with one empty class in the place of a framework."""

    def place(module: str, name: str) -> None:
        words = module.split(".")
        for end in range(1, len(words) + 1):
            monkeypatch.setitem(sys.modules, ".".join(words[:end]), ModuleType(".".join(words[:end])))
        setattr(sys.modules[module], name, type(name, (), {}))

    for ours in ("lightning", "transformers", "accelerate"):
        monkeypatch.delitem(sys.modules, f"inquest_gpu.{ours}", raising=False)
    return place


@pytest.mark.parametrize("module", ["lightning.pytorch.callbacks", "pytorch_lightning.callbacks"])
def test_lightning_marks_epochs_steps_validation_and_checkpoints(
    framework: Callable[[str, str], None], listener: Lines, module: str
) -> None:
    framework(module, "Callback")
    from inquest_gpu.lightning import InquestCallback

    callback, trainer = InquestCallback(), SimpleNamespace(current_epoch=4)
    callback.on_train_epoch_start(trainer, None)
    for number in range(2):
        callback.on_train_batch_start(trainer, None, None, number)
        callback.on_train_batch_end(trainer, None, None, None, number)
    callback.on_validation_start(trainer, None)
    callback.on_validation_end(trainer, None)
    callback.on_save_checkpoint(trainer, None, {})
    callback.on_train_batch_start(trainer, None, None, 2)
    callback.on_exception(trainer, None, ValueError())
    steps = ["begin step 0", "end step 0", "begin step 1", "end step 1"]
    after = ["begin validation 0", "end validation 0", "checkpoint", "begin step 2", "end step 2", "end epoch 4"]
    assert listener() == ["begin epoch 4", *steps, *after]


def test_transformers_marks_what_the_trainer_does_after_a_step(framework: Callable[[str, str], None], listener: Lines) -> None:
    framework("transformers", "TrainerCallback")
    from inquest_gpu.transformers import InquestCallback

    callback, state = InquestCallback(), SimpleNamespace(epoch=0.0, global_step=0)

    def tell(event: str, evaluates: bool = False, saves: bool = False) -> None:
        getattr(callback, event)(None, state, SimpleNamespace(should_evaluate=evaluates, should_save=saves), model=None)

    tell("on_epoch_begin")
    tell("on_step_begin")
    tell("on_step_end")
    state.global_step = 1
    tell("on_step_begin")
    tell("on_step_end", evaluates=True, saves=True)
    tell("on_evaluate", saves=True)
    tell("on_save")
    # The Trainer decides to save what turned out best only after it has told of the evaluation.
    tell("on_save")
    tell("on_epoch_end", saves=True)
    tell("on_save")
    state.epoch = 1.0
    tell("on_epoch_begin")
    tell("on_train_end")
    assert listener() == [
        "begin epoch 0",
        "begin step 0",
        "end step 0",
        "begin step 1",
        "end step 1",
        "begin validation 0",
        "end validation 0",
        "begin checkpoint 0",
        "end checkpoint 0",
        "checkpoint",
        "end epoch 0",
        "begin checkpoint 1",
        "end checkpoint 1",
        "begin epoch 1",
        "end epoch 1",
    ]


def test_accelerate_marks_what_a_loop_logs(framework: Callable[[str, str], None], listener: Lines) -> None:
    framework("accelerate.tracking", "GeneralTracker")
    from inquest_gpu.accelerate import InquestTracker

    tracker = InquestTracker()
    tracker.store_init_configuration({"token": "secret"})
    tracker.log({"loss": 0.5}, step=7)
    tracker.log({"loss": 0.5})
    assert listener() == ["log 7", "log"]
    assert (tracker.name, tracker.tracker, tracker.requires_logging_directory) == ("inquest", None, False)


@pytest.mark.parametrize("module", ["lightning", "transformers", "accelerate"])
def test_without_the_framework_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for absent in (
        "lightning",
        "lightning.pytorch.callbacks",
        "pytorch_lightning",
        "pytorch_lightning.callbacks",
        "transformers",
        "accelerate",
    ):
        monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.delitem(sys.modules, f"inquest_gpu.{module}", raising=False)
    with pytest.raises(inquest_gpu.MissingLibrary, match=rf"pip install \"inquest-gpu\[{module}\]\""):
        __import__(f"inquest_gpu.{module}")


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from conftest import run

    relation: Any = inquest_gpu.open(run("memory/leak")).sql("SELECT 1 AS x")
    for method, module in (("pl", "polars"), ("df", "pandas"), ("arrow", "pyarrow.ipc"), ("fetchall", "nanoarrow")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(inquest_gpu.MissingLibrary, match=r"pip install"):
                getattr(relation, method)()
