"""Suggested changes: an option of ``profile``, or a change in the user's code."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.roofline.analysis import Analysis

# The equivalent of an option in the user's code.
_IN_CODE = {
    "compile": "in the code: torch.compile the model",
    "channels_last": "in the code: memory_format=torch.channels_last for the model and its images",
    "precision": "in the code: run the step under torch.autocast",
    "batch_size": "a larger batch",
}
MORE_WORK = "more work in each call: larger tensors, or several calls in one"


class Setting(NamedTuple):
    """An option of ``profile`` and the value to give it; ``in_code`` says the same to who has no options: a script, loop or step."""

    option: str
    value: bool | int | str
    in_code: str | None = None

    def __str__(self) -> str:
        return self.in_code or f"{self.option}={self.value!r}"


def setting(analysis: Analysis, option: str, value: bool | int | str) -> Setting:
    """Return the option to set, or for a script, loop or step function the change in its code."""
    return Setting(option, value, None if analysis.workload.source == "model" else _IN_CODE[option])


def larger_batch(analysis: Analysis) -> Setting | str:
    """Suggest twice the batch, of a server more requests, and of a step or module whose batch is not known more work in a call."""
    if analysis.serving is not None:
        return "more requests in a step, if their latency allows it"
    batch_size = analysis.workload.batch_size
    if batch_size is None and analysis.workload.source in ("model", "step"):
        return MORE_WORK
    return setting(analysis, "batch_size", 2 * (batch_size or 1))
