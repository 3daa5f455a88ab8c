"""An option of ``profile`` that a rule suggests, or for code that is not ours, what to change in it."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.roofline.analysis import Analysis

# What an option is in code that we cannot reach into.
_IN_CODE = {
    "compile": "in the code: torch.compile the model",
    "channels_last": "in the code: memory_format=torch.channels_last for the model and its images",
    "precision": "in the code: run the step under torch.autocast",
    "batch_size": "a larger batch",
}


class Setting(NamedTuple):
    """An option of ``profile`` and the value to give it."""

    option: str
    value: bool | int | str

    def __str__(self) -> str:
        return f"{self.option}={self.value!r}"


def setting(analysis: Analysis, option: str, value: bool | int | str) -> Setting | str:
    """The option to set; for a script, a loop or a step function, which are the user's, what to change in the code."""
    return Setting(option, value) if analysis.workload.source == "model" else _IN_CODE[option]


def larger_batch(analysis: Analysis) -> Setting | str:
    """Twice the batch."""
    return setting(analysis, "batch_size", 2 * (analysis.workload.batch_size or 1))
