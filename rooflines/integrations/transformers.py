"""Hugging Face Transformers: ``Trainer(..., callbacks=[RooflinesCallback()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from rooflines.integrations.session import Session


class RooflinesCallback(Session, TrainerCallback):  # type: ignore[misc]
    """Records the training of a ``Trainer``; arguments as for ``Session``.

    A step is an optimizer step, with all the batches whose gradients it accumulates. Evaluating and saving
    belong to no step. The ``Trainer`` does not tell its callbacks about an exception: call ``close()`` when
    training has raised and the program goes on.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The training begins."""
        self._begin(type(model).__name__)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The batches of a step have been loaded."""
        self._resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The optimizer has stepped."""
        control.should_training_stop |= self._step()
        self.on_epoch_end(args, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluating or saving may follow."""
        if control.should_evaluate or control.should_save:
            self._pause()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The training has ended."""
        self.close()
