"""Marks the epochs, steps, validation and checkpoints of Lightning: ``Trainer(callbacks=[InquestCallback()])``."""

from __future__ import annotations

from typing import Any

from ._open_phases import OpenPhases
from .errors import MissingLibrary
from .marks import mark

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingLibrary('this needs Lightning, which is not installed: pip install "inquest-gpu[lightning]"') from error


class InquestCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Marks ``epoch N``, ``step N`` (a batch of training), ``validation N``, and ``checkpoint`` (the point at which one is made)."""

    def __init__(self) -> None:
        super().__init__()
        self._phases = OpenPhases()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins an epoch."""
        self._phases.begin("epoch", trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the epoch."""
        self._phases.end("epoch")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begins a step."""
        self._phases.begin("step")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends the step."""
        self._phases.end("step")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins a validation."""
        self._phases.begin("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the validation."""
        self._phases.end("validation")

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Marks the point at which a checkpoint is made."""
        mark("checkpoint")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends what the exception left open."""
        self._phases.end_all()
