"""PyTorch Lightning: ``Trainer(callbacks=[RooflinesCallback()])``, with ``lightning`` and with
``pytorch_lightning``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rooflines.integrations.session import Session

if TYPE_CHECKING or "pytorch_lightning" not in sys.modules:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback
else:
    from pytorch_lightning import Callback


class RooflinesCallback(Session, Callback):  # type: ignore[misc]
    """Records the training of a ``Trainer``; arguments as for ``Session``.

    A step is a batch that ends with an optimizer step. Validation belongs to no step.
    """

    _updates = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The training begins, after the sanity check."""
        self._updates = trainer.global_step
        self._begin(type(pl_module).__name__)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A batch has ended, and with it a step where the optimizer has stepped."""
        if trainer.global_step > self._updates:
            self._updates = trainer.global_step
            trainer.should_stop |= self._step()

    def on_validation_start(self, *_: Any) -> None:
        """A validation begins."""
        self._pause()

    def on_validation_end(self, *_: Any) -> None:
        """The training goes on."""
        self._resume()

    def on_train_end(self, *_: Any) -> None:
        """The training has ended."""
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training has raised."""
        self.close(exception)
