"""Marks the epochs, steps, evaluation and checkpoints of Hugging Face's Trainer: ``Trainer(callbacks=[InquestCallback()])``."""

from __future__ import annotations

from typing import Any

from ._open_phases import OpenPhases
from .errors import MissingLibrary
from .marks import mark

try:
    from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise MissingLibrary('this needs transformers, which is not installed: pip install "inquest-gpu[transformers]"') from error


class InquestCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Marks ``epoch N``, ``step N``, ``validation N`` and ``checkpoint N``.

    The Trainer evaluates and saves after a step or an epoch, in this order, and tells callbacks when it has. So a validation begins where
    the step ends that asks for it, and a checkpoint where the step or the validation before it ends. With ``save_strategy="best"`` the
    Trainer decides later, and the end of the checkpoint is a point in time, ``checkpoint``.
    """

    def __init__(self) -> None:
        self._phases = OpenPhases()

    def _after(self, control: Any) -> None:
        """Begins what the Trainer does next."""
        if control.should_evaluate:
            self._phases.begin("validation")
        elif control.should_save:
            self._phases.begin("checkpoint")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins an epoch."""
        self._phases.begin("epoch", int(state.epoch or 0))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the epoch."""
        self._phases.end("epoch")
        self._after(control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins a step of the optimizer."""
        self._phases.begin("step", state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the step."""
        self._phases.end("step")
        self._after(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the validation."""
        self._phases.end("validation")
        if control.should_save:
            self._phases.begin("checkpoint")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the checkpoint; of one whose beginning the Trainer did not announce, marks the end."""
        if not self._phases.end("checkpoint"):
            mark("checkpoint")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends what is open."""
        self._phases.end_all()
